package quant

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safetensors"
	"github.com/llmquant/quantize/formats/tensor"
)

// layOut computes every file and offset of the artifact.
func (p *Plan) layOut(maxShard int64) error {
	name := safetensors.ModelName
	if p.isEXL2() {
		name = packing.EXL2FileName
	}
	out, index, err := safetensors.Plan(p.stored(), maxShard, name)
	if err != nil {
		return err
	}
	if p.isEXL2() {
		index = nil // its loader takes every file of the directory, and an index of the source would mislead others
	}
	p.Out, p.index = out, index
	p.Disk = int64(len(index))
	for _, f := range out.Files {
		p.Disk += f.Size
	}
	return nil
}

// defaultScheme is the scheme that most quantized weights have; the others are written as overrides.
func (p *Plan) defaultScheme() packing.Scheme {
	weights := map[packing.Scheme]int64{}
	var best packing.Scheme
	for i := range p.Tensors {
		t := &p.Tensors[i]
		if !t.Quantize {
			continue
		}
		n, _ := t.Info.Elements()
		weights[t.Scheme] += n
		if weights[t.Scheme] > weights[best] {
			best = t.Scheme
		}
	}
	return best
}

// headName is the module name of the output head in the families' naming.
const headName = "lm_head"

// quantizationConfig writes what loaders need to know, nil for a dense artifact.
func (p *Plan) quantizationConfig(tool string, r *Recipe) (*packing.Encoded, error) {
	if p.Layout == nil {
		return nil, nil
	}
	o := packing.ConfigOptions{Scheme: p.defaultScheme(), Overrides: map[string]packing.Scheme{}, Head: headName, Tool: tool, GPTQ: r.GPTQ, EXL2: r.EXL2}
	if head := p.lookup()[headName+".weight"]; head == nil || !head.Quantize {
		o.EXL2.HeadBits = denseHead
	}
	for i := range p.Tensors {
		t := &p.Tensors[i]
		switch {
		case t.Quantize:
			o.Quantized = append(o.Quantized, t.Module())
			if t.Scheme != o.Scheme {
				o.Overrides[t.Module()] = t.Scheme
			}
		case t.Linear != nil:
			o.Ignore = append(o.Ignore, t.Module())
		}
	}
	if p.Model.Head == p.Model.Embed && !slices.Contains(o.Ignore, headName) {
		o.Ignore = append(o.Ignore, headName) // a tied head is a linear to the engines although no tensor stands for it
	}
	encoded, err := packing.QuantizationConfig(p.Layout, o)
	return &encoded, err
}

// sideConfigs returns the JSON files that are written last: config.json with the quantization settings, what old
// loaders want beside it, and the index of the shards.
func (p *Plan) sideConfigs(source []byte, tool string, r *Recipe) (map[string][]byte, error) {
	config, err := safeio.ParseJSON(source)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	encoded, err := p.quantizationConfig(tool, r)
	if err != nil {
		return nil, err
	}
	if encoded != nil {
		value, err := safeio.ParseJSON(encoded.Value)
		if err != nil {
			return nil, err
		}
		config = config.With("quantization_config", value)
		if encoded.SideName != "" {
			files[encoded.SideName] = encoded.Side
		}
	}
	if d := p.convertedType(); d != tensor.Invalid {
		config = withDType(config, d)
	}
	files["config.json"] = []byte(config.Text())
	if p.index != nil {
		files[safetensors.IndexName] = p.index
	}
	return files, nil
}

// convertedType is the element type that every dense float tensor was converted to, Invalid when none was.
func (p *Plan) convertedType() tensor.DType {
	d := tensor.Invalid
	for i := range p.Tensors {
		t := &p.Tensors[i]
		if t.Quantize || !t.Info.DType.IsFloat() || p.isEXL2() && t.Role == arch.RoleUnknown {
			continue
		}
		if t.DType == tensor.Invalid || d != tensor.Invalid && t.DType != d {
			return tensor.Invalid
		}
		d = t.DType
	}
	return d
}

// configTypes spells element types as config.json does.
var configTypes = map[tensor.DType]string{tensor.BF16: "bfloat16", tensor.F16: "float16", tensor.F32: "float32"}

// withDType sets the config's element type under the key that it already uses.
func withDType(config safeio.Value, d tensor.DType) safeio.Value {
	key := "torch_dtype"
	if config.Get("dtype").Exists() {
		key = "dtype"
	}
	quoted, _ := json.Marshal(configTypes[d])
	value, err := safeio.ParseJSON(quoted)
	if err != nil {
		return config
	}
	return config.With(key, value)
}

// scaleTypes fixes the type of the stored scales before anything is fitted: layouts that store them in the model's own
// type take that of its embedding.
func (p *Plan) scaleType() tensor.DType {
	if p.Layout == nil || !strings.HasPrefix(p.Layout.Name, "compressed-tensors") {
		return tensor.F16
	}
	for i := range p.Tensors {
		if t := &p.Tensors[i]; t.Role == arch.RoleEmbed && (t.Info.DType == tensor.F16 || t.Info.DType == tensor.BF16) {
			return t.Info.DType
		}
	}
	return tensor.BF16
}

// minZero is the smallest zero point the layout can store: GPTQ's first version writes z − 1 into unsigned fields.
func (p *Plan) minZero() int {
	if p.Layout != nil && p.Layout.Name == "gptq" {
		return 1
	}
	return 0
}

// positive reports whether the layout's readers expect positive scales only.
func (p *Plan) positive() bool { return p.Layout != nil && p.Layout.Name == "awq" }
