package exl2

import (
	"bufio"
	"context"
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safetensors"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant/gptq"
	"github.com/llmquant/quantize/quant/grid"
)

// golm is the small trained model of the test data.
type golm struct {
	testing.TB
	src   *safetensors.File
	model *arch.Model
	pool  *kernel.Pool
}

const (
	testData = "../../testdata/"
	seqLen   = 256
)

func openGolm(t testing.TB) *golm {
	t.Helper()
	src, err := safetensors.Open(testData+"golm-llama/model.safetensors", safeio.DefaultLimits())
	require.NoError(t, err)
	t.Cleanup(func() { src.Close() })
	config, err := os.ReadFile(testData + "golm-llama/config.json")
	require.NoError(t, err)
	m, err := arch.Resolve(config, src)
	require.NoError(t, err)
	return &golm{t, src, m, kernel.NewPool(2)}
}

// tokens reads whole windows of token ids.
func (g *golm) tokens(file string, windows int) []int32 {
	f, err := os.Open(testData + "data/" + file)
	require.NoError(g, err)
	defer f.Close()
	var ids []int32
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() && len(ids) < windows*seqLen {
		var row struct {
			IDs []int32 `json:"input_ids"`
		}
		require.NoError(g, json.Unmarshal(lines.Bytes(), &row))
		ids = append(ids, row.IDs...)
	}
	require.NoError(g, lines.Err())
	require.GreaterOrEqual(g, len(ids), windows*seqLen)
	return ids[:windows*seqLen]
}

func (g *golm) embed(ids []int32) (*forward.Runner, kernel.Mat) {
	run := forward.NewRunner(g.model, g.pool, len(ids)/seqLen, seqLen)
	h := kernel.MatF32(len(ids), g.model.Hidden, make([]float32, len(ids)*g.model.Hidden))
	require.NoError(g, run.Embed(h, ids, g.src))
	return run, h
}

func (g *golm) block(layer int) *forward.Block {
	b, err := forward.Load(g.src, g.model, layer, forward.LoadOptions{})
	require.NoError(g, err)
	return b
}

func (g *golm) head() *forward.Head {
	h, err := forward.LoadHead(g.src, g.model, forward.LoadOptions{})
	require.NoError(g, err)
	return h
}

func (g *golm) weight(l *arch.Linear) []float32 {
	info, ok := g.src.Lookup(l.Weight())
	require.True(g, ok)
	n, _ := info.Bytes()
	raw, w := make([]byte, n), make([]float32, l.Out*l.In)
	require.NoError(g, g.src.ReadTensor(l.Weight(), raw, 0))
	require.NoError(g, tensor.ToFloat32(w, info.DType, raw))
	return w
}

// gram returns the average of x xᵀ at an input.
func (g *golm) gram(c *forward.Collector, in arch.Input) []float64 {
	st := c.Stat(in.Kind, in.Expert)
	kernel.Symmetrize(g.pool, st.Gram, st.Width)
	for i := range st.Gram {
		st.Gram[i] /= float64(st.Tokens)
	}
	return st.Gram
}

// measure is the measuring pass of a program that uses this package.
func (g *golm) measure(calib []int32, probeTokens int) []Slot {
	ctx := context.Background()
	run, hidden := g.embed(calib)
	probeRun, probeHidden := g.embed(calib[:probeTokens])
	probes := NewProbes(probeRun, probeHidden, true)
	var all []Slot
	for layer := range g.model.Blocks {
		b := g.block(layer)
		c := forward.NewCollector(g.pool, b.Arch, 1, func(arch.Input) forward.Want { return forward.WantGram })
		require.NoError(g, run.Forward(ctx, b, hidden, c.Tap))
		var changed []Changed
		for _, in := range b.Arch.Inputs() {
			p, err := Prepare(g.pool, in.Width, g.gram(c, in), Best())
			require.NoError(g, err)
			var ws []Matrix
			for _, l := range in.Linears {
				ws = append(ws, Matrix{g.weight(l), l.Out})
			}
			cands, err := Candidates(in.Width)
			require.NoError(g, err)
			results, err := p.Measure(ctx, g.pool, ws, cands)
			require.NoError(g, err)
			for i, l := range in.Linears {
				s, err := NewSlot(l.Name, []Module{{l.Name, l.Out, l.In}}, results[i:i+1], nil)
				require.NoError(g, err)
				all = append(all, s)
				values, e, err := p.Probe(ctx, g.pool, ws[i])
				require.NoError(g, err)
				alt := *b
				alt.Linear(l).W = kernel.MatF32(l.Out, l.In, values)
				changed = append(changed, Changed{l.Name, e, &alt})
			}
		}
		require.NoError(g, probes.Block(ctx, b, changed))
	}
	found, err := probes.Finish(ctx, g.head())
	require.NoError(g, err)
	SetSensitivities(all, found)
	return all
}

