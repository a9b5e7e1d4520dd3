package tokenizer

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
)

func writeDir(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	return dir
}

func TestOpenGolm(t *testing.T) {
	tok, err := Open(filepath.Join(repoRoot(t), "testdata", "golm-llama"))
	require.NoError(t, err)
	require.Equal(t, 2048, tok.Vocab())
	ids := tok.Encode("func main() {\n\tfmt.Println(\"héllo\")\n}\n<|endoftext|>", true)
	require.EqualValues(t, 2047, ids[len(ids)-1])
	eos, ok := tok.EOS()
	require.True(t, ok)
	require.EqualValues(t, 2047, eos)
	_, ok = tok.BOS()
	require.False(t, ok)
	d := tok.Model()
	require.Equal(t, "gpt2", d.Model)
	require.Equal(t, "qwen2", d.Pre)
	require.Len(t, d.Merges, 1791)
	require.EqualValues(t, TypeControl, d.Types[2047])
	require.False(t, d.AddBOS)
}

// TestWhoAddsBOS: the post-processor of the file decides on ids where there is one, the configuration elsewhere.
func TestWhoAddsBOS(t *testing.T) {
	model := `{"type":"BPE","vocab":{"a":0,"b":1,"</s>":2,"<pad>":3},"merges":[]}`
	plain := document(map[string]string{"model": model})
	withPost := document(map[string]string{"model": model, "post_processor": byteLevelJSON})
	config := func(s string) string {
		return `{"bos_token":{"content":"<s>"},"eos_token":"</s>","pad_token":"<pad>",` + s + `}`
	}
	for _, c := range []struct {
		name, json, config string
		ids                []int32
		addBOS, addEOS     bool
	}{
		{"nothing said", plain, config(`"x":0`), []int32{0}, false, false},
		{"switched on", plain, config(`"add_bos_token":true,"add_eos_token":true`), []int32{4, 0, 2}, true, true},
		{"switched off", plain, config(`"add_bos_token":false,"add_eos_token":null`), []int32{0}, false, false},
		{"post-processor", withPost, config(`"add_bos_token":true`), []int32{0}, true, false},
		{"no such token", plain, `{"bos_token":"<none>","add_bos_token":true}`, []int32{0}, true, false},
	} {
		tok, err := Open(writeDir(t, map[string]string{"tokenizer.json": c.json, "tokenizer_config.json": c.config}))
		require.NoError(t, err, c.name)
		require.Equal(t, c.ids, tok.Encode("a", true), c.name)
		require.Equal(t, []int32{0}, tok.Encode("a", false), c.name)
		d := tok.Model()
		require.Equal(t, c.addBOS, d.AddBOS, c.name)
		require.Equal(t, c.addEOS, d.AddEOS, c.name)
	}
	tok, err := Open(writeDir(t, map[string]string{"tokenizer.json": plain, "config.json": `{"bos_token_id":4,"eos_token_id":[2,3],"pad_token_id":77}`}))
	require.NoError(t, err)
	d := tok.Model()
	require.Equal(t, [3]int32{4, 2, -1}, [3]int32{d.BOS, d.EOS, d.PAD})
}

func TestOpenSentencePiece(t *testing.T) {
	var model string
	for _, c := range loadReference(t).Cases {
		if c.Name == "spm-identity" {
			b, err := base64.StdEncoding.DecodeString(c.Model)
			require.NoError(t, err)
			model = string(b)
		}
	}
	tok, err := Open(writeDir(t, map[string]string{"tokenizer.model": model}))
	require.NoError(t, err)
	with, without := tok.Encode("layer", true), tok.Encode("layer", false)
	require.Equal(t, append([]int32{1}, without...), with, "BOS by default")
	d := tok.Model()
	require.Equal(t, "llama", d.Model)
	require.Equal(t, "default", d.Pre)
	require.True(t, d.AddBOS && d.AddSpacePrefix && d.ScoresExact)
	require.False(t, d.RemoveExtraWhitespaces)
	require.EqualValues(t, TypeByte, d.Types[3])
	require.EqualValues(t, TypeUnknown, d.Types[0])

	tok, err = Open(writeDir(t, map[string]string{"tokenizer.model": model, "tokenizer_config.json": `{"add_bos_token":false,"add_eos_token":true}`}))
	require.NoError(t, err)
	require.Equal(t, append(without, 2), tok.Encode("layer", true))
}

func TestOpenErrors(t *testing.T) {
	_, err := Open(writeDir(t, nil))
	require.ErrorIs(t, err, safeio.ErrUnsupported)
	_, err = Open(filepath.Join(t.TempDir(), "nowhere"))
	require.Error(t, err)
	dir := writeDir(t, map[string]string{"tokenizer.json": `{"model":`})
	_, err = Open(dir)
	require.ErrorIs(t, err, safeio.ErrCorrupt)
	var e *safeio.Error
	require.True(t, errors.As(err, &e))
	require.Equal(t, filepath.Join(dir, "tokenizer.json"), e.Path)
	_, err = Open(writeDir(t, map[string]string{"tokenizer.json": document(nil), "tokenizer_config.json": `{"add_bos_token":1}`}))
	require.ErrorIs(t, err, safeio.ErrCorrupt)
	_, err = Open(writeDir(t, map[string]string{"tokenizer.json": document(nil), "tokenizer_config.json": `[`}))
	require.ErrorIs(t, err, safeio.ErrCorrupt)
}
