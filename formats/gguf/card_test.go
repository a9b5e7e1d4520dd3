package gguf

import (
	"testing"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/stretchr/testify/require"
)

func TestReadCard(t *testing.T) {
	c := readCard([]byte("---\r\n" + `license: apache-2.0 # the usual
license_name: "a \"b\" #c"
language: [en, 'no', "x,y"]
tags:
- chat
-  'it''s'
  # a comment
- "two words"
model-index:
- name: x
  results:
  - task: {type: y}
datasets:
  - org/set
empty:
nothing: null
tilde: ~
map: {a: b}
description: |
  first
    second
folded: >-
  one
  two
long: plain text
  that goes on # comment
url: https://example.com/a#b
"quoted": yes
pipeline_tag: text-generation
---
license: not this
`))
	require.Equal(t, card{
		"license": {"apache-2.0"}, "license_name": {`a "b" #c`}, "language": {"en", "no", "x,y"},
		"tags": {"chat", "it's", "two words"}, "datasets": {"org/set"}, "description": {"first\n  second\n"},
		"folded": {"one two\n"}, "long": {"plain text that goes on"}, "url": {"https://example.com/a#b"},
		"quoted": {"yes"}, "pipeline_tag": {"text-generation"},
	}, c)
	for _, none := range []string{"", "no front matter", "----\nlicense: x", "text\n---\nlicense: x\n---"} {
		require.Empty(t, readCard([]byte(none)), none)
	}
	require.Equal(t, card{"license": {"mit"}}, readCard([]byte("---\nlicense: mit")), "an unclosed block counts")
}

func FuzzCard(f *testing.F) {
	f.Add([]byte("---\nlicense: mit\ntags:\n- a\n- b: c\nx: [a, \"b\"]\ny: |\n  t\n---\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, values := range readCard(text) {
			for _, v := range values {
				if got := readCard([]byte("---\nk: " + quoteYAML(v) + "\n---\n"))["k"]; len(v) > 0 && v[0] >= 'a' && v[0] <= 'z' && (len(got) != 1 || got[0] != v) {
					t.Fatalf("%q comes back as %q", v, got)
				}
			}
		}
	})
}

func TestParseModelID(t *testing.T) {
	const b = 1_000_000_000
	for _, c := range []struct {
		id     string
		params int64
		want   modelID
	}{
		{"golm-llama", 4_196_608, modelID{name: "golm-llama"}},
		{"Qwen/Qwen2.5-7B-Instruct", 7*b + b/2, modelID{name: "Qwen2.5-7B-Instruct", organization: "Qwen", basename: "Qwen2.5", finetune: "Instruct", size: "7B"}},
		{"mistralai/Mixtral-8x7B-v0.1", 46 * b, modelID{name: "Mixtral-8x7B-v0.1", organization: "mistralai", basename: "Mixtral", version: "v0.1", size: "8x7B"}},
		{"Meta-Llama-3.1-8B-Instruct", 8 * b, modelID{name: "Meta-Llama-3.1-8B-Instruct", basename: "Meta-Llama-3.1", finetune: "Instruct", size: "8B"}},
		{"Qwen3-30B-A3B", 30 * b, modelID{name: "Qwen3-30B-A3B", basename: "Qwen3", size: "30B-A3B"}},
		{"bloom-7b1", 7 * b, modelID{name: "bloom-7b1", basename: "bloom", size: "7.1B"}},
		{"Mistral-7B-Instruct-v0.2", 7 * b, modelID{name: "Mistral-7B-Instruct-v0.2", basename: "Mistral", finetune: "Instruct", version: "v0.2", size: "7B"}},
		{"Phi-3-mini-4k-instruct", 4 * b, modelID{name: "Phi-3-mini-4k-instruct", basename: "Phi-3", finetune: "4k-instruct", size: "mini"}},
		{"a model of mine", b, modelID{name: "a model of mine"}},
		{"./models", b, modelID{name: "models"}},
		{"x-7b-F16", 7 * b, modelID{name: "x-7b-F16", basename: "x", size: "7B"}},
	} {
		require.Equal(t, c.want, parseModelID(c.id, c.params), c.id)
	}
}

func TestTitle(t *testing.T) {
	for in, want := range map[string]string{"golm-llama": "Golm Llama", "Qwen2.5-7B": "Qwen2.5 7B", "my-v1.2-r1abc": "My v1.2 R1Abc", "  a  b ": "A B", "7b-chat": "7b Chat"} {
		require.Equal(t, want, title(in))
	}
}

func TestShortSizes(t *testing.T) {
	for n, want := range map[int64]string{0: "0.00K", 999: "1.0K", 4_196_608: "4.2M", 15_000_000: "15M", 1_100_000_000: "1.1B", 70_553_706_496: "71B", 671_026_419_200: "671B", 2_000_000_000_000: "2.0T"} {
		require.Equal(t, want, short(n))
	}
}

// general writes the keys for a model with everything on its card.
func TestGeneralKeys(t *testing.T) {
	o := &ConvertOptions{Name: "some/dir/tiny-1B-chat-v2", Side: map[string][]byte{
		"README.md": []byte(`---
license: [mit, apache-2.0]
license_link: https://example.com/l
model_creator: Ada
base_model: org/base-1B
datasets:
- https://huggingface.co/org/data-v1
- https://example.com/other
language: en
tags: [a]
pipeline_tag: text-generation
---`),
		"generation_config.json": []byte(`{"temperature": 0.5, "top_k": 20, "top_p": 1, "do_sample": true, "sequence": "kpt"}`),
	}}
	w := &writer{kv: &Metadata{}, model: &arch.Model{GGUF: arch.GGUF{Arch: "llama"}}, o: o}
	tensor, _ := NewTensor("a", F32, 1_000_000_000)
	w.tensors = []Tensor{tensor}
	require.NoError(t, w.general())
	var got [][3]string
	for key, v := range w.kv.All() {
		got = append(got, [3]string{key, v.TypeName(), v.Format(9)})
	}
	require.Equal(t, [][3]string{
		{"general.architecture", "str", "llama"}, {"general.type", "str", "model"},
		{"general.sampling.sequence", "str", "kpt"}, {"general.sampling.top_k", "i32", "20"},
		{"general.sampling.top_p", "f32", "1"}, {"general.sampling.temp", "f32", "0.5"},
		{"general.name", "str", "Tiny 1B Chat v2"}, {"general.author", "str", "Ada"}, {"general.version", "str", "v2"},
		{"general.finetune", "str", "chat"}, {"general.basename", "str", "tiny"}, {"general.size_label", "str", "1B"},
		{"general.license", "str", "mit,apache-2.0"}, {"general.license.link", "str", "https://example.com/l"},
		{"general.base_model.count", "u32", "1"}, {"general.base_model.0.name", "str", "Base 1B"},
		{"general.base_model.0.organization", "str", "Org"}, {"general.base_model.0.repo_url", "str", "https://huggingface.co/org/base-1B"},
		{"general.dataset.count", "u32", "2"}, {"general.dataset.0.name", "str", "Data v1"}, {"general.dataset.0.version", "str", "v1"},
		{"general.dataset.0.organization", "str", "Org"}, {"general.dataset.0.repo_url", "str", "https://huggingface.co/org/data-v1"},
		{"general.dataset.1.repo_url", "str", "https://example.com/other"},
		{"general.tags", "arr[str]", `["a", "text-generation"]`}, {"general.languages", "arr[str]", `["en"]`},
	}, got)
	o.Side["generation_config.json"] = []byte(`{"top_k": "many"}`)
	require.ErrorContains(t, w.general(), "generation_config.json")
}
