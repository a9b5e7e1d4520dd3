package gguf

import (
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
)

// tokenizer.json is rebuilt from vocabulary, merges and names so that the ids come out as llama.cpp computes them. For
// byte-level BPE that is what the original tokenizer does. For SentencePiece vocabularies it is what tokenizer.model does;
// a tokenizer.json that treats leading spaces otherwise (Metaspace with prepend_scheme "first") cannot be told from it.

// tokenizerJSON reconstructs tokenizer.json.
func (f *File) tokenizerJSON(p *params) ([]byte, error) {
	v, err := f.readVocabulary(p)
	if v == nil || err != nil {
		return nil, err
	}
	o := &object{}
	o.add("version", "1.0")
	o.add("truncation", nil)
	o.add("padding", nil)
	o.add("added_tokens", v.addedTokens())
	build := v.bytePieces
	if v.model == ModelSentencePiece {
		build = v.sentencePieces
	}
	if err := build(o, f); err != nil {
		return nil, err
	}
	return o.bytes()
}

// composed lists vocabularies whose tokenizers compose Unicode (NFC) first, by pre-tokenizer and number of plain tokens.
// GGUF does not record normalizers, and llama.cpp applies none.
var composed = [...]struct {
	pre   string
	plain int
}{{"qwen2", 151643}, {"deepseek-r1-qwen", 151643}}

// normalizer returns what is known about a vocabulary beyond the file.
func (v *vocabulary) normalizer() any {
	for _, c := range composed {
		if v.pre == c.pre && v.embedded() == c.plain {
			return map[string]any{"type": "NFC"}
		}
	}
	return nil
}

// bytePieces writes a byte-level BPE.
func (v *vocabulary) bytePieces(o *object, f *File) error {
	steps, ignoreMerges, ok := preOf(v.pre)
	if !ok {
		return safeio.Unsupportedf("the pre-tokenizer %q is not known here", v.pre)
	}
	vocab, err := v.vocab()
	if err != nil {
		return err
	}
	merges := make([][2]string, len(v.merges))
	for i, m := range v.merges {
		left, right, ok := strings.Cut(m, " ")
		if !ok {
			return safeio.Corruptf("the merge %q is no pair", m)
		}
		merges[i] = [2]string{left, right}
	}
	o.add("normalizer", v.normalizer())
	o.add("pre_tokenizer", steps)
	o.add("post_processor", f.postProcessor(v))
	o.add("decoder", byteLevelStep(true, true))
	model := &object{}
	model.add("type", "BPE")
	for _, key := range []string{"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"} {
		model.add(key, nil)
	}
	model.add("fuse_unk", false)
	model.add("byte_fallback", false)
	model.add("ignore_merges", ignoreMerges)
	model.add("vocab", vocab)
	model.add("merges", merges)
	return o.addObject("model", model)
}

// sentencePieces writes a SentencePiece vocabulary as BPE with byte fallback, as Transformers' converter does: every split
// of a piece into two pieces is a merge, ranked by the score of the result.
func (v *vocabulary) sentencePieces(o *object, f *File) error {
	vocab, err := v.vocab()
	if err != nil {
		return err
	}
	merges, err := v.mergesFromScores()
	if err != nil {
		return err
	}
	prefix := true
	if b, err := f.KV.Bool("tokenizer.ggml.add_space_prefix"); err == nil {
		prefix = b
	}
	replace := map[string]any{"type": "Replace", "pattern": map[string]any{"String": " "}, "content": spaceMark}
	steps := []any{replace}
	decoders := []any{
		map[string]any{"type": "Replace", "pattern": map[string]any{"String": spaceMark}, "content": " "},
		map[string]any{"type": "ByteFallback"}, map[string]any{"type": "Fuse"},
	}
	if prefix {
		steps = []any{map[string]any{"type": "Prepend", "prepend": spaceMark}, replace}
		decoders = append(decoders, map[string]any{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	o.add("normalizer", map[string]any{"type": "Sequence", "normalizers": steps})
	o.add("pre_tokenizer", nil)
	o.add("post_processor", f.postProcessor(v))
	o.add("decoder", map[string]any{"type": "Sequence", "decoders": decoders})
	model := &object{}
	model.add("type", "BPE")
	model.add("dropout", nil)
	model.add("unk_token", f.tokenOf(v, "unk"))
	model.add("continuing_subword_prefix", nil)
	model.add("end_of_word_suffix", nil)
	model.add("fuse_unk", true)
	model.add("byte_fallback", true)
	model.add("ignore_merges", false)
	model.add("vocab", vocab)
	model.add("merges", merges)
	return o.addObject("model", model)
}

// addObject adds a nested object.
func (o *object) addObject(key string, inner *object) error {
	v, err := inner.value()
	if err != nil {
		return err
	}
	o.add(key, v)
	return o.err
}
