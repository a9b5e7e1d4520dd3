package chat

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
)

// The templates below are written for this test in the manner of the families they are named after; the outputs were
// checked against Transformers 5.24.
var families = map[string]struct{ source, want string }{
	"header": { // Llama 3
		"{{ bos_token }}{% for m in messages %}{{ '<|start|>' + m['role'] + '<|end|>\n\n' + m['content'] | trim + '<|eot|>' }}{% endfor %}",
		"<s><|start|>system<|end|>\n\nBe brief.<|eot|><|start|>user<|end|>\n\nHi<|eot|><|start|>assistant<|end|>\n\nHello!<|eot|>",
	},
	"chatml": { // Qwen 2.5, with its default system message left out
		"{%- for message in messages %}\n    {%- if message.role == 'user' or message.role == 'system' or message.role == 'assistant' %}\n" +
			"        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n    {%- endif %}\n{%- endfor %}\n",
		"<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n",
	},
	"folded system": { // Mistral: the system message joins the first user message
		"{%- if messages[0].role == 'system' %}{% set sys = messages[0].content + '\\n\\n' %}{% set rest = messages[1:] %}{% else %}{% set sys = '' %}{% set rest = messages %}{% endif %}" +
			"{{- bos_token }}{% for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}" +
			"{% if m.role == 'user' %}[INST] {{ sys if loop.first }}{{ m.content }} [/INST]{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}",
		"<s>[INST] Be brief.\n\n Hi  [/INST] Hello!</s>",
	},
	"model role": { // Gemma
		"{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{% set role = 'model' if m.role == 'assistant' else m.role %}<start_of_turn>{{ role }}\n{{ m.content | trim }}<end_of_turn>\n{% endfor %}",
		"<s><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nHello!<end_of_turn>\n",
	},
	"generation": { // SmolLM3: training masks around the assistant
		"{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}{% else %}<{{ m.role }}>{{ m.content }}\n{% endif %}{% endfor %}",
		"<system>Be brief.\n<user> Hi \nHello!</s>",
	},
	"dated": { // Llama 3.2, Granite
		"Today is {{ strftime_now('%d %b %Y') }}.{% if tools is not none %}tools{% endif %}{% if x is defined %}x{% endif %}",
		"Today is 26 Jul 2024.",
	},
}

var conversation = []Message{NewMessage("system", "Be brief."), NewMessage("user", " Hi "), NewMessage("assistant", "Hello!")}

func TestFamilies(t *testing.T) {
	for name, f := range families {
		tpl, err := Parse(f.source, name, map[string]string{"bos_token": "<s>", "eos_token": "</s>"})
		require.NoError(t, err, name)
		got, err := tpl.Render(context.Background(), conversation)
		require.NoError(t, err, name)
		require.Equal(t, f.want, got, name)
		require.False(t, tpl.AddsSpecial())
	}
}

func TestBuiltin(t *testing.T) {
	got, err := Builtin(ChatML).Render(context.Background(), conversation[1:])
	require.NoError(t, err)
	require.Equal(t, "<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n", got)
	got, err = Builtin(Plain).Render(context.Background(), conversation[1:])
	require.NoError(t, err)
	require.Equal(t, " Hi \n\nHello!", got)
	require.True(t, Builtin(Plain).AddsSpecial())
	require.Nil(t, Builtin("other"))
}

func TestRefusals(t *testing.T) {
	tpl, err := Parse(families["folded system"].source, "m", map[string]string{"bos_token": "", "eos_token": ""})
	require.NoError(t, err)
	_, err = tpl.Render(context.Background(), []Message{NewMessage("assistant", "I start")})
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "roles must alternate", refused.Reason)

	tpl, err = Parse("{{ messages[0].content.missing.field }}", "m", nil)
	require.NoError(t, err)
	_, err = tpl.Render(context.Background(), conversation)
	require.ErrorAs(t, err, &refused)

	_, err = Parse("{% include '/etc/passwd' %}", "m.jinja", nil)
	require.ErrorIs(t, err, safeio.ErrUnsupported)
	require.ErrorContains(t, err, `render chat template m.jinja: the chat template cannot be used: line 1: the tag "include" is not supported`)
	var e *safeio.Error
	require.ErrorAs(t, err, &e)
	require.Contains(t, e.Hint, "--chat-template chatml|plain|FILE")

	tpl, err = Parse("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "m", nil)
	require.NoError(t, err)
	_, err = tpl.Render(context.Background(), conversation)
	require.ErrorIs(t, err, safeio.ErrLimit)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = tpl.Render(ctx, conversation)
	require.ErrorIs(t, err, context.Canceled)
}

