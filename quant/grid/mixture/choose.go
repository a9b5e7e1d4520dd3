package mixture

import (
	"slices"

	"github.com/llmquant/quantize/formats/gguf"
	"github.com/llmquant/quantize/formats/safeio"
)

// Tensor is what a decision needs to know about one tensor.
type Tensor struct {
	Name string
	NE   []int64 // ggml order: columns first
	Type gguf.Type
}

// TensorsOf lists the tensors of a header, in its order. gguf.Requantize puts them into the order Choose expects.
func TensorsOf(h *gguf.Header) []Tensor {
	list := make([]Tensor, len(h.Tensors))
	for i := range h.Tensors {
		t := &h.Tensors[i]
		list[i] = Tensor{t.Name, t.NE[:t.Dims], t.Type}
	}
	return list
}

// Override gives a type to the tensors whose name Match accepts.
type Override struct {
	Match func(name string) bool
	Type  gguf.Type
}

// Options are the choices of a run.
type Options struct {
	File      FileType
	Copy      bool       // keep every tensor; File is ignored
	Pure      bool       // the base type everywhere, no rules
	KeepHead  bool       // output.weight keeps its type
	Head      *gguf.Type // type of output.weight, and of a tied embedding when rules apply
	Embedding *gguf.Type // type of token_embd.weight and per_layer_token_embd.weight
	Overrides []Override // first match wins; they do not apply to float file types
	Imatrix   bool       // an importance matrix is in use
}

// Reason says which step of the decision settled a type.
type Reason string

// The reasons, in the order in which the steps are tried.
const (
	Kept       Reason = "kept"     // not a matrix a file type applies to
	Asked      Reason = "asked"    // Options.Embedding or Options.Head
	Overridden Reason = "override" // Options.Overrides
	Base       Reason = "base"     // the file type's base type
	Rule       Reason = "rule"     // a rule of the mixture
)

// Choice is the decision for one tensor.
type Choice struct {
	Type   gguf.Type // what to store
	Wanted gguf.Type // before the shape fallback; differs from Type when the row length does not fit
	Reason Reason
	// Refused is set where llama-quantize stops with an error because it knows no fallback for Wanted; the choice is F16.
	Refused bool
}

// Choose decides the type of every tensor. The tensors must stand in the order in which they will be written
// (gguf.QuantizeOrder), since some rules count.
func Choose(a Arch, tensors []Tensor, o Options) ([]Choice, error) {
	s := &state{arch: a, o: &o, tied: true}
	for _, t := range tensors {
		c := categorize(t.Name)
		s.tied = s.tied && c != head
		if c == values {
			s.values++
		}
	}
	choices := make([]Choice, len(tensors))
	for i := range tensors {
		c, err := s.choose(&tensors[i])
		if err != nil {
			return nil, &safeio.Error{Op: "choose type", Tensor: tensors[i].Name, Err: err}
		}
		choices[i] = c
	}
	return choices, nil
}

// state is what accumulates over the tensors of a file.
type state struct {
	arch   Arch
	o      *Options
	tied   bool // no output.weight: the embedding is the head
	values int  // number of attention value tensors
	seen   [categories]int
}

func (s *state) choose(t *Tensor) (Choice, error) {
	o := s.o
	cat := categorize(t.Name)
	if o.Copy || !Quantizable(t.Name, t.NE) || cat == head && o.KeepHead {
		return Choice{Type: t.Type, Wanted: t.Type, Reason: Kept}, nil
	}
	if cat == embedding && o.Embedding != nil {
		return Choice{Type: *o.Embedding, Wanted: *o.Embedding, Reason: Asked}, nil
	}
	if cat == head && o.Head != nil {
		return Choice{Type: *o.Head, Wanted: *o.Head, Reason: Asked}, nil
	}
	want, reason := o.File.Base, Base
	if o.File.Float() {
		return Choice{Type: want, Wanted: want, Reason: reason}, nil
	}
	if i := slices.IndexFunc(o.Overrides, func(ov Override) bool { return ov.Match(t.Name) }); i >= 0 {
		want, reason = o.Overrides[i].Type, Overridden
	} else if !o.Pure {
		mixed, err := s.mix(t, cat)
		if err != nil {
			return Choice{}, err
		}
		if mixed != want {
			want, reason = mixed, Rule
		}
	}
	got, refused := fallback(want, t.NE[0])
	return Choice{Type: got, Wanted: want, Reason: reason, Refused: refused}, nil
}

// mix applies the rules of the file type.
func (s *state) mix(t *Tensor, cat category) (gguf.Type, error) {
	v := &view{Arch: &s.arch, cat: cat, file: s.o.File.ID, imatrix: s.o.Imatrix, counter: s.seen[cat],
		layer: s.seen[cat], layers: s.arch.Blocks, ne: t.NE, current: s.o.File.Base}
	if cat == head || cat == embedding && s.tied {
		if s.o.Head != nil {
			return *s.o.Head, nil
		}
		return apply(headRules, v), nil
	}
	if s.o.File.ID == mxfp4_MOE {
		return apply(expertFile, v), nil
	}
	if cat == embedding {
		return apply(embeddingRules, v), nil
	}
	if cat == values {
		v.layers = s.values
	}
	s.seen[cat]++
	if lowBits.has(v.file) {
		return apply(lowRules[cat], v), nil
	}
	if err := s.layerOf(t.Name, cat, v); err != nil {
		return 0, err
	}
	v.current = apply(rules[cat], v)
	if cat == values {
		for i := range valuesAfter {
			v.current = apply(valuesAfter[i:i+1], v)
		}
	}
	return v.current, nil
}

// layerOf sets the layer number of a feed-forward tensor in a mixture of experts, whose tensors are too many to count.
func (s *state) layerOf(name string, cat category, v *view) error {
	if v.Experts <= 1 || cat != up && cat != gate && cat != down {
		return nil
	}
	n, ok := gguf.BlockNumber(name)
	if !ok || n >= v.layers {
		return safeio.Corruptf("the name gives no layer below %d, which the rules of %s need in a mixture of experts", v.layers, s.o.File.Name)
	}
	v.layer = n
	return nil
}
