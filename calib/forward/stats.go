package forward

import (
	"slices"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/internal/kernel"
)

// Want is a set of statistics of an input.
type Want uint8

// The statistics. Sums are float64, in token order on the runner's grid.
const (
	WantAbsSum Want = 1 << iota // Σ|x| per channel (AWQ)
	WantSumSq                   // Σx² per channel (importance matrix)
	WantMaxAbs                  // max|x| per channel (SmoothQuant, static activation scales)
	WantGram                    // Σ xᵀx (GPTQ); width² float64
	WantRows                    // the inputs themselves, every Stride-th token
)

// Stat holds the statistics of one input group. Fields that were not wanted are nil.
type Stat struct {
	Width  int
	Tokens int64     // rows seen
	AbsSum []float64 // [Width]
	SumSq  []float64 // [Width]
	MaxAbs []float32 // [Width]
	Gram   []float64 // [Width, Width], lower triangle (kernel.SyrkAddF64)
	Rows   []float32 // [len(Kept), Width]
	Kept   []int64   // token of each kept row
	Stride int       // keeps tokens whose number is a multiple of Stride
}

// NewStat prepares the statistics in want for inputs of width channels.
func NewStat(width int, want Want, stride int) *Stat {
	s := &Stat{Width: width}
	if want&WantAbsSum != 0 {
		s.AbsSum = make([]float64, width)
	}
	if want&WantSumSq != 0 {
		s.SumSq = make([]float64, width)
	}
	if want&WantMaxAbs != 0 {
		s.MaxAbs = make([]float32, width)
	}
	if want&WantGram != 0 {
		s.Gram = make([]float64, width*width)
	}
	if want&WantRows != 0 {
		s.Stride = max(stride, 1)
	}
	return s
}

// Mean returns AbsSum or SumSq per token; zeros before the first token.
func (s *Stat) Mean(sum []float64) []float64 {
	mean := make([]float64, len(sum))
	for i, v := range sum {
		if s.Tokens > 0 {
			mean[i] = v / float64(s.Tokens)
		}
	}
	return mean
}

// Add takes the rows of one sample.
func (s *Stat) Add(p *kernel.Pool, in Sample) { s.add(&Products{Pool: p}, in) }

func (s *Stat) add(products *Products, in Sample) {
	p := products.Pool
	s.Tokens += int64(in.X.Rows)
	const columns = 256 // per task; every column is summed by one task, in token order
	if s.AbsSum != nil || s.SumSq != nil || s.MaxAbs != nil {
		p.Run((s.Width+columns-1)/columns, func(t int) {
			lo, hi := t*columns, min(s.Width, (t+1)*columns)
			s.addColumns(in.X.Slice(0, in.X.Rows, lo, hi), lo, hi)
		})
	}
	if s.Gram != nil {
		products.Gram(s.Gram, s.Width, in.X)
	}
	if s.Stride > 0 {
		s.keep(in)
	}
}

func (s *Stat) addColumns(x kernel.Mat, lo, hi int) {
	if s.AbsSum != nil {
		kernel.ColAbsSum(s.AbsSum[lo:hi], x)
	}
	if s.SumSq != nil {
		kernel.ColSumSq(s.SumSq[lo:hi], x)
	}
	if s.MaxAbs != nil {
		top := s.MaxAbs[lo:hi]
		for i := range x.Rows {
			for j, v := range x.Row(i) {
				top[j] = max(top[j], v, -v)
			}
		}
	}
}

func (s *Stat) keep(in Sample) {
	for i := range in.X.Rows {
		token := int64(in.First + i)
		if in.Tokens != nil {
			token = int64(in.First) + int64(in.Tokens[i])
		}
		if token%int64(s.Stride) == 0 {
			s.Rows = append(s.Rows, in.X.Row(i)...)
			s.Kept = append(s.Kept, token)
		}
	}
}

// Matrix returns the kept rows, [len(Kept), Width].
func (s *Stat) Matrix() kernel.Mat { return kernel.MatF32(len(s.Kept), s.Width, s.Rows) }

// Collector keeps one Stat per input group of a block.
type Collector struct {
	products Products
	inputs   []arch.Input
	stats    []*Stat // parallel to inputs; nil where nothing is wanted
}

// NewCollector prepares statistics for the inputs of b for which want is not zero. stride is that of WantRows.
func NewCollector(p *kernel.Pool, b *arch.Block, stride int, want func(arch.Input) Want) *Collector {
	c := &Collector{products: Products{Pool: p}, inputs: b.Inputs()}
	c.stats = make([]*Stat, len(c.inputs))
	for i, in := range c.inputs {
		if w := want(in); w != 0 {
			c.stats[i] = NewStat(in.Width, w, stride)
		}
	}
	return c
}

// UseBF16 makes the collector multiply inputs rounded to bfloat16.
func (c *Collector) UseBF16() { c.products.BF16 = true }

// Tap takes one sample; pass it to a Runner.
func (c *Collector) Tap(in Sample) {
	if s := c.Stat(in.Kind, in.Expert); s != nil {
		s.add(&c.products, in)
	}
}

// Stat returns the statistics of an input group, nil if none were wanted. An expert that no token was routed to has
// Tokens 0.
func (c *Collector) Stat(kind arch.InputKind, expert int) *Stat {
	i := slices.IndexFunc(c.inputs, func(in arch.Input) bool { return in.Kind == kind && in.Expert == expert })
	if i < 0 {
		return nil
	}
	return c.stats[i]
}
