//go:build unix

package hf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safeio/safeiotest"
)

// hostile is a way to damage a sharded checkpoint. The name begins with the class that opening it must end in.
type hostile struct {
	name   string
	damage func(t *testing.T, dir string)
}

// put replaces or adds a file.
func put(name, text string) func(*testing.T, string) {
	return func(t *testing.T, dir string) { tree{name: text}.write(t, dir) }
}

func remove(names ...string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		for _, n := range names {
			require.NoError(t, os.Remove(filepath.Join(dir, n)))
		}
	}
}

func link(target, name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		os.Remove(filepath.Join(dir, name))
		require.NoError(t, os.Symlink(target, filepath.Join(dir, name)))
	}
}

func fifo(name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		os.Remove(filepath.Join(dir, name))
		require.NoError(t, syscall.Mkfifo(filepath.Join(dir, name), 0o644))
	}
}

func mkdir(name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		os.Remove(filepath.Join(dir, name))
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
}

func both(a, b func(*testing.T, string)) func(*testing.T, string) {
	return func(t *testing.T, dir string) { a(t, dir); b(t, dir) }
}

// hostiles is the corpus of indexes, configurations, names and links.
func hostiles(t *testing.T) []hostile {
	to := func(file string) string { return index(t, "a", shard1, "b", file) }
	raw := func(weightMap string) func(*testing.T, string) { return put(indexName, `{"weight_map":`+weightMap+`}`) }
	cases := []hostile{
		{"ok-untouched", func(*testing.T, string) {}},
		{"ok-link-inside", both(put("blob", weightsFile(t, "b")), link("blob", shard2))},
		// What the index may say.
		{"corrupt-index-empty", put(indexName, "")},
		{"corrupt-index-not-json", put(indexName, "weight_map: {}")},
		{"corrupt-index-array", put(indexName, "[]")},
		{"corrupt-index-null", put(indexName, "null")},
		{"corrupt-index-without-weight-map", put(indexName, `{"metadata":{}}`)},
		{"corrupt-index-upper-case-weight-map", put(indexName, `{"WEIGHT_MAP":{"a":"`+shard1+`","b":"`+shard2+`"}}`)},
		{"corrupt-weight-map-array", raw(`["a"]`)},
		{"corrupt-weight-map-null", raw(`null`)},
		{"corrupt-weight-map-empty", raw(`{}`)},
		{"corrupt-weight-map-number", raw(`{"a":1}`)},
		{"corrupt-weight-map-list", raw(`{"a":["` + shard1 + `"]}`)},
		{"corrupt-weight-map-duplicate-tensor", raw(`{"a":"` + shard1 + `","b":"` + shard2 + `","a":"` + shard2 + `"}`)},
		{"corrupt-weight-map-duplicate-by-escape", raw(`{"a":"` + shard1 + `","b":"` + shard2 + `","\u0061":"` + shard2 + `"}`)},
		{"corrupt-duplicate-weight-map", put(indexName, `{"weight_map":{"a":"`+shard1+`"},"weight_map":{"b":"`+shard2+`"}}`)},
		{"limit-index-nesting-bomb", put(indexName, strings.Repeat(`{"weight_map":`, 100_000))},
		// File names are attacker text.
		{"corrupt-name-parent", put(indexName, to("../"+shard2))},
		{"corrupt-name-absolute", put(indexName, to("/etc/passwd"))},
		{"corrupt-name-subdirectory", put(indexName, to("sub/"+shard2))},
		{"corrupt-name-dot", put(indexName, to("./"+shard2))},
		{"corrupt-name-backslash", put(indexName, to(`..\`+shard2))},
		{"corrupt-name-drive", put(indexName, to("C:"+shard2))},
		{"corrupt-name-nul", put(indexName, `{"weight_map":{"a":"`+shard1+`","b":"`+shard2+`\u0000"}}`)},
		{"corrupt-name-device", put(indexName, to("nul.safetensors"))},
		{"corrupt-name-empty", put(indexName, to(""))},
		{"corrupt-name-url", put(indexName, to("https://example.com/x.safetensors"))},
		{"corrupt-name-not-safetensors", put(indexName, to("pytorch_model.bin"))},
		{"corrupt-name-config", put(indexName, to(ConfigName))},
		{"limit-name-too-long", put(indexName, to(strings.Repeat("n", 300)+".safetensors"))},
		{"corrupt-names-differ-in-case", both(put(strings.ToUpper(shard1[:5])+shard1[5:], weightsFile(t, "c")),
			put(indexName, index(t, "a", shard1, "b", shard2, "c", "MODEL"+shard1[5:])))},
		// Index and files against each other.
		{"corrupt-shard-missing", remove(shard2)},
		{"corrupt-all-shards-missing", remove(shard1, shard2)},
		{"corrupt-extra-shard", put("model-00003-of-00003.safetensors", weightsFile(t, "c"))},
		{"corrupt-single-file-beside", put("model.safetensors", weightsFile(t, "a", "b"))},
		{"corrupt-tensor-not-in-index", put(indexName, index(t, "a", shard1, "x", shard2))},
		{"corrupt-tensor-missing-in-files", put(indexName, index(t, "a", shard1, "b", shard2, "c", shard2))},
		{"corrupt-tensor-in-other-shard", put(indexName, index(t, "a", shard2, "b", shard1))},
		{"corrupt-tensor-in-two-shards", both(put(shard2, weightsFile(t, "a", "b")), put(indexName, index(t, "a", shard1, "b", shard2)))},
		{"corrupt-shard-truncated", put(shard2, weightsFile(t, "b")[:60])},
		{"corrupt-shard-empty", put(shard2, "")},
		{"corrupt-shard-is-an-lfs-pointer", put(shard2, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")},
		{"corrupt-no-index-incomplete-set", remove(indexName, shard2)},
		{"corrupt-no-index-two-sets", both(remove(indexName), put("other-00001-of-00001.safetensors", weightsFile(t, "c")))},
		{"corrupt-no-index-set-and-single", both(remove(indexName), put("model.safetensors", weightsFile(t, "c")))},
		{"corrupt-no-index-two-files", both(remove(indexName, shard1, shard2), both(put("x.safetensors", weightsFile(t, "c")), put("y.safetensors", weightsFile(t, "d"))))},
		{"corrupt-no-index-tensor-twice", both(remove(indexName), put(shard2, weightsFile(t, "a")))},
		// Kinds of files and links.
		{"corrupt-shard-link-outside", link("../secret", shard2)},
		{"corrupt-shard-link-absolute", link("/etc/hostname", shard2)},
		{"corrupt-side-link-outside", link("../secret", "tokenizer.json")},
		{"corrupt-config-link-outside", link("../secret", ConfigName)},
		{"corrupt-shard-dangling-link", link("nowhere", shard2)},
		{"corrupt-shard-pipe", fifo(shard2)},
		{"corrupt-shard-directory", mkdir(shard2)},
		{"corrupt-index-pipe", fifo(indexName)},
		{"corrupt-config-pipe", fifo(ConfigName)},
		{"corrupt-config-directory", mkdir(ConfigName)},
		{"corrupt-side-pipe", fifo("tokenizer.json")},
		// The configuration.
		{"absent-config", remove(ConfigName)},
		{"corrupt-config-empty", put(ConfigName, "")},
		{"corrupt-config-array", put(ConfigName, "[]")},
		{"corrupt-config-string", put(ConfigName, `"llama"`)},
		{"corrupt-config-duplicate-key", put(ConfigName, `{"hidden_size":1,"hidden_size":2}`)},
		{"corrupt-config-trailing", put(ConfigName, `{} {}`)},
		{"corrupt-config-infinity", put(ConfigName, `{"x":Infinity}`)},
		{"corrupt-quant-method-number", put(ConfigName, `{"quantization_config":{"quant_method":4}}`)},
		{"unsupported-quant-method-unknowable", put(ConfigName, `{"quantization_config":{"bits":4}}`)},
		{"corrupt-quant-file-not-json", put("quantize_config.json", "bits: 4")},
		{"limit-config-huge", func(t *testing.T, dir string) {
			require.NoError(t, os.Truncate(filepath.Join(dir, ConfigName), 17<<20))
		}},
		{"limit-index-huge", func(t *testing.T, dir string) {
			require.NoError(t, os.Truncate(filepath.Join(dir, indexName), 257<<20))
		}},
		{"limit-side-huge", both(put("a.txt", ""), func(t *testing.T, dir string) { require.NoError(t, os.Truncate(filepath.Join(dir, "a.txt"), 4<<30+1)) })},
		// Weights in formats that execute code.
		{"unsupported-pickles-only", both(remove(indexName, shard1, shard2), put("pytorch_model.bin", "pickle"))},
		{"unsupported-pickles-without-config", both(remove(ConfigName, indexName, shard1, shard2), put("consolidated.00.pth", "pickle"))},
		{"unsupported-gguf-only", both(remove(indexName, shard1, shard2), put("model.gguf", "GGUF"))},
		{"absent-everything", remove(ConfigName, indexName, shard1, shard2)},
		{"absent-weights", remove(indexName, shard1, shard2)},
	}
	return cases
}

var classes = map[string]error{"corrupt": safeio.ErrCorrupt, "limit": safeio.ErrLimit, "unsupported": safeio.ErrUnsupported, "absent": fs.ErrNotExist}

func TestHostileDirectories(t *testing.T) {
	cases := hostiles(t)
	require.GreaterOrEqual(t, len(cases), 40)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			base := t.TempDir()
			tree{"secret": weightsFile(t, "b")}.write(t, base)
			dir := filepath.Join(base, "model")
			shardedTree(t).write(t, dir)
			c.damage(t, dir)
			var err error
			safeiotest.CheckAllocation(t, 1<<20, func() { _, err = open(t, dir) })
			class, _, _ := strings.Cut(c.name, "-")
			if class == "ok" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, classes[class])
			for other, sentinel := range classes {
				require.Equal(t, other == class, errors.Is(err, sentinel), "%v", err)
			}
			require.Contains(t, err.Error(), dir, "the message names the file")
		})
	}
}

// FuzzIndex: an accepted index names plain safetensors files, each of them once, and reads as encoding/json reads it.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"weight_map":{"a":"x.safetensors","b":"y.safetensors"}}`))
	f.Add([]byte(`{"metadata":{"total_size":1},"weight_map":{"a":"../x.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":"x.safetensors","\u0061":"x.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":"X.safetensors","b":"x.safetensors"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var l *layout
		var err error
		safeiotest.CheckAllocation(t, len(data), func() { l, err = parseIndex(data, safeio.DefaultLimits()) })
		if err != nil {
			require.True(t, errors.Is(err, safeio.ErrCorrupt) || errors.Is(err, safeio.ErrLimit), fmt.Sprint(err))
			return
		}
		require.NoError(t, safeio.CheckNames(l.shards))
		used := map[string]bool{}
		for _, file := range l.home {
			require.Equal(t, weights, classify(file))
			used[file] = true
		}
		require.Len(t, used, len(l.shards))
	})
}
