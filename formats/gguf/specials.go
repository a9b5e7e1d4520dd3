package gguf

import (
	"github.com/llmquant/quantize/formats/safeio"
)

// Which token starts a text, which ends it and whether they are added is spread over three files that may contradict each
// other. The order of precedence below is the reference's, because a wrong BOS changes every answer of a model and users
// compare with llama.cpp. One thing is read more carefully here: a token given as an object ({"content": "<s>"}) equals
// the same token given as text.

// specials finds the ids of special tokens and whether BOS, EOS and SEP are added to a text.
type specials struct {
	t             *TokenizerInfo
	config, model safeio.Value // tokenizer_config.json, config.json
	vocab         int

	content map[string]string // token type -> text, from tokenizer_config.json and the template
	types   []string          // token types in the order of the keys
	ids     []named[int]
	add     []named[bool]
}

type named[T any] struct {
	name  string
	value T
}

// set replaces the value of a name or appends it: the order in which names first appear is the order of the keys.
func set[T any](list *[]named[T], name string, v T) {
	for i := range *list {
		if (*list)[i].name == name {
			(*list)[i].value = v
			return
		}
	}
	*list = append(*list, named[T]{name, v})
}

// specialKeys maps token types to keys; cls has none. The spelling of seperator is the format's.
var specialKeys = map[string]string{
	"bos": "bos", "eos": "eos", "unk": "unknown", "sep": "seperator", "pad": "padding", "mask": "mask", "eot": "eot", "eom": "eom",
}

// collect asks the sources in the reference's order: the template, tokenizer_config.json by text, config.json by number. The
// first id found for a type stays.
func (s *specials) collect() {
	s.types = []string{"bos", "eos", "unk", "sep", "pad", "cls", "mask"}
	s.content = make(map[string]string)
	for _, typ := range s.types {
		s.content[typ] = tokenText(s.config.Get(typ + "_token"))
	}
	if s.content["bos"] == "" {
		s.content["bos"] = s.content["cls"]
	}
	if s.content["eos"] == "" {
		s.content["eos"] = s.content["sep"]
	}
	s.readTemplate()
	if s.config.Exists() {
		for _, typ := range s.types {
			if b, err := s.config.Get("add_" + typ + "_token").Bool(); err == nil {
				set(&s.add, typ, b)
			}
			s.byContent(typ)
		}
	}
	for _, typ := range s.types {
		if id, err := s.model.Get(typ + "_token_id").Int(); err == nil {
			s.setID(typ, id)
		}
	}
}

// tokenText reads "<s>" or {"content": "<s>", …}.
func tokenText(v safeio.Value) string {
	if v.Kind() == safeio.Object {
		v = v.Get("content")
	}
	text, _ := v.Str()
	return text
}

// byContent finds the id of a type's text among the added tokens.
func (s *specials) byContent(typ string) {
	text := s.content[typ]
	if text == "" {
		return
	}
	for _, a := range s.t.Added {
		if a.Content == text {
			s.setID(typ, int64(a.ID))
			return
		}
	}
}

// setID keeps the first id found for a type.
func (s *specials) setID(typ string, id int64) {
	for _, have := range s.ids {
		if have.name == typ {
			return
		}
	}
	if id >= 0 && id < int64(s.vocab) {
		s.ids = append(s.ids, named[int]{typ, int(id)})
	}
}

// readTemplate derives from the post-processor which tokens are put around a text.
func (s *specials) readTemplate() {
	single, pair := s.t.Single, s.t.Pair
	first, last := "", ""
	if len(single) > 1 {
		if first = single[0].Special; first != "" {
			if !s.config.Exists() {
				s.content["bos"] = first
			}
			set(&s.add, "bos", first == s.content["bos"] || first == s.content["cls"])
		}
		if last = single[len(single)-1].Special; last != "" {
			s.closeWith(last)
		}
	}
	if sep, ok := s.separator(pair, first, last); ok {
		set(&s.add, "sep", sep)
	}
}

// closeWith makes the template's last token the end token; a different one from the config then ends a turn.
func (s *specials) closeWith(last string) {
	if old := s.content["eos"]; s.config.Exists() && old != last {
		for _, spare := range []string{"eot", "eom"} {
			if _, taken := s.content[spare]; !taken {
				s.types = append(s.types, spare)
				s.content[spare] = old
				break
			}
		}
	}
	s.content["eos"] = last
	set(&s.add, "eos", true)
}

// separator reports whether a separator stands between the two texts of a pair; ok is false when the template for pairs
// has another form than "A … B".
func (s *specials) separator(pair []TemplatePiece, first, last string) (sep, ok bool) {
	if len(pair) > 0 && first != "" && pair[0].Special == first {
		pair = pair[1:]
	}
	if len(pair) > 0 && last != "" && pair[len(pair)-1].Special == last {
		pair = pair[:len(pair)-1]
	}
	if len(pair) < 3 || pair[0].Sequence != "A" || pair[len(pair)-1].Sequence != "B" {
		return false, false
	}
	between := func(p TemplatePiece) bool {
		return p.Special != "" && (p.Special == s.content["sep"] || p.Special == s.content["eos"])
	}
	pair = pair[1 : len(pair)-1]
	sep = between(pair[0]) && last == ""
	if len(pair) == 2 {
		sep = sep || between(pair[1])
	}
	return sep, true
}

// write sets the keys in the order in which the facts were found.
func (s *specials) write(kv *Metadata) {
	for _, id := range s.ids {
		if key, ok := specialKeys[id.name]; ok {
			kv.Set("tokenizer.ggml."+key+"_token_id", Uint32(uint32(id.value)))
		}
	}
	bos := false
	for _, a := range s.add {
		if a.name == "bos" || a.name == "eos" || a.name == "sep" {
			kv.Set("tokenizer.ggml.add_"+a.name+"_token", Bool(a.value))
			bos = bos || a.name == "bos"
		}
	}
	if s.t.DefaultBOS && !bos { // the tokenizer adds none, llama.cpp would
		kv.Set("tokenizer.ggml.add_bos_token", Bool(false))
	}
}