// quantize rounds the model block by block, input by input, with statistics behind the part that is quantized already and
// beside the original, and returns KL(original ‖ quantized) on the evaluation text and the stored bits per weight.
func (g *golm) quantize(calib, eval []int32, round func(l *arch.Linear, w []float32, st *gptq.Stats) (*packing.Linear, int64)) (kl, bpw float64) {
	ctx := context.Background()
	run, hidden := g.embed(calib)
	full := copied(hidden)
	evalRun, base := g.embed(eval)
	changed := copied(base)
	var bits, weights int64
	for layer := range g.model.Blocks {
		b := g.block(layer)
		original := *b
		for _, in := range b.Arch.Inputs() {
			st := g.stats(run, &original, b, full, hidden, in)
			for _, l := range in.Linears {
				q, n := round(l, g.weight(l), st)
				values := make([]float32, l.Out*l.In)
				require.NoError(g, q.Dequantize(values, 0, l.Out))
				b.Linear(l).W = kernel.MatF32(l.Out, l.In, values)
				bits += n
				weights += int64(l.Out * l.In)
			}
		}
		require.NoError(g, run.Forward(ctx, b, hidden, nil))
		require.NoError(g, run.Forward(ctx, &original, full, nil))
		require.NoError(g, evalRun.Forward(ctx, b, changed, nil))
		require.NoError(g, evalRun.Forward(ctx, &original, base, nil))
	}
	scores, err := evalRun.Compare(ctx, g.head(), g.head(), base, changed, make([]int32, len(eval)))
	require.NoError(g, err)
	for _, s := range scores {
		kl += s.KL / float64(len(scores))
	}
	return kl, float64(bits) / float64(weights)
}

// stats gathers the statistics of one input of a block in both models, the first half of the windows apart.
func (g *golm) stats(run *forward.Runner, original, b *forward.Block, full, hidden kernel.Mat, in arch.Input) *gptq.Stats {
	ctx := context.Background()
	rowsOf := func(b *forward.Block, h kernel.Mat) kernel.Mat {
		var rows []float32
		require.NoError(g, run.Collect(ctx, b, h, forward.Selection{Last: in.Kind}, func(s forward.Sample) {
			for i := 0; s.Kind == in.Kind && i < s.X.Rows; i++ {
				rows = append(rows, s.X.Row(i)...)
			}
		}))
		return kernel.MatF32(h.Rows, in.Width, rows)
	}
	x, xf := rowsOf(b, hidden), rowsOf(original, full)
	product := func(a, x kernel.Mat, lo, hi int) []float64 {
		p, sum := kernel.MatF32(a.Cols, x.Cols, make([]float32, a.Cols*x.Cols)), make([]float64, a.Cols*x.Cols)
		kernel.GemmTN(g.pool, p, a.Slice(lo, hi, 0, a.Cols), x.Slice(lo, hi, 0, x.Cols), false)
		for i, v := range p.F32 {
			sum[i] = float64(v) / float64(hi-lo)
		}
		return sum
	}
	less := func(a, b kernel.Mat) kernel.Mat {
		d := copied(a)
		kernel.AddScaled(d.F32, b.F32, -1)
		return d
	}
	d, n := less(xf, x), x.Rows
	st := &gptq.Stats{K: in.Width, H: product(x, x, 0, n), D: single(product(d, x, 0, n)),
		Half: &gptq.Half{H: product(x, x, 0, n/2), D: single(product(d, x, 0, n/2)), Weight: 0.5}}
	if in.Kind == arch.OIn || in.Kind == arch.DownIn {
		r, rf := copied(hidden), copied(full)
		if in.Kind == arch.DownIn {
			require.NoError(g, run.ForwardAttn(ctx, b, r, nil))
			require.NoError(g, run.ForwardAttn(ctx, original, rf, nil))
		}
		strayed := less(rf, r)
		st.Drift, st.HalfDrift = single(product(strayed, x, 0, n)), single(product(strayed, x, 0, n/2))
	}
	return st
}

