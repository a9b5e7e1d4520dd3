package gguf

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/llmquant/quantize/formats/tensor"
)

// HFModel is a GGUF file as a complete Hugging Face checkpoint.
type HFModel struct {
	Config  []byte            // config.json
	Tensors tensor.Source     // Hugging Face names; see ToHF for the types
	Files   map[string][]byte // tokenizer.json, tokenizer_config.json, generation_config.json, README.md
}

// ToHF returns the model as a checkpoint that Transformers loads, the inverse of FromHF. Vectors and routers, which GGUF
// always stores in float32, are shown in the type of the matrices (F16 or BF16) where that loses nothing, so that a
// converted checkpoint comes back bit for bit. GGUF records no more of the tokenizer than FromHF lists; everything else
// takes Transformers' defaults.
func (f *File) ToHF() (*HFModel, error) {
	p, v, err := f.hf()
	if err != nil {
		return nil, err
	}
	if err := v.narrow(f); err != nil {
		return nil, err
	}
	m := &HFModel{Tensors: v, Files: map[string][]byte{}}
	if m.Config, err = f.config(p); err != nil {
		return nil, f.wrap(err)
	}
	for _, file := range []struct {
		name  string
		write func(*params) ([]byte, error)
	}{
		{"tokenizer.json", f.tokenizerJSON}, {"tokenizer_config.json", f.tokenizerConfig},
		{"generation_config.json", f.generationConfig}, {"README.md", f.modelCard},
	} {
		text, err := file.write(p)
		if err != nil {
			return nil, f.wrap(err)
		}
		if text != nil {
			m.Files[file.name] = text
		}
	}
	return m, nil
}

// narrow finds float32 tensors that the converter widened and shows them in the type of the matrices.
func (v *view) narrow(f *File) error {
	embed, ok := f.Lookup(nameEmbed)
	if !ok {
		return nil
	}
	to := f.mainType(embed).DType()
	if to != tensor.F16 && to != tensor.BF16 {
		return nil
	}
	for i := range v.places {
		p := &v.places[i]
		if p.t.Type != F32 || !alwaysF32(p.t) {
			continue
		}
		exact, err := v.exact(p, to)
		if err != nil {
			return err
		}
		if exact {
			p.narrow, p.info.DType, v.infos[i].DType = true, to, to
		}
	}
	return nil
}

// exact reports whether every value of a float32 tensor survives a round trip through type to.
func (v *view) exact(p *place, to tensor.DType) (bool, error) {
	narrow, widen := tensor.F32ToBF16, tensor.BF16ToF32
	if to == tensor.F16 {
		narrow, widen = tensor.F32ToF16, tensor.F16ToF32
	}
	buf := make([]byte, min(viewBuffer, p.t.Bytes))
	for off := int64(0); off < p.t.Bytes; off += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), p.t.Bytes-off)]
		if err := v.f.ReadAt(p.t, buf, off); err != nil {
			return false, err
		}
		for i := 0; i < len(buf); i += 4 {
			bits := binary.LittleEndian.Uint32(buf[i:])
			if math.Float32bits(widen(narrow(math.Float32frombits(bits)))) != bits {
				return false, nil
			}
		}
	}
	return true, nil
}

// generationConfig records special tokens and sampler settings.
func (f *File) generationConfig(*params) ([]byte, error) {
	o := &object{}
	for _, typ := range []string{"bos", "eos", "pad"} {
		if n, err := f.KV.Int("tokenizer.ggml."+specialKeys[typ]+"_token_id", 0, math.MaxInt32); err == nil {
			o.add(typ+"_token_id", n)
		}
	}
	samples := false
	for _, k := range samplingKeys {
		v, ok := f.KV.Get("general.sampling." + k.to)
		if !ok || v.kind != k.kind {
			continue
		}
		samples = samples || k.from == "temperature"
		switch k.kind {
		case KindString:
			o.add(k.from, v.str)
		case KindInt32:
			o.add(k.from, int32(v.num))
		default:
			x, _ := v.Float()
			o.add(k.from, number(x))
		}
	}
	if samples {
		o.add("do_sample", true)
	}
	if len(o.members) == 0 {
		return nil, nil
	}
	return o.bytes()
}

// modelCard writes the facts of the card back as front matter, so that a licence travels with the weights.
func (f *File) modelCard(*params) ([]byte, error) {
	var b strings.Builder
	line := func(key, value string) {
		if value != "" {
			b.WriteString(key + ": " + quoteYAML(value) + "\n")
		}
	}
	list := func(key string, values []string) {
		if len(values) > 0 {
			b.WriteString(key + ":\n")
			for _, v := range values {
				b.WriteString("- " + quoteYAML(v) + "\n")
			}
		}
	}
	text := func(key string) string { s, _ := f.KV.String("general." + key); return s }
	line("license", text("license"))
	line("license_name", text("license.name"))
	line("license_link", text("license.link"))
	for _, k := range cardKeys {
		line("model_"+k.fact, text(k.fact))
	}
	languages, _ := f.KV.Strings("general.languages")
	list("language", languages)
	tags, _ := f.KV.Strings("general.tags")
	list("tags", tags)
	if b.Len() == 0 {
		return nil, nil
	}
	title := text("name")
	if title == "" {
		title = "Model"
	}
	return []byte("---\n" + b.String() + "---\n\n# " + title + "\n"), nil
}

// quoteYAML quotes what a plain scalar could not hold.
func quoteYAML(s string) string {
	plain := func(r rune) bool {
		return r >= '0' && r <= '9' || r|0x20 >= 'a' && r|0x20 <= 'z' || r == '-' || r == '_' || r == '.' || r == '/' || r == ' '
	}
	if s == strings.TrimSpace(s) && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) &&
		!slices.Contains([]string{"", "-", "null", "true", "false", "yes", "no"}, strings.ToLower(s)) && s[0] != '-' {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(s) + `"`
}
