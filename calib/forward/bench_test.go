package forward

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/internal/kernel"
)

// shapedBlock makes one block of a model shape with random BF16 weights.
func shapedBlock(hidden, inter, heads, kvHeads, headDim, experts, topK int) *Block {
	rng := rand.New(rand.NewPCG(1, 1))
	m := &arch.Model{Hidden: hidden, Vocab: 1, Heads: heads, KVHeads: kvHeads, HeadDim: headDim, Eps: 1e-5}
	m.Rope = arch.Rope{Type: "default", Dim: headDim, AttentionScale: 1, InvFreq: make([]float64, headDim/2)}
	for i := range m.Rope.InvFreq {
		m.Rope.InvFreq[i] = 1 / float64(1+i*i)
	}
	ones := make([]float32, hidden)
	for i := range ones {
		ones[i] = 1
	}
	linear := func(out, in int) Linear {
		w := make([]uint16, out*in)
		for i := range w {
			w[i] = 0x3c00 | uint16(rng.Uint32())&0x807f // ±0.008 … 0.016
		}
		return Linear{Info: &arch.Linear{Out: out, In: in, Expert: -1}, W: kernel.MatU16(kernel.BF16, out, in, w)}
	}
	b := &Block{Arch: &arch.Block{HeadDim: headDim}, Model: m, AttnNorm: ones, MLPNorm: ones}
	q, kv := heads*headDim, kvHeads*headDim
	b.Q, b.K, b.V, b.O = linear(q, hidden), linear(kv, hidden), linear(kv, hidden), linear(hidden, q)
	b.Arch.Down.In = inter
	if experts == 0 {
		b.MLP = MLP{linear(inter, hidden), linear(inter, hidden), linear(hidden, inter)}
	} else {
		b.Arch.MoE = &arch.MoE{TopK: topK, NormTopK: true, Experts: make([]arch.Expert, experts)}
		b.Router = linear(experts, hidden)
		for e := range experts {
			b.Arch.MoE.Experts[e].Down.In = inter
			b.Experts = append(b.Experts, MLP{linear(inter, hidden), linear(inter, hidden), linear(hidden, inter)})
		}
	}
	m.Blocks = []arch.Block{*b.Arch}
	return b
}

// flops counts the multiplications and additions of the block's matrix products per token, without attention scores.
func flops(b *Block, topK int) float64 {
	n := 0.0
	add := func(l Linear, times int) { n += 2 * float64(times) * float64(l.W.Rows) * float64(l.W.Cols) }
	for _, l := range []Linear{b.Q, b.K, b.V, b.O, b.Gate, b.Up, b.Down, b.Router} {
		add(l, 1)
	}
	if topK > 0 {
		for _, l := range []Linear{b.Experts[0].Gate, b.Experts[0].Up, b.Experts[0].Down} {
			add(l, topK)
		}
	}
	return n
}

// BenchmarkBlock runs whole blocks of known model shapes; BenchmarkProducts runs only their matrix products on the
// same number of rows. The quotient of the two rates is the share of time that does useful work.
func BenchmarkBlock(b *testing.B) {
	for _, c := range []struct {
		name                                        string
		hidden, inter, heads, kv, dim, experts, top int
		windows, seq                                int
	}{
		{"Llama-3-8B/512", 4096, 14336, 32, 8, 128, 0, 0, 2, 512},
		{"Llama-3-8B/2048", 4096, 14336, 32, 8, 128, 0, 0, 1, 2048},
		{"Qwen2.5-0.5B/512", 896, 4864, 14, 2, 64, 0, 0, 8, 512},
		{"Qwen3-30B-A3B/512", 2048, 768, 32, 4, 128, 128, 8, 16, 512},
	} {
		b.Run(c.name, func(b *testing.B) {
			pool := kernel.NewPool(runtime.GOMAXPROCS(0))
			block := shapedBlock(c.hidden, c.inter, c.heads, c.kv, c.dim, c.experts, c.top)
			tokens := c.windows * c.seq
			r := NewRunner(block.Model, pool, c.windows, c.seq)
			x := randomHidden(block.Model, tokens, 1)
			start := cpuSeconds()
			for b.Loop() {
				if err := r.Forward(context.Background(), block, clone(x), nil); err != nil {
					b.Fatal(err)
				}
			}
			report(b, start, flops(block, c.top)*float64(tokens))
		})
	}
}

func BenchmarkProducts(b *testing.B) {
	pool := kernel.NewPool(runtime.GOMAXPROCS(0))
	block := shapedBlock(4096, 14336, 32, 8, 128, 0, 0)
	const tokens = 1024
	y := make([]float32, tokens*14336)
	x := make([]float32, tokens*14336)
	for i := range x {
		x[i] = float32(i%7) - 3
	}
	start := cpuSeconds()
	for b.Loop() {
		for _, l := range []Linear{block.Q, block.K, block.V, block.O, block.Gate, block.Up, block.Down} {
			in, out := l.W.Cols, l.W.Rows
			kernel.GemmNT(pool, kernel.MatF32(tokens, out, y[:tokens*out]), kernel.MatF32(tokens, in, x[:tokens*in]), l.W, false)
		}
	}
	report(b, start, flops(block, 0)*tokens)
}

// report gives the rate by the clock and per second of processor time.
func report(b *testing.B, start, flops float64) {
	work := flops * float64(b.N) / 1e9
	b.ReportMetric(work/b.Elapsed().Seconds(), "GFLOP/s")
	b.ReportMetric(work/(cpuSeconds()-start), "GFLOP/cpu-s")
}