func TestParseMessages(t *testing.T) {
	parse := func(s string) []Message {
		v, err := safeio.ParseJSON(s)
		require.NoError(t, err)
		m, err := ParseMessages(v)
		require.NoError(t, err)
		return m
	}
	m := parse(`[{"role":"user","content":"a"},{"content":[{"type":"text","text":"b"},{"type":"image"},{"type":"text","text":"c"}],"role":"assistant"},{"role":"tool","content":null}]`)
	require.Equal(t, []string{"user", "assistant", "tool"}, []string{m[0].Role, m[1].Role, m[2].Role})
	require.Equal(t, []string{"a", "bc", ""}, []string{m[0].Content, m[1].Content, m[2].Content})
	m = parse(`[{"from":"human","value":"q"},{"from":"gpt","value":"a"},{"from":"observation","value":"o"}]`)
	require.Equal(t, []string{"user", "assistant", "observation"}, []string{m[0].Role, m[1].Role, m[2].Role})

	tpl, err := Parse("{{ messages | tojson }}", "", nil)
	require.NoError(t, err)
	got, err := tpl.Render(context.Background(), parse(`[{"role":"assistant","content":"x","thinking":"t"},{"role":"assistant","reasoning":"r","content":""}]`))
	require.NoError(t, err)
	require.Equal(t, `[{"role": "assistant", "content": "x", "thinking": "t", "reasoning_content": "t"}, `+
		`{"thinking": "r", "role": "assistant", "reasoning": "r", "content": "", "reasoning_content": "r"}]`, got)

	for _, bad := range []string{`{}`, `["x"]`, `[{"content":"x"}]`, `[{"role":1,"content":"x"}]`, `[{"from":"human"}]`} {
		v, err := safeio.ParseJSON(bad)
		require.NoError(t, err)
		_, err = ParseMessages(v)
		require.ErrorIs(t, err, safeio.ErrCorrupt, bad)
	}
}

func modelDir(t *testing.T, files map[string]string) string {
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func TestOpen(t *testing.T) {
	const config = `"bos_token":{"content":"<s>","lstrip":false},"eos_token":"</s>","pad_token":null,"extra_special_tokens":{"image_token":"<img>"}`
	render := func(choice string, files map[string]string) string {
		dir := modelDir(t, files)
		tpl, err := Select(choice, dir, Dir(dir))
		require.NoError(t, err)
		out, err := tpl.Render(context.Background(), conversation[1:2])
		require.NoError(t, err)
		return out
	}
	require.Equal(t, "<s></s>||<img>", render("", map[string]string{
		"tokenizer_config.json": `{"chat_template":"{{ bos_token ~ eos_token }}|{{ pad_token }}|{{ image_token }}",` + config + `}`,
		"chat_template.json":    `{"chat_template":"not me"}`, "special_tokens_map.json": `{"pad_token":"<pad>"}`,
	}))
	require.Equal(t, "file <unk>", render("", map[string]string{
		"tokenizer_config.json": `{"chat_template":"config"}`, "chat_template.jinja": "file {{ unk_token }}\n", "special_tokens_map.json": `{"unk_token":"<unk>"}`,
	}))
	require.Equal(t, "d", render("", map[string]string{
		"tokenizer_config.json": `{"chat_template":[{"name":"tool_use","template":"t"},{"name":"default","template":"d"}]}`,
	}))
	require.Equal(t, "o", render("", map[string]string{"tokenizer_config.json": `{"chat_template":{"default":"o"}}`}))
	require.Equal(t, "legacy", render("", map[string]string{"chat_template.json": `{"chat_template":"legacy"}`}))
	require.Equal(t, " Hi ", render(Plain, nil))

	file := filepath.Join(t.TempDir(), "mine.jinja")
	require.NoError(t, os.WriteFile(file, []byte("mine {{ bos_token }}"), 0o600))
	require.Equal(t, "mine <s>", render(file, map[string]string{"tokenizer_config.json": `{` + config + `}`}))

	for _, c := range []struct {
		files map[string]string
		class error
	}{
		{nil, safeio.ErrUnsupported},
		{map[string]string{"tokenizer_config.json": `{"chat_template":null}`}, safeio.ErrUnsupported},
		{map[string]string{"tokenizer_config.json": `{"chat_template":[{"name":"rag","template":"x"}]}`}, safeio.ErrUnsupported},
		{map[string]string{"tokenizer_config.json": `{"chat_template":5}`}, safeio.ErrCorrupt},
		{map[string]string{"tokenizer_config.json": `{"chat_template":[{"template":"x"}]}`}, safeio.ErrCorrupt},
		{map[string]string{"tokenizer_config.json": `{`}, safeio.ErrCorrupt},
		{map[string]string{"tokenizer_config.json": `{"chat_template":"{% if %}"}`}, safeio.ErrUnsupported},
		{map[string]string{"chat_template.jinja": string(make([]byte, 2<<20))}, safeio.ErrLimit},
	} {
		dir := modelDir(t, c.files)
		_, err := Select("", dir, Dir(dir))
		require.ErrorIs(t, err, c.class, "%v", c.files)
	}
	_, err := Select("missing.jinja", "", Dir(""))
	require.ErrorIs(t, err, os.ErrNotExist)
}
