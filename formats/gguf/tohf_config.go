package gguf

import (
	"math"
	"slices"
	"strconv"

	"github.com/llmquant/quantize/formats/safeio"
)

// preAliases maps names of llama.cpp to a row of the table with the same behaviour.
var preAliases = map[string]string{
	"llama3": "llama-bpe", "llama-v3": "llama-bpe", "falcon3": "llama-bpe", "dbrx": "smaug-bpe",
	"deepseek-r1-qwen": "qwen2", "stablelm2": "qwen2", "hunyuan": "qwen2", "kormo": "qwen2",
	"phi-2": "gpt-2", "mpt": "gpt-2", "olmo": "gpt-2", "jais": "gpt-2", "trillion": "gpt-2", "granite-docling": "gpt-2",
	"starcoder": "smollm", "refact": "smollm", "command-r": "smollm", "codeshell": "smollm", "exaone": "smollm", "minerva-7b": "smollm",
	"llama4": "gpt-4o",
}

// preOf returns the pre_tokenizer object for a name.
func preOf(name string) (steps safeio.Value, ignoreMerges, ok bool) {
	if alias, ok := preAliases[name]; ok {
		name = alias
	}
	i := slices.IndexFunc(pres[:], func(p pre) bool { return p.name == name })
	if i < 0 {
		return safeio.Value{}, false, false
	}
	var list []any
	for _, s := range pres[i].steps {
		list = append(list, stepObject(s))
	}
	var tree any = list[0]
	if len(list) > 1 {
		tree = map[string]any{"type": "Sequence", "pretokenizers": list}
	}
	v, err := safeio.EncodeJSON(tree)
	return v, pres[i].ignoreMerges, err == nil
}

// stepObject is the inverse of describe for the steps of the table.
func stepObject(step string) any {
	switch step {
	case byteLevel:
		return byteLevelStep(false, false)
	case gpt2Split:
		return byteLevelStep(false, true)
	case digits:
		return map[string]any{"type": "Digits", "individual_digits": true}
	}
	return map[string]any{"type": "Split", "pattern": map[string]any{"Regex": step[len(bySplit("")):]}, "behavior": "Isolated", "invert": false}
}

// byteLevelStep writes a ByteLevel object; trim_offsets affects positions only, never ids.
func byteLevelStep(prefix, regex bool) map[string]any {
	return map[string]any{"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": regex}
}

// tokenOf returns the text of a special token, nil when the file names none.
func (f *File) tokenOf(v *vocabulary, typ string) any {
	id, err := f.KV.Int("tokenizer.ggml."+specialKeys[typ]+"_token_id", 0, int64(len(v.tokens))-1)
	if err == nil {
		return v.tokens[id]
	}
	if typ == "unk" {
		if i := slices.Index(v.types, int64(TokenUnknown)); i >= 0 {
			return v.tokens[i]
		}
	}
	return nil
}

// adds reports whether BOS or EOS is put around a text: as stated, else llama.cpp's default.
func (f *File) adds(v *vocabulary, typ string) bool {
	if b, err := f.KV.Bool("tokenizer.ggml.add_" + typ + "_token"); err == nil {
		return b
	}
	name := v.pre
	if alias, ok := preAliases[name]; ok {
		name = alias
	}
	return typ == "bos" && (v.model == ModelSentencePiece || slices.ContainsFunc(pres[:], func(p pre) bool { return p.name == name && p.addsBOS }))
}

// postProcessor writes the template that adds BOS and EOS, null when neither is added.
func (f *File) postProcessor(v *vocabulary) any {
	text := func(id string) any { return map[string]any{"Sequence": map[string]any{"id": id, "type_id": 0}} }
	var before, after []any
	specials := map[string]any{}
	for _, typ := range []string{"bos", "eos"} {
		token, ok := f.tokenOf(v, typ).(string)
		if !ok || !f.adds(v, typ) {
			continue
		}
		id, _ := f.KV.Int("tokenizer.ggml."+specialKeys[typ]+"_token_id", 0, math.MaxInt32)
		specials[token] = map[string]any{"id": token, "ids": []int64{id}, "tokens": []string{token}}
		piece := map[string]any{"SpecialToken": map[string]any{"id": token, "type_id": 0}}
		if typ == "bos" {
			before = append(before, piece)
		} else {
			after = append(after, piece)
		}
	}
	if len(specials) == 0 {
		return nil
	}
	single := slices.Concat(before, []any{text("A")}, after)
	pair := slices.Concat(single, before, []any{text("B")}, after)
	return map[string]any{"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": specials}
}

// tokenizerConfig reconstructs tokenizer_config.json.
func (f *File) tokenizerConfig(p *params) ([]byte, error) {
	v, err := f.readVocabulary(p)
	if v == nil || err != nil {
		return nil, err
	}
	o := &object{}
	for _, typ := range []string{"bos", "eos"} {
		if b, err := f.KV.Bool("tokenizer.ggml.add_" + typ + "_token"); err == nil {
			o.add("add_"+typ+"_token", b)
		}
	}
	if b, err := f.KV.Bool("tokenizer.ggml.add_space_prefix"); err == nil {
		o.add("add_prefix_space", b)
	}
	decoder := &object{}
	for _, a := range v.addedTokens() {
		id := *a.ID
		a.ID = nil
		decoder.add(strconv.Itoa(id), a)
	}
	if err := o.addObject("added_tokens_decoder", decoder); err != nil {
		return nil, err
	}
	for _, typ := range []string{"bos", "eos", "unk", "sep", "pad", "mask"} {
		if token := f.tokenOf(v, typ); token != nil {
			o.add(typ+"_token", token)
		}
	}
	f.addTemplates(o)
	o.add("clean_up_tokenization_spaces", false)
	o.add("model_max_length", p.context)
	o.add("tokenizer_class", "PreTrainedTokenizerFast")
	return o.bytes()
}

// addTemplates writes chat templates: one as a string, several as a list with names.
func (f *File) addTemplates(o *object) {
	type template struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	deflt, err := f.KV.String("tokenizer.chat_template")
	names, _ := f.KV.Strings("tokenizer.chat_templates")
	if len(names) == 0 {
		if err == nil {
			o.add("chat_template", deflt)
		}
		return
	}
	var list []template
	if err == nil {
		list = append(list, template{"default", deflt})
	}
	for _, name := range names {
		if text, err := f.KV.String("tokenizer.chat_template." + name); err == nil {
			list = append(list, template{name, text})
		}
	}
	o.add("chat_template", list)
}
