package gguf

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/quant/grid/ggml"
	"github.com/stretchr/testify/require"
)

// sideOf reconstructs the tokenizer files of a set of keys.
func sideOf(t *testing.T, kv *Metadata, vocab int) map[string]string {
	t.Helper()
	f := &File{Header: Header{KV: *kv}}
	p := &params{vocab: vocab, context: 64}
	side := map[string]string{}
	for name, write := range map[string]func(*params) ([]byte, error){
		"tokenizer.json": f.tokenizerJSON, "tokenizer_config.json": f.tokenizerConfig, "generation_config.json": f.generationConfig, "README.md": f.modelCard,
	} {
		text, err := write(p)
		require.NoError(t, err, name)
		if text != nil {
			side[name] = string(text)
		}
	}
	return side
}

// What GGUF records of a tokenizer survives the way through Hugging Face's files and back.
func TestTokenizerKeysRoundTrip(t *testing.T) {
	for name, c := range map[string]struct {
		architecture string
		vocab        int
		side         map[string]string
		config       string
	}{
		"plain": {"qwen2", 8, map[string]string{"tokenizer.json": bpe()}, "{}"},
		"special tokens": {"qwen2", 8, map[string]string{"tokenizer.json": bpe(),
			"tokenizer_config.json": `{"bos_token": "<s>", "eos_token": "<|x|>", "unk_token": "<s>", "pad_token": "<|x|>", "sep_token": "<s>", "mask_token": "<s>", "add_bos_token": false}`}, "{}"},
		"added tokens first": {"qwen2", 8, map[string]string{"tokenizer.json": bpe(`"id": 4`, `"id": 0`, `"a": 0`, `"a": 4`), "tokenizer_config.json": `{"eos_token": "<s>"}`}, "{}"},
		"template with BOS":  {"llama", 8, map[string]string{"tokenizer.json": llama3(bosTemplate), "tokenizer_config.json": `{"bos_token": "<s>", "add_prefix_space": false}`}, "{}"},
		"BOS and EOS": {"llama", 8, map[string]string{"tokenizer.json": llama3(`{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "<|x|>"}}],
			"pair": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "<|x|>"}}, {"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "B"}}, {"SpecialToken": {"id": "<|x|>"}}]}`),
			"tokenizer_config.json": `{"bos_token": "<s>", "eos_token": "<|x|>"}`}, "{}"},
		"chat template":  {"qwen3", 8, map[string]string{"tokenizer.json": bpe(), "tokenizer_config.json": `{"chat_template": "{{ \"a\" }}\n<b>"}`}, "{}"},
		"chat templates": {"qwen3", 8, map[string]string{"tokenizer.json": bpe(), "tokenizer_config.json": `{"chat_template": [{"name": "default", "template": "d"}, {"name": "rag", "template": "r"}]}`}, "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			first, err := tokenizerKeys(t, c.architecture, c.vocab, c.side, c.config)
			require.NoError(t, err)
			if !first.Has("tokenizer.ggml.add_bos_token") && c.architecture == "llama" {
				first.Set("tokenizer.ggml.add_bos_token", Bool(true))
			}
			second, err := tokenizerKeys(t, c.architecture, c.vocab, sideOf(t, first, c.vocab), "{}")
			require.NoError(t, err)
			want, got := listing(first), listing(second)
			delete(got, "ggml.add_sep_token") // follows from the template for pairs, which is not recorded
			delete(want, "ggml.add_sep_token")
			require.Equal(t, want, got)
		})
	}
}

// spm is a tokenizer.json with byte fallback. The merges make ab before abc.
func spm(normalizer, pre string) string {
	return fmt.Sprintf(`{"added_tokens": [{"id": 0, "content": "<unk>", "special": true}, {"id": 7, "content": "<s>", "special": true}],
		"normalizer": %s, "pre_tokenizer": %s, "post_processor": null,
		"model": {"type": "BPE", "byte_fallback": true, "fuse_unk": true, "unk_token": "<unk>",
		"vocab": {"<unk>": 0, "<0x41>": 1, "a": 2, "b": 3, "c": 4, "ab": 5, "abc": 6}, "merges": ["a b", "ab c"]}}`, normalizer, pre)
}

