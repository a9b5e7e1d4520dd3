package tokenizer

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/llmquant/quantize/formats/safeio"
)

// Open reads the tokenizer of a model directory: tokenizer.json, or tokenizer.model where that is missing. From
// tokenizer_config.json and config.json it takes which tokens are BOS, EOS and so on; tokenizer_config.json also
// decides whether BOS and EOS are added when the tokenizer file itself does not say so (a tokenizer.json without
// post-processor, and every tokenizer.model, where BOS is the default as in Transformers and llama.cpp).
func Open(dir string) (*Tokenizer, error) {
	limits := safeio.DefaultLimits()
	path := filepath.Join(dir, "tokenizer.json")
	parse := Parse
	data, err := safeio.ReadFile(path, limits.TokenizerJSON)
	if errors.Is(err, fs.ErrNotExist) {
		path, parse = filepath.Join(dir, "tokenizer.model"), ParseSentencePiece
		data, err = safeio.ReadFile(path, limits.TokenizerJSON)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &safeio.Error{Op: "open tokenizer", Path: dir, Off: -1,
				Err: safeio.Unsupportedf("the directory has neither tokenizer.json nor tokenizer.model")}
		}
	}
	if err != nil {
		return nil, err
	}
	t, err := parse(data)
	if err != nil {
		return nil, safeio.WithPath(err, path)
	}
	for _, name := range [...]string{"tokenizer_config.json", "special_tokens_map.json", "config.json"} {
		path := filepath.Join(dir, name)
		v, err := safeio.ParseFile(path, limits.ConfigJSON)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		t.nameSpecials(v)
		if name == "tokenizer_config.json" {
			if err := t.configure(v); err != nil {
				return nil, safeio.WithPath(err, path)
			}
		}
	}
	t.wrapDefault()
	return t, nil
}

// nameSpecials takes the special tokens that v names and that no earlier file named: by text ("bos_token", a string or
// an added token's object) or by id ("bos_token_id"). Names of unknown tokens are passed over, as configurations are
// full of them.
func (t *Tokenizer) nameSpecials(v safeio.Value) {
	for kind, name := range specialNames {
		if t.about.named[kind] {
			continue
		}
		token := v.Get(name + "_token")
		if token.Kind() == safeio.Object {
			token = token.Get("content")
		}
		id := int32(-1)
		if text, err := token.Str(); err == nil {
			if known, ok := t.ID(text); ok {
				id = known
			}
		}
		if id < 0 {
			id = t.validID(v.Get(name + "_token_id"))
		}
		if id >= 0 {
			t.about.special[kind], t.about.named[kind] = id, true
		}
	}
}

// validID reads an id, or the first of a list of ids; -1 for anything else.
func (t *Tokenizer) validID(v safeio.Value) int32 {
	for item := range v.Items() {
		v = item
		break
	}
	n, err := v.Int()
	if err != nil || n < 0 || n >= int64(t.Vocab()) || !t.vocab.has(int32(n)) {
		return -1
	}
	return int32(n)
}

// configure reads whether BOS and EOS are added.
func (t *Tokenizer) configure(v safeio.Value) error {
	for _, f := range [...]struct {
		key string
		to  *switchable
	}{{"add_bos_token", &t.about.configBOS}, {"add_eos_token", &t.about.configEOS}} {
		if !v.Get(f.key).Exists() {
			continue
		}
		on, err := safeio.At(v, f.key, safeio.Value.Bool)
		if err != nil {
			return err
		}
		f.to.set, f.to.on = true, on
	}
	return nil
}

// wrapDefault settles what is put around a text. A post-processor in the file has the last word on ids; what the
// configuration says is still part of the description, as llama.cpp follows it.
func (t *Tokenizer) wrapDefault() {
	a := &t.about
	bos := a.configBOS.or(a.sentencePiece != nil) && a.special[specialBOS] >= 0
	eos := a.configEOS.or(false) && a.special[specialEOS] >= 0
	if !t.hasTemplate {
		if bos {
			t.prefix = []int32{a.special[specialBOS]}
		}
		if eos {
			t.suffix = []int32{a.special[specialEOS]}
		}
	}
	a.addBOS = a.configBOS.or(bos || slices.Contains(t.prefix, a.special[specialBOS]))
	a.addEOS = a.configEOS.or(eos || slices.Contains(t.suffix, a.special[specialEOS]))
}

// switchable is a flag that a file may or may not set.
type switchable struct{ set, on bool }

// or returns the flag, def when no file set it.
func (s switchable) or(def bool) bool {
	if s.set {
		return s.on
	}
	return def
}
