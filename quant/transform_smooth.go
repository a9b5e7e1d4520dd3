package quant

import (
	"context"
	"math"

	"github.com/llmquant/quantize/formats/arch"
)

// Smooth moves outlier channels of the activations into the weights: s = max|x|^Alpha / max|w|^(1−Alpha) per channel of
// each norm's output (Xiao et al., SmoothQuant, 2211.10438). Channels that were always zero keep s = 1.
type Smooth struct{ Alpha float64 } // 0: 0.5

// Name implements Transform.
func (Smooth) Name() string { return "smooth" }

// Needs implements Transform.
func (Smooth) Needs() Need { return NeedMaxAbs | NeedModules }

// Apply implements Transform.
func (t Smooth) Apply(ctx context.Context, l *Layer) error {
	pairs := l.pairs()
	for i := range pairs {
		p := &pairs[i]
		st := l.Stats(p.Input, p.Expert)
		if p.Norm == "" || st == nil || st.Tokens == 0 {
			continue
		}
		s := t.scales(l, p, st.MaxAbs)
		l.legal(p, s)
		l.fold(p, s)
	}
	return ctx.Err()
}

// The bounds of a smoothing scale, as in ModelOpt: beyond them 16-bit norms lose their channels.
const minSmooth, maxSmooth = 1e-4, 1e4

func (t Smooth) scales(l *Layer, p *arch.Pair, xmax []float32) []float32 {
	alpha := t.Alpha
	if alpha == 0 {
		alpha = 0.5
	}
	wmax := make([]float32, len(xmax))
	for _, lin := range p.Linears {
		w := l.Weights(lin)
		for n := range lin.Out {
			for k, v := range w[n*lin.In : (n+1)*lin.In] {
				wmax[k] = max(wmax[k], v, -v)
			}
		}
	}
	s := make([]float32, len(xmax))
	for k := range s {
		s[k] = 1
		if xmax[k] > 0 {
			v := power(float64(xmax[k]), alpha) / power(math.Max(float64(wmax[k]), 1e-5), 1-alpha)
			s[k] = float32(math.Min(math.Max(v, minSmooth), maxSmooth))
		}
	}
	return s
}
