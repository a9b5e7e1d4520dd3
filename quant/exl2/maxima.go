package exl2

import (
	"math"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid"
)

// The largest step of a group is shared by all outputs, each of which takes (s/16)² of it, s = 1 … 16. Near s = 16 these
// lie 12 % apart, so the shared number decides how well the outputs with the widest weights are served. It is chosen
// before feedback, from the weights as they are: the error of every output is tabulated over a grid of steps, and for
// every trial the outputs take from their tables the best of the steps it would give them.

const (
	perOctave  = 8  // points of an error table per factor of two in the step
	tablePoint = 13 // points of a table, from the step that just covers the output's widest weight downwards
	finePart   = 2  // trials of the largest step lie this many times closer
	trials     = 2*perOctave*finePart + 1
	tabulated  = 128 // tiles at most that are tabulated, evenly spread: 8192 outputs say enough
)

// octave holds 2^(i/perOctave).
var octave = [perOctave]float64{1, 1.0905077326652577, 1.189207115002721, 1.2968395546510096,
	1.4142135623730951, 1.5422108254079407, 1.681792830507429, 1.8340080864093424}

// codeOffset is the position of the step of scale code s relative to the largest, in table points: 2·8·log2((s+1)/16).
var codeOffset = [scaleCodes]float64{-64, -48, -38.64059998846150, -32, -26.84915048180221, -22.64059998846150,
	-19.08232124707833, -16, -13.28119997692300, -10.84915048180221, -8.649094101803240, -6.64059998846150,
	-4.79296450974253, -3.08232124707833, -1.48975047026371, 0}

// headroom is how much larger than the tables say the largest step is made, by bits. The tables know the weights as they
// are; feedback moves them, and at high widths one that no longer fits costs more than a wider step for the outputs at
// the upper end.
var headroom = [...]float64{2: 1, 3: 1, 4: 1, 5: 1.03, 6: 1.12, 8: 1.2}

// position returns the highest point of the step grid that is not above t: the largest j with 2^(j/8) ≤ t.
func position(t float32) int {
	frac, exp := math.Frexp(float64(t)) // frac in [0.5, 1)
	i := perOctave - 1
	for i > 0 && octave[i] > 2*frac {
		i--
	}
	return (exp-1)*perOctave + i
}

// point returns 2^(j/8).
func point(j int) float64 {
	exp := j >> 3
	return math.Ldexp(octave[j-exp*perOctave], exp)
}

// maxima chooses the steps of every group for the weights w[out,K]. Groups come in order of visit.
func (a *arrangement) maxima(pool *kernel.Pool, w []float32, out int, groups []packing.EXL2Group) []steps {
	tiles := (out + tileRows - 1) / tileRows
	peaks := make([][]float32, tiles)
	pool.Run(tiles, func(i int) { peaks[i] = a.tilePeaks(w, out, i, groups) })
	for _, other := range peaks[1:] {
		for g, v := range other {
			peaks[0][g] = max(peaks[0][g], v)
		}
	}
	first := make([]int, len(groups)) // the largest trial of each group, in table points
	for g, group := range groups {
		first[g] = position(max(reach(group.Bits, peaks[0][g]), 0x1p-24)) + 1
	}
	every := (tiles + tabulated - 1) / tabulated
	sums := make([][]float64, (tiles+every-1)/every)
	pool.Run(len(sums), func(i int) { sums[i] = a.tileSums(w, out, i*every, groups, first) })
	for _, other := range sums[1:] {
		for i, v := range other {
			sums[0][i] += v
		}
	}
	all := make([]steps, len(groups))
	for g, group := range groups {
		best := 0
		row := sums[0][g*trials : (g+1)*trials]
		for c, v := range row {
			if v < row[best] {
				best = c
			}
		}
		top := point(first[g] - best/finePart)
		if best%finePart == 1 {
			top *= 1 / 1.0442737824274138 // half a point
		}
		all[g] = newSteps(group.Bits, float32(top*headroom[group.Bits]))
	}
	return all
}

