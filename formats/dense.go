package formats

import (
	"slices"
	"strings"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// Dense returns a view of a checkpoint in Hugging Face names in which every quantized linear P reads as one float32
// tensor "P.weight" and nothing of its storage shows; its Meta has no Quant, and its Config no quantization_config. A
// dense Hugging Face checkpoint is its own view. The view owns c: closing it closes c.
//
// Weights are decoded when they are read. A few tensors stay in memory as codes, one byte a weight, so reading a tensor
// row by row decodes it once. ErrUnsupported: a layout that no package here can read.
func Dense(c Checkpoint) (Checkpoint, error) {
	if g, ok := c.(*ggufCheckpoint); ok {
		if g.err != nil {
			return nil, g.err
		}
		return &ggufView{Source: g.dense, stored: g, meta: g.meta.dense(g.meta.Config)}, nil
	}
	meta := c.Meta()
	if meta.Quant == nil {
		return c, nil
	}
	v := &denseView{stored: c, linears: map[string]packing.Found{}, pieces: map[string][]tensor.Info{}, index: map[string]int{}, cache: newLinearCache()}
	if err := v.find(meta.Quant); err != nil {
		return nil, located(err, meta.Path)
	}
	config, err := withoutQuantization(meta.Config)
	if err == nil {
		config, err = v.untied(config)
	}
	if err != nil {
		return nil, located(err, meta.Path)
	}
	v.meta = meta.dense(config)
	return v, nil
}

// dense describes the view of a checkpoint.
func (m *Meta) dense(config []byte) Meta {
	d := *m
	d.Quant, d.Config = nil, config
	return d
}

// quantizationKeys are the members of config.json that state a quantization.
var quantizationKeys = []string{"quantization_config", "compression_config", "quantization"}

func withoutQuantization(config []byte) ([]byte, error) {
	v, err := safeio.ParseJSON(config)
	if err != nil {
		return nil, err
	}
	for _, key := range quantizationKeys {
		v = v.Without(key)
	}
	if text := v.Get("text_config"); text.Get(quantizationKeys[0]).Exists() {
		v = v.With("text_config", text.Without(quantizationKeys[0]))
	}
	return []byte(v.Text()), nil
}

// ggufView is the Hugging Face view that package gguf makes.
type ggufView struct {
	tensor.Source
	stored *ggufCheckpoint
	meta   Meta
}

// Meta describes the view.
func (v *ggufView) Meta() *Meta { return &v.meta }

// Close closes the file.
func (v *ggufView) Close() error { return v.stored.Close() }

// denseView decodes the linears of a Hugging Face checkpoint.
type denseView struct {
	stored  Checkpoint
	meta    Meta
	linears map[string]packing.Found // by module name
	pieces  map[string][]tensor.Info // what stores them, in storage order
	infos   []tensor.Info
	index   map[string]int
	cache   *linearCache
	cropper cropper
}

const weightSuffix = ".weight"

// find asks the layout table about every module, and lists what the view shows.
func (v *denseView) find(q *QuantConfig) error {
	config, err := packing.ParseConfig(q.Raw)
	if err != nil {
		return &safeio.Error{Op: "read", Path: q.Source, Off: -1, Err: err}
	}
	asked := map[string]bool{}
	for _, t := range v.stored.Tensors() {
		module, _, ok := cutLast(t.Name)
		if !ok || asked[module] {
			continue
		}
		asked[module] = true
		found, ok, err := packing.Detect(config, v.module(module))
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if v.linears[module], err = v.crop(module, found); err != nil {
			return err
		}
	}
	if len(v.linears) == 0 {
		return safeio.Unsupportedf("weights quantized with %q are not read", q.Method)
	}
	for _, t := range v.stored.Tensors() {
		if err := v.show(t, q); err != nil {
			return err
		}
	}
	return nil
}

func cutLast(name string) (module, suffix string, ok bool) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return "", "", false
	}
	return name[:i], name[i+1:], true
}

// module lets the layout table look at the tensors of one module.
func (v *denseView) module(name string) packing.Module {
	return packing.Module{Name: name,
		Info: func(suffix string) (tensor.Info, bool) { return v.stored.Lookup(name + "." + suffix) },
		Read: func(suffix string) ([]byte, error) { return v.readAll(name + "." + suffix) },
	}
}

// readAll reads a whole stored tensor, nil when it is absent.
func (v *denseView) readAll(name string) ([]byte, error) {
	info, ok := v.stored.Lookup(name)
	if !ok {
		return nil, nil
	}
	n, ok := info.Bytes()
	if !ok {
		return nil, safeio.Corruptf("the size of %s %v overflows", info.DType, info.Shape)
	}
	data := make([]byte, n)
	return data, v.stored.ReadTensor(name, data, 0)
}

// show adds what the view shows in place of a stored tensor: at the first piece of a linear its weight, nothing for the
// other pieces, everything else as it is.
func (v *denseView) show(t tensor.Info, q *QuantConfig) error {
	module, of := v.linearOf(t.Name)
	if module == "" {
		return v.add(t, q)
	}
	v.pieces[module] = append(v.pieces[module], t)
	weight := module + weightSuffix
	if _, shown := v.index[weight]; shown {
		return nil
	}
	v.index[weight] = len(v.infos)
	v.infos = append(v.infos, tensor.Info{Name: weight, DType: tensor.F32, Shape: []int64{int64(of.Out), int64(of.In)}})
	return nil
}

// linearOf returns the linear that a stored tensor is a piece of. Its bias is a tensor of its own.
func (v *denseView) linearOf(name string) (string, packing.Found) {
	for module, ok := name, true; ok; {
		if module, _, ok = cutLast(module); !ok {
			break
		}
		if found, is := v.linears[module]; is && name != module+".bias" {
			return module, found
		}
	}
	return "", packing.Found{}
}

// telltales are last parts of names that only pieces of a quantized linear have.
var telltales = []string{"qweight", "qzeros", "q_weight", "weight_packed", "weight_scale", "weight_scale_inv", "weight_scale_2", "absmax", "trellis"}

// add shows a stored tensor as it is, unless it is a weight that would then read as wrong numbers.
func (v *denseView) add(t tensor.Info, q *QuantConfig) error {
	_, last, _ := cutLast(t.Name)
	plain := t.DType == tensor.F32 || t.DType == tensor.F16 || t.DType == tensor.BF16 || t.DType == tensor.F64
	if slices.Contains(telltales, last) || strings.HasSuffix(t.Name, weightSuffix) && !plain {
		return &safeio.Error{Op: "read", Tensor: t.Name, Off: -1,
			Err: safeio.Unsupportedf("it is stored as %s %v in a layout of %q that is not read", t.DType, t.Shape, q.Method)}
	}
	v.index[t.Name] = len(v.infos)
	v.infos = append(v.infos, v.cropBias(t))
	return nil
}
