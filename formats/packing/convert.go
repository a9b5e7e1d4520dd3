package packing

import (
	"slices"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// Convert returns the same weight, number for number, in the form that layout to can pack. l is not changed; the
// result may share its slices. A weight that the layout cannot hold exactly is refused with the reason.
func Convert(l *Linear, to *Layout) (*Linear, error) {
	if to.adapt == nil || to.Pack == nil {
		return nil, safeio.Unsupportedf("layout %s is read only", to.Name)
	}
	if l.Grid == "exl2" && to.Name != "exl2" {
		return nil, safeio.Unsupportedf("groups of mixed bit widths in activation order cannot be stored as %s without rounding again; convert to a dense type", to.Name)
	}
	c := *l
	if err := to.adapt(&c); err != nil {
		return nil, err
	}
	return &c, to.Check(c.Scheme, c.Out, c.In)
}

// adaptAWQ: natural order, positive F16 scales, zero points spelled out (loaders insist on zero_point: true).
func adaptAWQ(l *Linear) error {
	if err := l.needNaturalOrder(); err != nil {
		return err
	}
	l.PositiveScales()
	l.Sym = false
	return l.SetScaleType(tensor.F16)
}

// adaptGPTQ: F16 scales; centred zero points make a symmetric weight, which is what servers accept.
func adaptGPTQ(bias uint8) func(*Linear) error {
	return func(l *Linear) error {
		l.normalizeZeros()
		if err := gptqCheckZeros(l, bias, l.Groups(l.In)); err != nil {
			return err
		}
		return l.SetScaleType(tensor.F16)
	}
}

// adaptCT keeps the type of the scales: the library stores any of them.
func adaptCT(l *Linear) error {
	l.normalizeZeros()
	return l.needNaturalOrder()
}

// normalizeZeros makes Sym and Zeros agree on whether every zero point is centred.
func (l *Linear) normalizeZeros() {
	l.dropCentredZeros()
	l.Sym = l.Zeros == nil
}

// SetScaleType declares the stored type of the scales, which must hold every one of them exactly (BF16 scales fit
// F16 unless they are tiny or huge; F16 scales rarely fit BF16).
func (l *Linear) SetScaleType(d tensor.DType) error {
	if err := checkScales(l.Scales, d, l.Groups(l.In)); err != nil {
		return err
	}
	l.ScaleType = d
	return nil
}

// PositiveScales mirrors the groups whose scale is negative: s·(q − z) = (−s)·((M−q) − (M−z)) with M = 2^bits − 1.
// AutoRound writes such scales; mirrored centred zero points become 2^(bits-1) − 1, so the weight turns asymmetric.
func (l *Linear) PositiveScales() {
	if !slices.ContainsFunc(l.Scales, func(s float32) bool { return s < 0 }) {
		return
	}
	groups, top := l.Groups(l.In), uint8(1<<l.Bits-1)
	scales, codes := slices.Clone(l.Scales), slices.Clone(l.Codes)
	zeros := make([]float32, len(scales))
	for i, s := range scales {
		zeros[i] = float32(l.zeroAt(i))
		if s < 0 {
			scales[i], zeros[i] = -s, float32(top-l.zeroAt(i))
		}
	}
	for n := range l.Out {
		row := codes[n*l.In : (n+1)*l.In]
		for k := range row {
			if l.Scales[n*groups+l.group(k)] < 0 {
				row[k] = top - row[k]
			}
		}
	}
	l.Scales, l.Zeros, l.Codes, l.Sym = scales, zeros, codes, false
}

// SplitGroups repeats parameters so that groups become size columns: exact, needed where an engine lacks a kernel
// for a large group or for whole rows. The old size must be a multiple of the new one.
func (l *Linear) SplitGroups(size int) error {
	old := l.GroupSize
	if old <= 0 {
		old = l.In
	}
	if size < 1 || old%size != 0 || l.GIdx != nil {
		return safeio.Unsupportedf("groups of %d cannot be split into groups of %d", old, size)
	}
	l.Scales = repeatEach(l.Scales, old/size)
	if l.Zeros != nil {
		l.Zeros = repeatEach(l.Zeros, old/size)
	}
	l.GroupSize = size
	return nil
}

func repeatEach(v []float32, times int) []float32 {
	r := make([]float32, 0, len(v)*times)
	for _, x := range v {
		for range times {
			r = append(r, x)
		}
	}
	return r
}