// load returns the rows of tile i in order of visit.
func (a *arrangement) load(w []float32, out, i int) grid.Tile {
	row0, k := i*tileRows, len(a.cols)
	t := grid.NewTile(min(tileRows, out-row0), k)
	for r := range t.Rows {
		from := w[(row0+r)*k : (row0+r+1)*k]
		for pos, c := range a.cols {
			t.Data[pos*t.Rows+r] = from[c]
		}
	}
	return t
}

// tilePeaks returns the largest weight of every group in one tile.
func (a *arrangement) tilePeaks(w []float32, out, i int, groups []packing.EXL2Group) []float32 {
	t := a.load(w, out, i)
	peaks, pos := make([]float32, len(groups)), 0
	for g, group := range groups {
		for _, v := range t.Cut(pos, pos+group.Rows).Data {
			peaks[g] = max(peaks[g], v, -v)
		}
		pos += group.Rows
	}
	return peaks
}

// tileSums returns the summed error of one tile for every group and trial.
func (a *arrangement) tileSums(w []float32, out, i int, groups []packing.EXL2Group, first []int) []float64 {
	t := a.load(w, out, i)
	sums, pos := make([]float64, len(groups)*trials), 0
	tables := newTables(t.Rows)
	for g, group := range groups {
		tables.fill(t.Cut(pos, pos+group.Rows), a.weight[pos:pos+group.Rows], group.Bits)
		for c := range trials {
			at := float64(first[g]) - float64(c)/finePart
			sums[g*trials+c] = tables.best(at)
		}
		pos += group.Rows
	}
	return sums
}

// tables hold the error of every output of a tile over the grid of steps, for one group.
type tables struct {
	rows int
	top  []int       // grid point of the first entry
	err  [][]float32 // [tablePoint][rows]
	none []float32   // error when every weight is zero, the limit of large steps
	step []float32
	inv  []float32
}

func newTables(rows int) *tables {
	t := &tables{rows: rows, top: make([]int, rows), none: make([]float32, rows), step: make([]float32, rows), inv: make([]float32, rows)}
	for range tablePoint {
		t.err = append(t.err, make([]float32, rows))
	}
	return t
}

// fill tabulates Σ weight·(y − x)².
func (t *tables) fill(x grid.Tile, weight []float32, bits int) {
	peak := make([]float32, t.rows)
	clear(t.none)
	for k := range x.Cols {
		for r, v := range x.Col(k) {
			peak[r] = max(peak[r], v, -v)
			t.none[r] += float32(weight[k] * float32(v*v))
		}
	}
	for r, m := range peak {
		t.top[r] = position(max(reach(bits, m), 0x1p-40)) + 1
	}
	lo, hi := -float32(int(1)<<(bits-1)), float32(int(1)<<(bits-1)-1)
	for i, err := range t.err {
		for r, j := range t.top {
			t.step[r] = float32(point(j - i))
			t.inv[r] = 1 / t.step[r]
		}
		clear(err)
		for k := range x.Cols {
			im := weight[k]
			for r, v := range x.Col(k) {
				d := float32(t.step[r]*roundEven(min(max(v*t.inv[r], lo), hi))) - v
				err[r] += float32(im * float32(d*d))
			}
		}
	}
}

// best returns the summed error when the largest step lies at the given point and every output takes the best of its
// sixteen.
func (t *tables) best(at float64) float64 {
	sum := 0.0
	for r := range t.rows {
		least := t.none[r]
		for s := scaleCodes - 1; s >= 0; s-- {
			below := float64(t.top[r]) - at - codeOffset[s] // points below the table's first entry
			if below < 0 {
				continue // coarser than needed
			}
			i := int(below)
			if i >= tablePoint-1 {
				if s == scaleCodes-1 { // all steps are too fine: the output is clipped
					least = min(least, t.err[tablePoint-1][r]*float32(1+below-(tablePoint-1)))
				}
				break
			}
			f := float32(below - float64(i))
			e := t.err[i][r]
			least = min(least, e+float32(f*(t.err[i+1][r]-e)))
		}
		if float64(t.top[r])-at-codeOffset[0] < 0 { // even the finest step is coarse
			over := at + codeOffset[0] - float64(t.top[r])
			least = min(least, t.err[0][r]*float32(1+over))
		}
		sum += float64(least)
	}
	return sum
}
