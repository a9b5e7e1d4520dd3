package quant

import (
	"context"
	"fmt"
	"path"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/internal/testmodel"
	"github.com/llmquant/quantize/quant/gptq"
)

// timedGPTQ is GPTQ that notes the processor time of every linear, factorization included where it comes first.
type timedGPTQ struct {
	GPTQ
	spent map[string]time.Duration
}

func (r timedGPTQ) Round(ctx context.Context, m *Matrix, stats *Stats) (*packing.Linear, error) {
	before := cpuTime()
	defer func() { r.spent[path.Ext(m.Linear.Name)[1:]] += cpuTime() - before }()
	return r.GPTQ.Round(ctx, m, stats)
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r) // cannot fail for the process itself
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkGPTQBlock quantizes one block in the proportions of Llama-3-8B at a quarter of its width and reports
// processor time: of the whole run, and of each linear's solve. Its profile shows the share of the matrix kernels.
func BenchmarkGPTQBlock(b *testing.B) {
	c := testmodel.Llama()
	c.Layers, c.Hidden, c.Inter, c.Heads, c.KVHeads, c.HeadDim, c.Context = 1, 1024, 3584, 8, 2, 128, 512
	dir := writeModel(b, c)
	for _, effort := range []struct {
		name    string
		rounder GPTQ
	}{
		{"plain", GPTQ{Options: gptq.Plain(), Search: true, NoShift: true}},
		{"normal", GPTQ{Options: gptq.Normal(), Search: true}},
		{"best", GPTQ{Options: gptq.Best(), Search: true}},
	} {
		for _, dtype := range []string{"f32", "bf16"} {
			b.Run(effort.name+"/"+dtype, func(b *testing.B) {
				r := timedGPTQ{effort.rounder, map[string]time.Duration{}}
				recipe := NewGPTQ(packing.Scheme{Grid: "int", Bits: 4, GroupSize: 128, Sym: true}, "gptq", effort.rounder.Options)
				recipe.Rounder, recipe.BF16 = r, dtype == "bf16"
				benchmarkBlock(b, dir, c.Vocab, recipe, r.spent)
			})
		}
	}
}

func benchmarkBlock(b *testing.B, dir string, vocab int, recipe Recipe, spents map[string]time.Duration) {
	start := cpuTime()
	for b.Loop() {
		o := options(b)
		o.Calib, o.Force = windows(32, 512, vocab), true
		_, err := Run(context.Background(), openModel(b, dir), recipe, o)
		require.NoError(b, err)
	}
	b.ReportMetric((cpuTime()-start).Seconds()/float64(b.N), "cpu-s/op")
	for name, spent := range spents {
		b.ReportMetric(spent.Seconds()/float64(b.N), fmt.Sprintf("%s-cpu-s", name))
	}
}
