package chat

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
)

// TestRealTemplates compares renderings with those of Transformers' apply_chat_template. The directory named by
// QUANTIZE_TEMPLATES holds the templates (third-party, so not in this repository) and expected.json, a list of
// {template, messages, add_generation_prompt, and out or error}, rendered with bos <s>, eos </s>, unk <unk>,
// pad <pad> and the clock at 2024-07-26.
func TestRealTemplates(t *testing.T) {
	dir := os.Getenv("QUANTIZE_TEMPLATES")
	if dir == "" {
		t.Skip("QUANTIZE_TEMPLATES is not set")
	}
	data, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	require.NoError(t, err)
	var cases []struct {
		Template, Conversation string
		Messages               json.RawMessage
		Prompt                 bool    `json:"add_generation_prompt"`
		Out                    *string `json:"out"`
		Error                  string
	}
	require.NoError(t, json.Unmarshal(data, &cases))
	bad, all, equal := map[string]string{}, map[string]bool{}, 0
	for _, c := range cases {
		all[c.Template] = true
		src, err := os.ReadFile(filepath.Join(dir, c.Template))
		require.NoError(t, err)
		out, err := renderCase(string(src), c.Messages, c.Prompt)
		switch {
		case c.Out == nil && err != nil, c.Out != nil && err == nil && out == *c.Out:
			equal++
		case c.Out == nil:
			bad[c.Template] = "accepted " + c.Conversation + ", which Transformers refuses: " + c.Error
		case err != nil:
			bad[c.Template] = c.Conversation + ": " + err.Error()
		default:
			bad[c.Template] = c.Conversation + ": got " + strconv.Quote(out) + "\n want " + strconv.Quote(*c.Out)
		}
	}
	names := make([]string, 0, len(bad))
	for n := range bad {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, n := range names {
		t.Errorf("%s: %s", n, bad[n])
	}
	t.Logf("%d of %d renderings equal, %d of %d templates", equal, len(cases), len(all)-len(bad), len(all))
}

func renderCase(src string, messages []byte, prompt bool) (string, error) {
	tpl, err := Parse(src, "", map[string]string{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"})
	if err != nil {
		return "", err
	}
	v, err := safeio.ParseJSON(messages)
	if err != nil {
		return "", err
	}
	msgs, err := ParseMessages(v)
	if err != nil {
		return "", err
	}
	vars := tpl.variables(msgs)
	vars.Set("add_generation_prompt", prompt)
	return tpl.jinja.Render(context.Background(), vars)
}