// A tokenizer.json with byte fallback becomes a SentencePiece vocabulary whose scores give the merges back.
func TestByteFallbackBecomesSentencePiece(t *testing.T) {
	prepend := `{"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}`
	for name, c := range map[string]struct {
		text   string
		prefix string // tokenizer.ggml.add_space_prefix, "" when not written
	}{
		"llama 2":            {spm(prepend, "null"), ""},
		"metaspace":          {spm("null", `{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}`), ""},
		"metaspace, never":   {spm("null", `{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"}`), "false"},
		"metaspace, old":     {spm("null", `{"type": "Metaspace", "replacement": "▁", "add_prefix_space": true}`), ""},
		"metaspace, old, no": {spm("null", `{"type": "Metaspace", "replacement": "▁", "add_prefix_space": false}`), "false"},
		"no prefix":          {spm(`{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}`, "null"), "false"},
	} {
		kv, err := tokenizerKeys(t, "llama", 9, map[string]string{"tokenizer.json": c.text}, "{}")
		require.NoError(t, err, name)
		got := listing(kv)
		require.Equal(t, c.prefix, got["ggml.add_space_prefix"], name)
		require.Equal(t, "llama", got["ggml.model"])
		require.Equal(t, "[-1000, 0, 0, 0, 0, 0, -1, -1000, -10000]", got["ggml.scores"], name)
		require.Equal(t, "[3, 6, 1, 1, 1, 1, 1, 3, 5]", got["ggml.token_type"], name)
		require.NotContains(t, got, "ggml.merges")

		kv.Set("tokenizer.ggml.unknown_token_id", Uint32(0))
		kv.Set("tokenizer.ggml.bos_token_id", Uint32(7))
		side := sideOf(t, kv, 9)
		var back struct {
			Normalizer struct{ Normalizers []map[string]any }
			Post       struct{ Single []map[string]any } `json:"post_processor"`
			Model      struct {
				Unk      string `json:"unk_token"`
				Fallback bool   `json:"byte_fallback"`
				Vocab    map[string]int
				Merges   [][2]string
			}
		}
		require.NoError(t, json.Unmarshal([]byte(side["tokenizer.json"]), &back))
		require.Equal(t, [][2]string{{"a", "b"}, {"ab", "c"}}, back.Model.Merges)
		require.Equal(t, "<unk>", back.Model.Unk)
		require.True(t, back.Model.Fallback)
		steps := 1 // Replace, and Prepend unless the key forbids it
		if c.prefix == "" {
			steps = 2
		}
		require.Len(t, back.Normalizer.Normalizers, steps, name)
		require.Len(t, back.Post.Single, 2, "BOS is llama.cpp's default for SentencePiece")
	}
}

func TestVocabulariesThatCannotBeWritten(t *testing.T) {
	base := func() *Metadata {
		kv, err := tokenizerKeys(t, "qwen2", 8, map[string]string{"tokenizer.json": bpe()}, "{}")
		require.NoError(t, err)
		return kv
	}
	corrupt, unsupported := safeio.ErrCorrupt, safeio.ErrUnsupported
	for name, c := range map[string]struct {
		want   error
		change func(kv *Metadata)
	}{
		"model":           {unsupported, func(kv *Metadata) { kv.Set("tokenizer.ggml.model", String("bert")) }},
		"model a number":  {corrupt, func(kv *Metadata) { kv.Set("tokenizer.ggml.model", Uint32(1)) }},
		"pre":             {unsupported, func(kv *Metadata) { kv.Set("tokenizer.ggml.pre", String("viking")) }},
		"tokens missing":  {corrupt, func(kv *Metadata) { kv.Set("tokenizer.ggml.tokens", Int32s(nil)) }},
		"too many tokens": {corrupt, func(kv *Metadata) { kv.Set("tokenizer.ggml.tokens", Strings(make([]string, 9))) }},
		"types too short": {corrupt, func(kv *Metadata) { kv.Set("tokenizer.ggml.token_type", Int32s([]int32{1})) }},
		"types strings":   {corrupt, func(kv *Metadata) { kv.Set("tokenizer.ggml.token_type", Strings(nil)) }},
		"merges missing":  {corrupt, func(kv *Metadata) { kv.Delete("tokenizer.ggml.merges") }},
		"merge no pair":   {corrupt, func(kv *Metadata) { kv.Set("tokenizer.ggml.merges", Strings([]string{"ab"})) }},
		"scores missing":  {corrupt, func(kv *Metadata) { kv.Set("tokenizer.ggml.model", String("llama")) }},
		"scores too short": {corrupt, func(kv *Metadata) {
			kv.Set("tokenizer.ggml.model", String("llama"))
			kv.Set("tokenizer.ggml.scores", Float32s([]float32{1}))
		}},
		"token twice": {unsupported, func(kv *Metadata) {
			kv.Set("tokenizer.ggml.tokens", Strings([]string{"a", "a", "ab", "x", "y", "z", "w", "v"}))
			kv.Set("tokenizer.ggml.token_type", Int32s([]int32{1, 1, 1, 1, 1, 1, 1, 1}))
		}},
	} {
		kv := base()
		c.change(kv)
		f := &File{Header: Header{KV: *kv}}
		_, err := f.tokenizerJSON(&params{vocab: 8})
		require.ErrorIs(t, err, c.want, name)
	}
	f := &File{}
	text, err := f.tokenizerJSON(&params{})
	require.NoError(t, err)
	require.Nil(t, text, "a file without a tokenizer yields none")
	config, err := f.tokenizerConfig(&params{})
	require.NoError(t, err)
	require.Nil(t, config)
}

