package hf

import (
	"github.com/llmquant/quantize/formats/safeio"
)

// Quantization is a checkpoint's own statement of how its weights are stored.
type Quantization struct {
	Method string       // "awq", "gptq", "compressed-tensors", "fp8", "modelopt", "bitsandbytes", "exl2", …
	Raw    safeio.Value // the object that said so
	Source string       // the file it stands in
}

// places lists where tools leave the statement, the most authoritative first. Under: path of keys to the object.
// method names the tool family when the object itself has no quant_method.
var places = []struct {
	file   string
	under  []string
	method string
}{
	{ConfigName, []string{"quantization_config"}, ""},
	{ConfigName, []string{"compression_config"}, "compressed-tensors"}, // its first releases
	{ConfigName, []string{"text_config", "quantization_config"}, ""},   // multimodal models
	{ConfigName, []string{"quantization"}, "mlx"},
	{"hf_quant_config.json", []string{"quantization"}, "modelopt"},
	{"quantize_config.json", nil, "gptq"},     // AutoGPTQ
	{"quantization_config.json", nil, "gptq"}, // AutoRound's GPTQ export
	{"quant_config.json", nil, "awq"},         // llm-awq and early AutoAWQ
}

// telltales are members that give the method away in objects that lack quant_method, in order.
var telltales = []struct{ key, method string }{
	{"config_groups", "compressed-tensors"}, {"quant_algo", "modelopt"}, {"load_in_4bit", "bitsandbytes"}, {"load_in_8bit", "bitsandbytes"},
	{"w_bit", "awq"}, {"zero_point", "awq"}, {"desc_act", "gptq"}, {"weight_block_size", "fp8"},
}

// detect finds the statement; nil when the checkpoint is dense. read returns the zero Value for a file that is missing,
// path the full path of a file for messages.
func detect(config safeio.Value, read func(name string) (safeio.Value, error), path func(name string) string) (*Quantization, error) {
	for _, p := range places {
		v := config
		if p.file != ConfigName {
			var err error
			if v, err = read(p.file); err != nil {
				return nil, err
			}
		}
		if v = v.Path(p.under...); !v.Exists() || v.Len() == 0 {
			continue
		}
		method, err := methodOf(v, p.method)
		if err != nil {
			return nil, &safeio.Error{Op: "read", Path: path(p.file), Off: -1, Err: err}
		}
		return &Quantization{Method: method, Raw: v, Source: p.file}, nil
	}
	return nil, nil
}

func methodOf(v safeio.Value, byPlace string) (string, error) {
	method, err := safeio.Or(v, "quant_method", "", safeio.Value.Str)
	if err != nil || method != "" {
		return method, err
	}
	for _, t := range telltales {
		if v.Get(t.key).Exists() {
			return t.method, nil
		}
	}
	if byPlace == "" {
		return "", safeio.Unsupportedf("quantization_config has no quant_method and no key that gives it away")
	}
	return byPlace, nil
}
