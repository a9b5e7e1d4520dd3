package packing

import (
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
)

// ConfigOptions is what a quantization_config needs to know about an artifact.
type ConfigOptions struct {
	Scheme    Scheme            // of every module without an override
	Quantized []string          // full names of all modules stored in the layout, in checkpoint order
	Ignore    []string          // full names of the linears that stay dense, the head included, in checkpoint order
	Overrides map[string]Scheme // modules of Quantized with another scheme (GPTQ and compressed-tensors)
	Head      string            // name of the output head ("lm_head"), wherever it is listed
	Tool      string            // "quantize:1.0", for GPTQ's meta
	GPTQ      GPTQMeta
	EXL2      EXL2Meta
	// Activations, for the W8A8 layout: "dynamic" (per token, at run time) or "static" (per tensor, stored scale).
	Activations string
}

// GPTQMeta records how a GPTQ solve was run; loaders do not read it.
type GPTQMeta struct {
	Damp           float64
	TrueSequential bool
	StaticGroups   bool
	DescAct        bool // groups follow the activation order and g_idx tells them; this loaders do read
}

// Encoded is a written config: the value of quantization_config in config.json, and a side file that old loaders
// want beside it.
type Encoded struct {
	Value    []byte // compact JSON
	SideName string // "" or "quantize_config.json"
	Side     []byte
}

// QuantizationConfig writes the config that loaders of a layout insist on: exact keys, in a fixed order.
func QuantizationConfig(l *Layout, o ConfigOptions) (Encoded, error) {
	if l.config == nil {
		return Encoded{}, safeio.Unsupportedf("layout %s is read only", l.Name)
	}
	members, err := l.config(o)
	if err != nil {
		return Encoded{}, err
	}
	v, err := safeio.EncodeJSON(members)
	if err != nil {
		return Encoded{}, err
	}
	e := Encoded{Value: []byte(v.Compact()), SideName: l.sideConfig}
	if e.SideName != "" {
		e.Side = v.Indent()
	}
	return e, nil
}

// object is a JSON object with members in the order given.
type object []safeio.Member

func (o *object) add(key string, value any) error {
	v, err := safeio.EncodeJSON(value)
	if err != nil {
		return err
	}
	*o = append(*o, safeio.Member{Key: key, Value: v})
	return nil
}

// MarshalJSON writes the members in order.
func (o object) MarshalJSON() ([]byte, error) {
	v, err := safeio.NewObject(o...)
	if err != nil {
		return nil, err
	}
	return v.MarshalJSON()
}