// The facts of a card and the sampler settings come back.
func TestCardAndSamplingRoundTrip(t *testing.T) {
	side := map[string]string{"README.md": "---\nlicense: mit\nlicense_name: 'it''s: mine'\nmodel_author: \"A: B\"\ntags: [a, \"b, c\", '- d']\nlanguage: [en]\ndescription: |\n  two\n  lines\n---\n",
		"generation_config.json": `{"temperature": 0.7, "top_k": 40, "top_p": 0.9, "min_p": 0.05, "sequence": "xyz"}`}
	keys := func(side map[string]string) map[string]string {
		files := map[string][]byte{}
		for name, text := range side {
			files[name] = []byte(text)
		}
		w := &writer{kv: &Metadata{}, model: &tinyModel, o: &ConvertOptions{Name: "my-model", Side: files}}
		require.NoError(t, w.general())
		return listing(w.kv)
	}
	first := keys(side)
	files := map[string][]byte{"README.md": []byte(side["README.md"]), "generation_config.json": []byte(side["generation_config.json"])}
	w := &writer{kv: &Metadata{}, model: &tinyModel, o: &ConvertOptions{Name: "my-model", Side: files}}
	require.NoError(t, w.general())
	back := sideOf(t, w.kv, 8)
	require.Contains(t, back["generation_config.json"], `"do_sample": true`)
	require.Equal(t, first, keys(back))
}

// Every block type reads through the view as its decoder says; vectors that bfloat16 cannot hold stay float32.
func TestEveryTypeThroughTheView(t *testing.T) {
	for _, g := range ggml.Types() {
		if !g.CanEncode() {
			continue
		}
		cols, rows := 2*g.Elems, 4
		h := tiny("qwen2")
		for i := range h.Tensors {
			if h.Tensors[i].Name == "blk.0.ffn_up.weight" {
				h.Tensors[i], _ = NewTensor("blk.0.ffn_up.weight", Type(g.ID), int64(rows), int64(cols))
			}
		}
		weights := make([]float32, rows*cols)
		for i := range weights {
			weights[i] = float32((i*7919)%257-128) / 64
		}
		importance := make([]float32, cols)
		for i := range importance {
			importance[i] = 1 + float32(i%3)
		}
		encoded := make([]byte, h.Tensors[len(h.Tensors)-2].Bytes)
		require.NoError(t, g.EncodeRows(encoded, weights, rows, cols, importance), g.Name)
		want := make([]float32, rows*cols)
		for r := range rows {
			n := len(encoded) / rows
			g.DecodeRow(want[r*cols:(r+1)*cols], encoded[r*n:(r+1)*n])
		}
		p, err := Plan(h, PlanOptions{Name: "m.gguf"})
		require.NoError(t, err)
		content := fill(t, p, func(i int, dst []byte) {
			if p.Tensors[i].Name == "blk.0.ffn_up.weight" {
				copy(dst, encoded)
			}
		})[0]
		f, err := Open(write(t, "m.gguf", content))
		require.NoError(t, err)
		_, src, err := f.HF()
		require.NoError(t, err)
		info, _ := src.Lookup("model.layers.0.mlp.up_proj.weight")
		got := floats(t, src, info.Name)
		require.Equal(t, []int64{int64(rows), int64(cols)}, info.Shape)
		require.Equal(t, want, got, g.Name)
		require.NoError(t, f.Close())
	}
}

// Only tensors that lose nothing are shown in the narrow type.
func TestNarrowingIsExact(t *testing.T) {
	for typ, dtype := range map[Type]tensor.DType{BF16: tensor.BF16, F16: tensor.F16} {
		h := tiny("qwen2")
		for i := range h.Tensors {
			if h.Tensors[i].Dims == 2 {
				h.Tensors[i], _ = h.Tensors[i].WithType(typ)
			}
		}
		p, err := Plan(h, PlanOptions{Name: "m.gguf"})
		require.NoError(t, err)
		content := fill(t, p, func(i int, dst []byte) {
			tensor, _ := h.Find(p.Tensors[i].Name)
			rows := make([]float32, tensor.Elements())
			for j := range rows {
				rows[j] = 0.5
			}
			if tensor.Name == nameNorm {
				rows[3] = 0.1 // neither type has it
			}
			require.NoError(t, EncodeRows(dst, tensor.Type, rows))
		})[0]
		f, err := Open(write(t, "m.gguf", content))
		require.NoError(t, err)
		m, err := f.ToHF()
		require.NoError(t, err)
		for _, info := range m.Tensors.Tensors() {
			want := dtype
			if info.Name == "model.norm.weight" {
				want = tensor.F32
			}
			require.Equal(t, want, info.DType, info.Name)
			for i, x := range floats(t, m.Tensors, info.Name) {
				if !(info.Name == "model.norm.weight" && i == 3) {
					require.Equal(t, float32(0.5), x)
				}
			}
		}
		require.Contains(t, string(m.Config), map[Type]string{BF16: `"bfloat16"`, F16: `"float16"`}[typ])
		require.NotContains(t, m.Files, "tokenizer.json")
		require.NoError(t, f.Close())
	}
}

func TestNumbersAreSpelledShort(t *testing.T) {
	for x, want := range map[float64]string{float64(float32(1e-5)): "1e-05", 10000: "10000.0", float64(float32(0.1)): "0.1", 1e6: "1e+06", 500000: "500000.0"} {
		require.Equal(t, want, number(x).Text())
	}
}
