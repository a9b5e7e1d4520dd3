package grid

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/grid/ggml"
)

// scalarTypes lists every ggml type that codes weights one by one.
func scalarTypes() []*ggml.Type {
	var all []*ggml.Type
	for _, t := range ggml.Types() {
		if _, ok := t.Scalar(); ok {
			all = append(all, t)
		}
	}
	return all
}

func newBlock(t *testing.T, typ *ggml.Type, in int) *Block {
	t.Helper()
	g, err := NewBlock(typ, in)
	require.NoError(t, err)
	return g
}

// What a reader decodes from the stored bytes is what Round promised, for every type.
func TestBlocksStoreWhatTheyRound(t *testing.T) {
	types := scalarTypes()
	require.Greater(t, len(types), 10)
	r := newRand(40)
	const out, in = 37, 512
	w := normal(r, out*in)
	for _, typ := range types {
		g := newBlock(t, typ, in)
		l := nearest(t, w, out, in, g, nil)
		tile := NewTile(out, in)
		tile.Load(w, in, 0)
		p, y, back, codes := make(Params, g.Width()*out), make([]float32, out), make([]float32, out), make([]uint8, out)
		rowBytes := len(l.Blocks) / out
		decoded := make([]float32, out*in)
		for n := range out {
			typ.DecodeRow(decoded[n*in:(n+1)*in], l.Blocks[n*rowBytes:(n+1)*rowBytes])
		}
		err := 0.0
		for col0 := 0; col0 < in; col0 += g.Span() {
			g.Fit(p, tile.Cut(col0, col0+g.Span()), nil)
			for k := range g.Span() {
				g.Round(p, k, tile.Col(col0+k), y, codes)
				g.Decode(p, k, codes, back)
				require.Equal(t, y, back, typ.Name)
				for n := range out {
					require.Equal(t, decoded[n*in+col0+k], y[n], "%s row %d column %d", typ.Name, n, col0+k)
					err += math.Pow(float64(y[n]-w[n*in+col0+k]), 2)
				}
			}
		}
		require.Less(t, err/(out*in*0.0004), 0.3, typ.Name) // even the coarsest keeps most of the variance
		require.NotEmpty(t, g.Name())
	}
}

func TestBlockRoundIsNearest(t *testing.T) {
	r := newRand(41)
	for _, typ := range scalarTypes() {
		g := newBlock(t, typ, 512)
		s, _ := typ.Scalar()
		w := NewTile(9, g.Span())
		copy(w.Data, normal(r, len(w.Data)))
		p := make(Params, g.Width()*9)
		g.Fit(p, w, nil)
		y, other, codes := make([]float32, 9), make([]float32, 9), make([]uint8, 9)
		for k := 0; k < g.Span(); k += 7 {
			g.Round(p, k, w.Col(k), y, codes)
			for c := range s.Levels {
				for i := range codes {
					codes[i] = uint8(c)
				}
				g.Decode(p, k, codes, other)
				for i, v := range w.Col(k) {
					require.LessOrEqual(t, abs32(v-y[i]), abs32(v-other[i])*1.00001+1e-9, "%s code %d", typ.Name, c)
				}
			}
		}
	}
}

// Proposals stay inside the type: packing them and reading them back gives the same parameters.
func TestBlockProposalsAreStorable(t *testing.T) {
	r := newRand(42)
	for _, typ := range scalarTypes() {
		g := newBlock(t, typ, 512)
		s, _ := typ.Scalar()
		const rows = 5
		w := NewTile(rows, g.Span())
		copy(w.Data, normal(r, len(w.Data)))
		p, out := make(Params, g.Width()*rows), make(Params, g.Width()*rows)
		g.Fit(p, w, nil)
		codes := make([]uint8, g.Span())
		for i := range codes {
			codes[i] = g.codes[i%len(g.codes)]
		}
		dst, back := make([]byte, typ.Bytes), make([]uint8, g.Span())
		for sub := range g.subs {
			count := 0
			for next := g.Propose(sub, w.Cut(sub*g.Sub(), (sub+1)*g.Sub()), nil); next(out, p); count++ {
				if count == 0 {
					require.Equal(t, p, out)
				}
				for i := range rows {
					q := g.stored(out, i, rows)
					s.Pack(dst, &q, codes)
					var again ggml.Params
					s.Unpack(&again, back, dst)
					x, y := make([]float32, g.Span()), make([]float32, g.Span())
					s.Decode(x, &q, codes)
					s.Decode(y, &again, back)
					require.Equal(t, x, y, "%s proposal %d", typ.Name, count)
				}
			}
			require.Greater(t, count, 2, typ.Name)
		}
	}
}

