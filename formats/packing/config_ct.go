package packing

import (
	"fmt"
	"slices"

	"github.com/llmquant/quantize/formats/safeio"
)

// ctVersion is the release of compressed-tensors whose argument schema is written here: old enough to lack
// scale_dtype and zp_dtype, which loaders of that time refuse, and read by every later one.
const ctVersion = "0.11.0"

// ctConfig writes compressed-tensors' config. Its loaders check argument objects against a strict schema: an unknown
// key is an error, so exactly these are written.
func ctConfig(format string) func(ConfigOptions) (any, error) {
	return func(o ConfigOptions) (any, error) {
		groups, err := ctGroups(o, format)
		if err != nil {
			return nil, err
		}
		ignore := o.Ignore
		if ignore == nil {
			ignore = []string{}
		}
		return kv("quant_method", "compressed-tensors", "version", ctVersion, "format", format,
			"quantization_status", "compressed", "global_compression_ratio", nil, "ignore", ignore,
			"kv_cache_scheme", nil, "config_groups", groups, "sparsity_config", object{}, "transform_config", object{})
	}
}

// ctGroups writes one group with target "Linear" when there is one scheme. A mixture names every module in every
// group: loaders disagree on whether the class or the members of a merged module (q, k, v) are tried first.
func ctGroups(o ConfigOptions, format string) (object, error) {
	byScheme := map[Scheme][]string{}
	var order []Scheme
	for _, module := range o.Quantized {
		s, ok := o.Overrides[module]
		if !ok {
			s = o.Scheme
		}
		if !slices.Contains(order, s) {
			order = append(order, s)
		}
		byScheme[s] = append(byScheme[s], module)
	}
	if len(order) == 0 {
		order = []Scheme{o.Scheme}
	}
	groups := object{}
	for i, s := range order {
		targets := byScheme[s]
		if len(order) == 1 {
			targets = []string{"Linear"}
		}
		g, err := ctGroupObject(o, s, targets, format)
		if err != nil {
			return nil, err
		}
		if err := groups.add(fmt.Sprintf("group_%d", i), g); err != nil {
			return nil, err
		}
	}
	return groups, nil
}

func ctGroupObject(o ConfigOptions, s Scheme, targets []string, format string) (object, error) {
	var size any
	strategy := "channel"
	if s.GroupSize > 0 {
		strategy, size = "group", s.GroupSize
	}
	weights, err := ctArguments(s.Bits, s.Sym, strategy, size, false, "minmax")
	if err != nil {
		return nil, err
	}
	var input any
	if format == "int-quantized" {
		if input, err = ctActivations(o.Activations); err != nil {
			return nil, err
		}
	}
	return kv("targets", targets, "weights", weights, "input_activations", input, "output_activations", nil)
}

// ctActivations: vLLM refuses int-quantized weights whose activations stay in floating point.
func ctActivations(mode string) (object, error) {
	switch mode {
	case "dynamic", "":
		return ctArguments(8, true, "token", nil, true, nil)
	case "static":
		return ctArguments(8, true, "tensor", nil, false, "minmax")
	}
	return nil, safeio.Unsupportedf("activations are quantized dynamic or static, not %q", mode)
}

func ctArguments(bits int, sym bool, strategy string, size any, dynamic bool, observer any) (object, error) {
	return kv("num_bits", bits, "type", "int", "symmetric", sym, "strategy", strategy, "group_size", size,
		"dynamic", dynamic, "actorder", nil, "block_structure", nil, "observer", observer, "observer_kwargs", object{})
}