// The errors of a part of the outputs stand for those of all, and do not depend on the number of threads.
func TestMeasure(t *testing.T) {
	g := openGolm(t)
	ctx := context.Background()
	run, hidden := g.embed(g.tokens("golm-calib-ids.jsonl", 8))
	b := g.block(0)
	c := forward.NewCollector(g.pool, b.Arch, 1, func(arch.Input) forward.Want { return forward.WantGram })
	require.NoError(t, run.Forward(ctx, b, hidden, c.Tap))
	in := b.Arch.Inputs()[2] // of gate and up, 768 outputs
	h := g.gram(c, in)
	var ws []Matrix
	for _, l := range in.Linears {
		ws = append(ws, Matrix{g.weight(l), l.Out})
	}
	cands := []Candidate{mustCandidate(t, "4 g128"), mustCandidate(t, "3/2 50/50 g64"), mustCandidate(t, "6 g32"), mustCandidate(t, "3 g32")}
	var want [][]Measured
	for threads := 1; threads <= 3; threads++ {
		got, err := prepared(t, in.Width, h, Best()).Measure(ctx, kernel.NewPool(threads), ws, cands)
		require.NoError(t, err)
		if want == nil {
			want = got
		}
		require.Equal(t, want, got)
	}
	for i, m := range ws {
		for j, c := range cands {
			require.Equal(t, c.Bits(m.Out, in.Width), want[i][j].Bits)
			require.Equal(t, c, want[i][j].Candidate)
			p := prepared(t, in.Width, h, Options{Damp: 0.01, Passes: 1, Inner: 2})
			_, rep, err := p.Quantize(ctx, g.pool, m.W, m.Out, c.Groups(in.Width))
			require.NoError(t, err)
			require.InEpsilon(t, rep.Loss/rep.Power, want[i][j].Error, 0.1, "%s %v", in.Linears[i].Name, c)
		}
	}
	_, err := prepared(t, in.Width, h, Best()).Measure(ctx, nil, ws, nil)
	require.Error(t, err)
}

// What a probe finds is proportional to the error it makes, so one is enough.
func TestProbes(t *testing.T) {
	g := openGolm(t)
	ctx := context.Background()
	run, hidden := g.embed(g.tokens("golm-calib-ids.jsonl", 2))
	through, short := NewProbes(run, hidden, true), NewProbes(run, hidden, false)
	for layer := range g.model.Blocks {
		if layer == 2 { // as a run that was interrupted here
			again := NewProbes(run, hidden, true)
			again.Restore(through.Found())
			for i, m := range through.Hidden() {
				copy(again.Hidden()[i].F32, m.F32)
			}
			through = again
		}
		b := g.block(layer)
		var changed []Changed
		for _, bits := range []string{"3 g128", "4 g128", "6 g32"} {
			for _, l := range []*arch.Linear{&b.Arch.V, &b.Arch.Down} {
				if layer%2 == 1 {
					continue
				}
				q, rep := quantized(t, prepared(t, l.In, nil, Best()), g.weight(l), l.Out, bits)
				values := make([]float32, l.Out*l.In)
				require.NoError(t, q.Dequantize(values, 0, l.Out))
				alt := *b
				alt.Linear(l).W = kernel.MatF32(l.Out, l.In, values)
				changed = append(changed, Changed{l.Name, rep.Loss / rep.Power, &alt})
			}
		}
		require.NoError(t, through.Block(ctx, b, changed))
		require.NoError(t, short.Block(ctx, b, changed))
	}
	found, err := through.Finish(ctx, g.head())
	require.NoError(t, err)
	behindBlocks, err := short.Finish(ctx, nil)
	require.NoError(t, err)
	require.Len(t, found, 12)
	per := map[string]Sensitivity{}
	for i, f := range found {
		require.Equal(t, f.BlockError, behindBlocks[i].BlockError)
		require.Zero(t, behindBlocks[i].KL)
		t.Logf("%s error %.3g: block %.3g, KL %.3g", f.Name, f.Error, f.BlockError/f.Error, f.KL/f.Error)
		if first, ok := per[f.Name]; ok {
			require.InEpsilon(t, first.KL/first.Error, f.KL/f.Error, 0.5)
			require.InEpsilon(t, first.BlockError/first.Error, f.BlockError/f.Error, 0.5)
		} else {
			per[f.Name] = f
		}
	}
	require.EqualValues(t, 13*512*64*4, ProbeBytes(12, 512, 64))
}

