package gguf

import (
	"slices"
	"strings"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// ConvertOptions hold what a conversion needs besides the model and its tensors.
type ConvertOptions struct {
	Type      Type              // of the matrices: F32, F16 or BF16; AutoType follows the checkpoint
	Config    []byte            // config.json
	Side      map[string][]byte // the small files of the checkpoint by name: README.md, tokenizer_config.json, …; see SideFiles
	Tokenizer *TokenizerInfo    // nil: read from Side
	Name      string            // base name of the model directory, for general.name
	// File returns the name of the weight file that holds a tensor: the reference writes tensors file by file, by name
	// within a file. nil: one file.
	File func(tensor string) string
}

// FromHF computes the GGUF header of a model and, tensor by tensor in the same order, where the rows come from.
// model must have been resolved from src. The result equals that of llama.cpp's convert_hf_to_gguf.py.
//
// Differs from the reference:
//   - Llama 3 frequency factors use original_max_position_embeddings of rope_scaling; the reference looks for it outside
//     and takes 8192 otherwise.
//   - Tokens of a tokenizer.json with byte fallback get scores by merge rank instead of -1000 throughout, with which
//     llama.cpp would merge in another order than the model's own tokenizer.
//   - Lists in the model card keep entries that YAML would read as booleans or numbers, as text.
//   - Named chat templates are listed in the order of the file; the reference's order changes from run to run.
func FromHF(model *arch.Model, src tensor.Source, o ConvertOptions) (*Header, []TensorMap, error) {
	if !slices.Contains([]Type{F32, F16, BF16}, o.Type) {
		return nil, nil, safeio.Unsupportedf("a checkpoint is converted to F32, F16 or BF16 first, not to %s", o.Type)
	}
	config, err := safeio.ParseJSON(o.Config)
	if err != nil {
		return nil, nil, &safeio.Error{Op: "convert: config.json", Off: -1, Err: err}
	}
	fam, err := familyOf(model.GGUF.Arch)
	if err != nil {
		return nil, nil, err
	}
	maps, err := mapTensors(model, src, o)
	if err != nil {
		return nil, nil, err
	}
	h := &Header{Tensors: make([]Tensor, len(maps))}
	for i := range maps {
		h.Tensors[i] = maps[i].Tensor
	}
	w := &writer{kv: &h.KV, family: fam, model: model, config: config, o: &o, tensors: h.Tensors}
	for _, step := range []func() error{w.general, w.hyperparameters, w.tokenizer} {
		if err := step(); err != nil {
			return nil, nil, err
		}
	}
	return h, maps, nil
}

// writer fills the metadata of a conversion.
type writer struct {
	kv      *Metadata
	family  *family
	model   *arch.Model
	config  safeio.Value
	o       *ConvertOptions
	tensors []Tensor
}

// AutoType returns the type that suits a checkpoint: that of its first matrix, F16 for anything but BF16.
func AutoType(src tensor.Source) Type {
	for _, name := range byName(src, nil) {
		info, _ := src.Lookup(name)
		if len(info.Shape) >= 2 && (info.DType == tensor.BF16 || info.DType == tensor.F16) {
			t, _ := TypeOf(info.DType)
			return t
		}
	}
	return F16
}

// byName lists the tensors in the reference's order: file by file, by name within a file.
func byName(src tensor.Source, file func(string) string) []string {
	infos := src.Tensors()
	names := make([]string, len(infos))
	for i, t := range infos {
		names[i] = t.Name
	}
	slices.SortFunc(names, func(a, b string) int {
		if file != nil {
			if c := strings.Compare(file(a), file(b)); c != 0 {
				return c
			}
		}
		return strings.Compare(a, b)
	})
	return names
}

// mapTensors walks the checkpoint in order. The experts of a layer are stacked where the last of them stands.
func mapTensors(m *arch.Model, src tensor.Source, o ConvertOptions) ([]TensorMap, error) {
	places := targets(m)
	var maps []TensorMap
	if freqs := ropeFactors(m); freqs != nil {
		t, _ := NewTensor(nameRopeFreqs, F32, int64(len(freqs)))
		maps = append(maps, TensorMap{Tensor: t, Data: freqs})
	}
	waiting := make(map[int]int) // layer -> expert tensors still to come
	for _, name := range byName(src, o.File) {
		to, known := places[name]
		switch {
		case isDerived(name):
			continue
		case !known:
			return nil, &safeio.Error{Op: "convert", Tensor: name, Off: -1,
				Err: safeio.Unsupportedf("GGUF has no place for this tensor in architecture %q", m.GGUF.Arch)}
		case to.expert < 0:
			info, _ := src.Lookup(name)
			t, err := o.mapped(to, info.Shape, []string{name})
			if err != nil {
				return nil, err
			}
			maps = append(maps, t)
			continue
		}
		experts := m.Blocks[to.layer].MoE.Experts
		if waiting[to.layer]++; waiting[to.layer] < 3*len(experts) {
			continue
		}
		for _, role := range []arch.Role{arch.RoleDown, arch.RoleGate, arch.RoleUp} {
			t, err := o.stacked(&m.Blocks[to.layer], role, places)
			if err != nil {
				return nil, err
			}
			maps = append(maps, t)
		}
	}
	return maps, nil
}

// stacked makes the tensor of all experts' matrices of one role.
func (o *ConvertOptions) stacked(b *arch.Block, role arch.Role, places map[string]target) (TensorMap, error) {
	var sources []string
	var l *arch.Linear
	for i := range b.MoE.Experts {
		e := &b.MoE.Experts[i]
		l = map[arch.Role]*arch.Linear{arch.RoleGate: &e.Gate, arch.RoleUp: &e.Up, arch.RoleDown: &e.Down}[role]
		sources = append(sources, l.Weight())
	}
	return o.mapped(places[l.Weight()], []int64{int64(len(sources)), int64(l.Out), int64(l.In)}, sources)
}

// mapped describes the tensor at a place. The type rules are the converter's: what is small or sensitive stays in
// float32, everything else takes the requested type.
func (o *ConvertOptions) mapped(to target, shape []int64, sources []string) (TensorMap, error) {
	t, ok := NewTensor(to.name, F32, shape...)
	if !ok {
		return TensorMap{}, &safeio.Error{Op: "convert", Tensor: sources[0], Off: -1, Err: safeio.Corruptf("shape %v is too large", shape)}
	}
	if !alwaysF32(&t) {
		t, _ = t.WithType(o.Type) // plain types fit every row
	}
	return TensorMap{Tensor: t, Sources: sources, RotaryQK: to.heads}, nil
}