// kv builds an object from alternating keys and values.
func kv(pairs ...any) (object, error) {
	var o object
	for i := 0; i+1 < len(pairs); i += 2 {
		if err := o.add(pairs[i].(string), pairs[i+1]); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// awqConfig: vLLM takes each entry of modules_to_not_convert as a substring of a module's name, Transformers as a
// pattern or suffix. Full names serve both, as long as none is part of the name of a quantized module.
func awqConfig(o ConfigOptions) (any, error) {
	if len(o.Overrides) > 0 {
		return nil, safeio.Unsupportedf("awq has one scheme for all modules; write gptq or compressed-tensors for a mixture")
	}
	for _, dense := range o.Ignore {
		for _, q := range o.Quantized {
			if strings.Contains(q, dense) {
				return nil, safeio.Unsupportedf("vLLM would not quantize %s: it takes the excluded %s as a part of its name", q, dense)
			}
		}
	}
	var ignore any // null when everything is quantized
	if len(o.Ignore) > 0 {
		ignore = o.Ignore
	}
	return kv("quant_method", "awq", "version", "gemm", "bits", o.Scheme.Bits, "group_size", o.Scheme.GroupSize,
		"zero_point", true, "modules_to_not_convert", ignore)
}

// gptqConfig: modules left dense inside blocks are told to vLLM and Optimum by the list of those that are not. A
// model whose head alone is dense needs no list, and old loaders do better without.
func gptqConfig(format string) func(ConfigOptions) (any, error) {
	return func(o ConfigOptions) (any, error) {
		dynamic, err := dynamicRules(o)
		if err != nil {
			return nil, err
		}
		v, err := kv("bits", o.Scheme.Bits, "group_size", o.Scheme.GroupSize, "desc_act", o.GPTQ.DescAct, "sym", o.Scheme.Sym,
			"lm_head", o.Head != "" && slices.Contains(o.Quantized, o.Head), "quant_method", "gptq", "checkpoint_format", format,
			"pack_dtype", "int32", "damp_percent", o.GPTQ.Damp, "static_groups", o.GPTQ.StaticGroups,
			"true_sequential", o.GPTQ.TrueSequential, "model_name_or_path", nil, "model_file_base_name", "model")
		if err != nil {
			return nil, err
		}
		if len(dynamic) > 0 {
			if err := v.add("dynamic", dynamic); err != nil {
				return nil, err
			}
		}
		if inner := slices.DeleteFunc(slices.Clone(o.Ignore), func(m string) bool { return m == o.Head }); len(inner) > 0 {
			if err := v.add("modules_in_block_to_quantize", [][]string{inBlockNames(o.Quantized, inner)}); err != nil {
				return nil, err
			}
		}
		meta, err := kv("quantizer", []string{o.Tool})
		if err != nil {
			return nil, err
		}
		return v, v.add("meta", meta)
	}
}

var layerNumber = regexp.MustCompile(`\.(\d+)\.`)

// inBlock cuts a module's name behind the number of its block: "self_attn.q_proj".
func inBlock(module string) string {
	if at := layerNumber.FindStringIndex(module); at != nil {
		return module[at[1]:]
	}
	return module
}

// inBlockNames lists the quantized modules by their names inside a block when every block agrees, else in full.
func inBlockNames(quantized, dense []string) []string {
	excluded := map[string]bool{}
	for _, d := range dense {
		excluded[inBlock(d)] = true
	}
	seen := map[string]bool{}
	var short []string
	for _, q := range quantized {
		name := inBlock(q)
		if excluded[name] {
			return quantized
		}
		if !seen[name] {
			seen[name] = true
			short = append(short, name)
		}
	}
	return short
}

// dynamicRules writes the overrides as GPTQModel's "dynamic": one pattern per scheme and place in the block. vLLM
// matches patterns against its own merged names (qkv_proj, gate_up_proj, experts), so those are named as well.
func dynamicRules(o ConfigOptions) (object, error) {
	type place struct{ before, after string }
	blocks := map[place]map[string]Scheme{}
	for module, s := range o.Overrides {
		p, number := place{before: module}, ""
		if at := layerNumber.FindStringSubmatchIndex(module); at != nil {
			p, number = place{module[:at[2]], module[at[3]:]}, module[at[2]:at[3]]
		}
		if i := strings.Index(p.after, ".experts."); i >= 0 {
			p.after = regexp.QuoteMeta(p.after[:i+len(".experts")]) + `(\.|$)` // all experts of a block share one kernel, hence one scheme
		} else {
			p.after = mergedPattern(p.after)
		}
		if blocks[p] == nil {
			blocks[p] = map[string]Scheme{}
		}
		if old, ok := blocks[p][number]; ok && old != s {
			return nil, safeio.Unsupportedf("servers merge the modules around %s: give them one scheme", module)
		}
		blocks[p][number] = s
	}
	rules := map[string]Scheme{}
	for p, numbers := range blocks {
		bySchemes := map[Scheme][]string{}
		for number, s := range numbers {
			bySchemes[s] = append(bySchemes[s], number)
		}
		for s, which := range bySchemes {
			rules[placePattern(p.before, p.after, which)] = s
		}
	}
	return rulesObject(rules)
}

func placePattern(before, after string, numbers []string) string {
	head := "+:^" + regexp.QuoteMeta(before)
	if numbers[0] == "" {
		return head + "$"
	}
	sort.Slice(numbers, func(i, j int) bool {
		return len(numbers[i]) < len(numbers[j]) || len(numbers[i]) == len(numbers[j]) && numbers[i] < numbers[j]
	})
	return fmt.Sprintf(`%s(%s)%s`, head, strings.Join(numbers, "|"), after)
}

// mergedPattern turns ".self_attn.q_proj" into a pattern for q_proj, its siblings and the merged qkv_proj. Siblings
// have the scheme of q_proj or the model could not be served (CheckFused).
func mergedPattern(after string) string {
	parent, last, _ := cutLast(after)
	for _, f := range fused {
		if slices.Contains(f.members, last) {
			return regexp.QuoteMeta(parent+".") + "(" + strings.Join(f.members, "|") + "|" + f.into + ")$"
		}
	}
	return regexp.QuoteMeta(after) + "$"
}

func rulesObject(rules map[string]Scheme) (object, error) {
	patterns := make([]string, 0, len(rules))
	for p := range rules {
		patterns = append(patterns, p)
	}
	sort.Strings(patterns)
	var o object
	for _, p := range patterns {
		s := rules[p]
		v, err := kv("bits", s.Bits, "group_size", s.GroupSize, "sym", s.Sym)
		if err != nil {
			return nil, err
		}
		if err := o.add(p, v); err != nil {
			return nil, err
		}
	}
	return o, nil
}