// TestGolm holds whole quantizations against uniform GPTQ with the best options that this project has, at equal stored
// bits, both with shifted targets: the divergence of the predictions is at least a fifth less, targets are met within half
// a percent.
func TestGolm(t *testing.T) {
	if os.Getenv("QUANTIZE_LONG") == "" {
		t.Skip("set QUANTIZE_LONG=1: takes minutes")
	}
	g := openGolm(t)
	calib, eval := g.tokens("golm-calib-ids.jsonl", 64), g.tokens("golm-eval-ids.jsonl", 48)
	slots := g.measure(calib, 16*seqLen)
	last := math.Inf(1)
	for _, target := range []float64{2.5, 3, 3.125, 4, 4.125, 5, 5.125, 6} {
		c, err := Optimize(slots, target)
		require.NoError(t, err)
		kl, bpw := g.quantize(calib, eval, func(l *arch.Linear, w []float32, st *gptq.Stats) (*packing.Linear, int64) {
			p, err := Prepare(g.pool, l.In, st.H, Best())
			require.NoError(t, err)
			groups := c.Modules[l.Name].Groups(l.In)
			target, _, err := p.Target(context.Background(), g.pool, st, w, l.Out, groups)
			require.NoError(t, err)
			q, rep, err := p.Quantize(context.Background(), g.pool, target, l.Out, groups)
			require.NoError(t, err)
			return q, rep.Bits
		})
		t.Logf("EXL2 at %.3f bits per weight: reached %.4f, KL %.5f, predicted %.5f", target, bpw, kl, c.Predicted)
		require.InDelta(t, c.Reached, bpw, 1e-9)
		require.InEpsilon(t, target, bpw, 0.005)
		require.Less(t, kl, last)
		last = kl
		if bits := int(target); target == float64(bits)+0.125 {
			other, stored := g.gptq(calib, eval, bits)
			t.Logf("GPTQ with %d bits in groups of 128: %.4f bits per weight, KL %.5f", bits, stored, other)
			require.GreaterOrEqual(t, stored, bpw)
			require.Less(t, kl, 0.8*other)
		}
	}
}

// gptq quantizes with symmetric integers in groups of 128.
func (g *golm) gptq(calib, eval []int32, bits int) (kl, bpw float64) {
	s := packing.Scheme{Grid: "int", Bits: bits, GroupSize: 128, Sym: true, ScaleType: tensor.F16}
	return g.quantize(calib, eval, func(l *arch.Linear, w []float32, st *gptq.Stats) (*packing.Linear, int64) {
		ints, err := grid.NewInt(s, l.In, grid.IntOptions{Search: true})
		require.NoError(g, err)
		problem := gptq.Problem{W: w, Out: l.Out, Stats: st, Grid: ints}
		q, _, err := gptq.Solve(context.Background(), g.pool, problem, gptq.Best())
		require.NoError(g, err)
		return q, int64(l.Out*l.In*bits + l.Out*l.In/128*16)
	})
}
