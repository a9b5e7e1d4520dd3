package formats

import (
	"strings"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// exl2Method is the method name of ExLlamaV2's checkpoints.
const exl2Method = "exl2"

// exl2Quantization recognises ExLlamaV2's tensors where config.json does not mention them, as its loader does; nil when
// there are none.
func exl2Quantization(src tensor.Source) *QuantConfig {
	for _, t := range src.Tensors() {
		module, ok := strings.CutSuffix(t.Name, ".q_weight")
		if !ok {
			continue
		}
		if _, ok := src.Lookup(module + ".q_invperm"); !ok {
			continue
		}
		raw, err := safeio.ParseJSON(`{"quant_method":"exl2"}`)
		if err != nil {
			return nil
		}
		return &QuantConfig{Method: exl2Method, Raw: raw, Source: "the tensors' names"}
	}
	return nil
}

// headModule is the output head in ExLlamaV2's names.
const headModule = "lm_head"

// cropper takes the padding off what ExLlamaV2 stores: the model's own shapes say how many outputs a linear has.
type cropper struct {
	out   map[string]int // outputs by module; nil for a family that is not known, whose tensors show as they are stored
	ready bool
}

// learn reads the shapes from config.json.
func (c *cropper) learn(config []byte) {
	c.ready = true
	m, infos, err := arch.Implied(config)
	if err != nil {
		return
	}
	c.out = map[string]int{headModule: m.Vocab} // also where it is tied to the embedding
	for _, t := range infos {
		if module, ok := strings.CutSuffix(t.Name, weightSuffix); ok && len(t.Shape) == 2 {
			c.out[module] = int(t.Shape[0])
		}
	}
}

// crop gives a linear its own number of outputs.
func (v *denseView) crop(module string, found packing.Found) (packing.Found, error) {
	if found.Layout.Name != exl2Method {
		return found, nil
	}
	if !v.cropper.ready {
		v.cropper.learn(v.stored.Meta().Config)
	}
	out, known := v.cropper.out[module]
	if !known {
		return found, nil
	}
	cropped, err := found.Cropped(out)
	if err != nil {
		return found, &safeio.Error{Op: "read", Tensor: module + ".q_weight", Off: -1, Err: err}
	}
	return cropped, nil
}

// cropBias shows the bias of a padded linear without the padding.
func (v *denseView) cropBias(t tensor.Info) tensor.Info {
	module, ok := strings.CutSuffix(t.Name, ".bias")
	found, quantized := v.linears[module]
	if !ok || !quantized || found.Layout.Name != exl2Method {
		return t
	}
	if t.SameShape(int64(packing.EXL2Outputs(found.Out))) {
		t.Shape = []int64{int64(found.Out)}
	}
	return t
}

// untied is the config of a view that shows a head of its own: ExLlamaV2 stores one beside the embedding that config.json
// ties it to, and other readers would take the embedding.
func (v *denseView) untied(config []byte) ([]byte, error) {
	found, ok := v.linears[headModule]
	if !ok || found.Layout.Name != exl2Method {
		return config, nil
	}
	c, err := safeio.ParseJSON(config)
	if err != nil {
		return nil, err
	}
	if tied, err := safeio.Or(c, "tie_word_embeddings", false, safeio.Value.Bool); err != nil || !tied {
		return config, err
	}
	no, err := safeio.ParseJSON("false")
	if err != nil {
		return nil, err
	}
	return []byte(c.With("tie_word_embeddings", no).Text()), nil
}
