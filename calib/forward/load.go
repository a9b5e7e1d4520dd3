package forward

import (
	"fmt"
	"math"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/internal/kernel"
)

// NonFinitePolicy says what to do with a NaN or an infinity among the weights.
type NonFinitePolicy uint8

// The policies.
const (
	NonFiniteError NonFinitePolicy = iota // refuse the tensor
	NonFiniteZero                         // replace by zero and report
)

// NonFinite reports the NaN and infinite values of one tensor.
type NonFinite struct {
	Tensor string
	Count  int64
	First  []int64 // index of the first one, one number per dimension
}

func (n NonFinite) String() string {
	return fmt.Sprintf("%s: %d NaN or infinite values, the first at %v", n.Tensor, n.Count, n.First)
}

// LoadOptions configure Load and LoadHead. The zero value is strict, single-threaded and loads everything.
type LoadOptions struct {
	Pool      *kernel.Pool
	NonFinite NonFinitePolicy
	// LazyExperts leaves experts on disk: Block.Fetch reads one whenever it is needed.
	LazyExperts bool
}

// Load reads the weights of one layer. m must have been resolved against src. Tensors of 16-bit floats stay so,
// others become float32. Under NonFiniteError the error of class safeio.ErrCorrupt names tensor, count and first index.
func Load(src tensor.Source, m *arch.Model, layer int, o LoadOptions) (*Block, error) {
	a := &m.Blocks[layer]
	b := &Block{Arch: a, Model: m}
	r := reader{src: src, o: o}
	b.AttnNorm = r.vector(a.AttnNorm)
	b.MLPNorm = r.vector(a.MLPNorm)
	if a.QNorm != "" {
		b.QNorm, b.KNorm = r.vector(a.QNorm), r.vector(a.KNorm)
	}
	b.Q, b.K, b.V, b.O = r.linear(&a.Q), r.linear(&a.K), r.linear(&a.V), r.linear(&a.O)
	if a.MoE == nil {
		b.MLP = r.mlp(&a.Gate, &a.Up, &a.Down)
	} else {
		b.Router = r.linear(&a.MoE.Router)
		b.Experts = make([]MLP, len(a.MoE.Experts))
		fetch := func(r *reader, i int) MLP {
			e := &a.MoE.Experts[i]
			return r.mlp(&e.Gate, &e.Up, &e.Down)
		}
		for i := 0; i < len(b.Experts) && !o.LazyExperts; i++ {
			b.Experts[i] = fetch(&r, i)
		}
		if o.LazyExperts {
			b.Fetch = func(i int) (MLP, error) {
				r := reader{src: src, o: o}
				e := fetch(&r, i)
				return e, r.err
			}
		}
	}
	b.Findings = r.found
	return b, r.err
}

// reader loads tensors; the first error sticks.
type reader struct {
	src   tensor.Source
	o     LoadOptions
	found []NonFinite
	err   error
}

func (r *reader) mlp(gate, up, down *arch.Linear) MLP {
	return MLP{Gate: r.linear(gate), Up: r.linear(up), Down: r.linear(down)}
}

func (r *reader) linear(info *arch.Linear) Linear {
	l := Linear{Info: info, W: r.matrix(info.Weight())}
	if info.Bias {
		l.Bias = r.vector(info.Name + ".bias")
	}
	return l
}

// vector reads a tensor of one dimension as float32.
func (r *reader) vector(name string) []float32 {
	w := r.matrix(name)
	if w.Kind == kernel.F32 {
		return w.F32
	}
	v := make([]float32, len(w.U16))
	kernel.Widen(v, w.U16, w.Kind)
	return v
}

// matrix reads a tensor of one or two dimensions; one dimension counts as one row.
func (r *reader) matrix(name string) kernel.Mat {
	if r.err != nil {
		return kernel.Mat{}
	}
	info, ok := r.src.Lookup(name)
	if !ok || len(info.Shape) == 0 || len(info.Shape) > 2 {
		r.fail(name, safeio.Corruptf("missing, or not a matrix"))
		return kernel.Mat{}
	}
	if size, ok := info.Bytes(); !ok || size > math.MaxInt/2 { // matters on 32-bit machines
		r.fail(name, safeio.Limitf("too large for this machine's addresses"))
		return kernel.Mat{}
	}
	rows, cols := 1, int(info.Shape[len(info.Shape)-1])
	if len(info.Shape) == 2 {
		rows = int(info.Shape[0])
	}
	w, bad, err := readMatrix(r.src, info, rows, cols, r.o)
	if err != nil {
		r.fail(name, err)
		return kernel.Mat{}
	}
	if bad.count > 0 {
		n := NonFinite{Tensor: name, Count: bad.count, First: []int64{bad.first}}
		if len(info.Shape) == 2 {
			n.First = []int64{bad.first / int64(cols), bad.first % int64(cols)}
		}
		if r.o.NonFinite == NonFiniteError {
			r.fail(name, safeio.Corruptf("%d NaN or infinite values, the first at %v", n.Count, n.First))
		}
		r.found = append(r.found, n)
	}
	return w
}

func (r *reader) fail(name string, err error) {
	if r.err == nil {
		r.err = &safeio.Error{Op: "load", Tensor: name, Off: -1, Err: err}
	}
}