// blockProblem is newProblem for block types.
func blockProblem(g *Block, rows int, seed uint64) *problem {
	r := newRand(seed)
	cols := g.Span()
	pr := &problem{rows: rows, cols: cols, w: NewTile(rows, cols), q: NewTile(rows, cols), codes: make([]uint8, rows*cols), p: make(Params, g.Width()*rows)}
	copy(pr.w.Data, normal(r, rows*cols))
	pr.h = make([]float32, cols*cols)
	for i := range cols {
		for j := range cols {
			pr.h[i*cols+j] = float32(math.Pow(0.8, math.Abs(float64(i-j)))) * (1 + float32(i%5)) * (1 + float32(j%5))
		}
	}
	g.Fit(pr.p, pr.w, nil)
	for k := range cols {
		g.Round(pr.p, k, pr.w.Col(k), pr.q.Col(k), pr.codes[k*rows:(k+1)*rows])
	}
	return pr
}

// Refit never raises the error of a row, improves most rows, and ends where no single step of a parameter helps.
func TestBlockRefit(t *testing.T) {
	for _, typ := range scalarTypes() {
		g := newBlock(t, typ, 512)
		const rows = 2
		pr := blockProblem(g, rows, 43)
		before := make([]float64, rows)
		for i := range before {
			before[i] = pr.loss(pr.q, i)
		}
		improved := false
		for range 30 {
			changed := g.Refit(pr.p, pr.codes, pr.residual(), pr.h)
			pr.q = pr.decoded(g, pr.p)
			for i := range before {
				now := pr.loss(pr.q, i)
				require.LessOrEqual(t, now, before[i]*(1+1e-4), "%s row %d", typ.Name, i)
				improved = improved || now < before[i]*0.999
				before[i] = now
			}
			if !changed {
				break
			}
		}
		if typ.Name != "MXFP4" { // whole octaves: the fit is often the best already
			require.True(t, improved, typ.Name)
		}
		if g.subs == 1 {
			continue
		}
		for sub := range g.subs { // no neighbouring sub-scale is better
			for _, u := range []float32{-1, 1} {
				trial := append(Params(nil), pr.p...)
				for i := range rows {
					at := (2+sub)*rows + i
					trial[at] = g.clampScale(trial[at] + u)
				}
				q := pr.decoded(g, trial)
				for i := range rows {
					require.GreaterOrEqual(t, pr.loss(q, i), before[i]*(1-2e-3), "%s sub-block %d", typ.Name, sub)
				}
			}
		}
	}
}

// Blocks of zeros are legal everywhere and stay zeros.
func TestZeroBlocks(t *testing.T) {
	for _, typ := range scalarTypes() {
		g := newBlock(t, typ, 512)
		l, err := RoundNearest(context.Background(), kernel.NewPool(2), make([]float32, 3*512), 3, 512, g, nil)
		require.NoError(t, err)
		row := make([]float32, 512)
		typ.DecodeRow(row, l.Blocks[:len(l.Blocks)/3])
		for _, v := range row {
			require.Zero(t, v, typ.Name)
		}
		p, out := make(Params, g.Width()*2), make(Params, g.Width()*2)
		w := NewTile(2, g.Span())
		g.Fit(p, w, nil)
		for next := g.Propose(0, w.Cut(0, g.Sub()), nil); next(out, p); {
			for _, v := range out {
				require.False(t, v-v != 0, typ.Name)
			}
		}
		h := make([]float32, g.Span()*g.Span())
		require.False(t, g.Refit(p, make([]uint8, 2*g.Span()), NewTile(2, g.Span()), h), typ.Name)
	}
}

func TestNewBlockRefuses(t *testing.T) {
	q4, _ := ggml.ByName("Q4_K")
	for _, in := range []int{0, -256, 100} {
		_, err := NewBlock(q4, in)
		require.ErrorIs(t, err, safeio.ErrUnsupported)
	}
	iq, _ := ggml.ByName("IQ2_XXS")
	_, err := NewBlock(iq, 256)
	require.ErrorIs(t, err, safeio.ErrUnsupported)
}
