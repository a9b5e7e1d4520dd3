package chat

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
)

// maxTemplate bounds the file of a template; the largest known has 25 kB.
const maxTemplate = 1 << 20

// Files reads a file of a model by name; one that the model lacks gives fs.ErrNotExist. Not every model is a directory: a
// GGUF file holds the same in its metadata.
type Files func(name string) ([]byte, error)

// Dir reads the files of a directory.
func Dir(dir string) Files {
	return func(name string) ([]byte, error) {
		if dir == "" {
			return nil, fs.ErrNotExist
		}
		return safeio.ReadFile(filepath.Join(dir, name), safeio.DefaultLimits().ConfigJSON)
	}
}

// Select returns the template that a user asked for: "" is the model's own, chatml and plain are built in, anything else
// is a Jinja file (with the special tokens of the model). model names the model in messages.
func Select(choice, model string, files Files) (*Template, error) {
	if t := Builtin(choice); t != nil {
		return t, nil
	}
	if choice == "" {
		return Open(model, files)
	}
	config, err := readConfig(model, files)
	if err != nil {
		return nil, err
	}
	src, err := safeio.ReadFile(choice, maxTemplate)
	if err != nil {
		return nil, err
	}
	return Parse(string(src), choice, config.tokens())
}

// Open finds the chat template of a model where Transformers does: chat_template.jinja, then chat_template in
// tokenizer_config.json (a string, or a list of named ones of which "default" serves), then chat_template.json.
func Open(model string, files Files) (*Template, error) {
	config, err := readConfig(model, files)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(model, "chat_template.jinja")
	src, err := files("chat_template.jinja")
	if err == nil && len(src) > maxTemplate {
		err = &safeio.Error{Op: "read chat template", Path: path, Off: -1, Err: safeio.Limitf("%d bytes, more than %d", len(src), maxTemplate)}
	}
	if err == nil {
		return Parse(string(src), path, config.tokens())
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	path = filepath.Join(model, "tokenizer_config.json")
	source := config.main.Get("chat_template")
	if !source.Exists() {
		path = filepath.Join(model, "chat_template.json")
		legacy, err := optional(path, files)
		if err != nil {
			return nil, err
		}
		source = legacy.Get("chat_template")
	}
	text, err := defaultTemplate(source)
	if err != nil {
		return nil, &safeio.Error{Op: "read chat template", Path: path, Off: -1, Hint: Hint, Err: err}
	}
	if text == "" {
		return nil, &safeio.Error{Op: "read chat template", Path: model, Off: -1, Hint: Hint, Err: safeio.Unsupportedf(
			"the data holds conversations and the model has no chat template")}
	}
	return Parse(text, path, config.tokens())
}

// defaultTemplate picks the template out of a string, a list of {name, template} or an object by name.
func defaultTemplate(v safeio.Value) (string, error) {
	named := map[string]safeio.Value{}
	var names []string
	note := func(name string, t safeio.Value) {
		named[name] = t
		names = append(names, name)
	}
	switch v.Kind() {
	case safeio.Invalid, safeio.Null:
		return "", nil
	case safeio.String:
		return v.Str()
	case safeio.Array:
		for item := range v.Items() {
			name, err := item.Get("name").Str()
			if err != nil {
				return "", safeio.Corruptf("a chat template of a list has no name")
			}
			note(name, item.Get("template"))
		}
	case safeio.Object:
		for name, t := range v.Members() {
			note(name, t)
		}
	default:
		return "", safeio.Corruptf("chat_template is %s", v.Kind())
	}
	t, ok := named["default"]
	if !ok {
		return "", safeio.Unsupportedf(`the model has several chat templates and none of them is "default": %s`, strings.Join(names, ", "))
	}
	return t.Str()
}

// config holds the files that name a model's special tokens.
type config struct{ main, specials safeio.Value }

// readConfig reads the files that are there; a model may have neither.
func readConfig(model string, files Files) (config, error) {
	var c config
	var err error
	if c.main, err = optional(filepath.Join(model, "tokenizer_config.json"), files); err != nil {
		return c, err
	}
	c.specials, err = optional(filepath.Join(model, "special_tokens_map.json"), files)
	return c, err
}

// optional parses a JSON file, and takes a missing one for empty. path is for messages.
func optional(path string, files Files) (safeio.Value, error) {
	text, err := files(filepath.Base(path))
	if errors.Is(err, fs.ErrNotExist) {
		return safeio.Value{}, nil
	}
	if err != nil {
		return safeio.Value{}, err
	}
	v, err := safeio.ParseJSON(text)
	if err != nil {
		return v, safeio.WithPath(err, path)
	}
	return v, nil
}

// specialNames are the variables Transformers defines for a template, each only when the tokenizer has such a token.
var specialNames = [...]string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// tokens collects the special tokens under the names templates use.
func (c config) tokens() map[string]string {
	out := map[string]string{}
	for _, name := range specialNames {
		v := c.main.Get(name)
		if v.Kind() == safeio.Invalid { // a null is an answer: there is no such token
			v = c.specials.Get(name)
		}
		if text, ok := tokenText(v); ok {
			out[name] = text
		}
	}
	for name, v := range c.main.Get("extra_special_tokens").Members() {
		if text, ok := tokenText(v); ok {
			out[name] = text
		}
	}
	return out
}

// tokenText reads a token written as a string or as an object with its content.
func tokenText(v safeio.Value) (string, bool) {
	if v.Kind() == safeio.Object {
		v = v.Get("content")
	}
	s, err := v.Str()
	return s, err == nil
}
