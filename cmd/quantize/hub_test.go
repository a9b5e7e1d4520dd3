package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// hubCache lays a model out as huggingface_hub's cache does: content by hash, snapshots of links, the branch's revision.
func hubCache(t *testing.T, model string, extra map[string]string) string {
	dir := filepath.Join(t.TempDir(), "models--org--tiny")
	snapshot := filepath.Join(dir, "snapshots", strings.Repeat("ab", 20))
	blobs := filepath.Join(dir, "blobs")
	for _, d := range []string{snapshot, blobs, filepath.Join(dir, "refs")} {
		require.NoError(t, os.MkdirAll(d, 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "refs", "main"), []byte(filepath.Base(snapshot)), 0o644))
	add := func(name string, content []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(blobs, "blob-of-"+name), content, 0o644))
		require.NoError(t, os.Symlink(filepath.Join("..", "..", "blobs", "blob-of-"+name), filepath.Join(snapshot, name)))
	}
	for name := range entries(t, model) {
		content, err := os.ReadFile(filepath.Join(model, name))
		require.NoError(t, err)
		add(name, content)
	}
	for name, content := range extra {
		add(name, []byte(content))
	}
	return dir
}

// A Hub cache directory serves every command like the model's own directory, chat template and tokenizer included.
func TestHubCacheDirectory(t *testing.T) {
	cache := hubCache(t, golm, map[string]string{"chat_template.jinja": `{% for m in messages %}{{ m.content }};{% endfor %}`})
	require.Equal(t, quantize(t, "tokenize", golm, "func main").ok(t).out, quantize(t, "tokenize", cache, "func main").ok(t).out)
	chat := filepath.Join(t.TempDir(), "chat.jsonl")
	require.NoError(t, os.WriteFile(chat, []byte(`{"messages":[{"role":"user","content":"func"},{"role":"assistant","content":"main"}]}`), 0o644))
	require.Equal(t, quantize(t, "tokenize", golm, "func;main;", "--no-special").ok(t).out,
		quantize(t, "tokenize", cache, "--file", chat, "--no-special").ok(t).out)
	quantize(t, "tokenize", golm, "--file", chat).fails(t, exitUnsupported, "no chat template")

	out := filepath.Join(t.TempDir(), "out")
	quantize(t, cache, "--method", "rtn", "--group-size", "32", "-o", out).ok(t)
	quantize(t, "verify", out, "--base", golm).ok(t)
	quantize(t, cache, "--method", "rtn", "-o", filepath.Join(cache, "out")).fails(t, exitUnsupported, cache)

	// Links that leave the cache are not followed.
	secret := filepath.Join(t.TempDir(), "secret.json")
	require.NoError(t, os.WriteFile(secret, []byte("{}"), 0o644))
	link := filepath.Join(cache, "snapshots", strings.Repeat("ab", 20), "config.json")
	require.NoError(t, os.Remove(link))
	require.NoError(t, os.Symlink(secret, link))
	r := quantize(t, "inspect", cache)
	require.NotEqual(t, 0, r.code, r.out)
}
