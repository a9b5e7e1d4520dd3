package mixture

import (
	"os"
	"strings"
	"testing"

	"github.com/llmquant/quantize/formats/gguf"
	"github.com/stretchr/testify/require"
)

// overrideKV reads --override-kv KEY=TYPE:VALUE as llama-quantize stores it: integers as u32 of the magnitude.
func overrideKV(t *testing.T, arg string) gguf.KV {
	t.Helper()
	key, rest, _ := strings.Cut(arg, "=")
	typ, text, _ := strings.Cut(rest, ":")
	values := map[string]gguf.Value{
		"int:1024": gguf.Uint32(1024), "int:-3": gguf.Uint32(3), "float:0.1": gguf.Float32(0.1), "bool:true": gguf.Bool(true), "bool:false": gguf.Bool(false),
	}
	v, ok := values[typ+":"+text]
	if !ok {
		require.Equal(t, "str", typ)
		v = gguf.String(text)
	}
	return gguf.KV{Key: key, Value: v}
}

// optionRun is a recorded run of llama-quantize with options, taken apart.
type optionRun struct {
	o         Options
	source    string
	imatrix   string
	include   []string
	exclude   []string
	overrides []gguf.KV
}

// parseRun understands the options that change the file; ok is false for the others.
func parseRun(t *testing.T, args []string) (r optionRun, ok bool) {
	t.Helper()
	var rest []string
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "--imatrix":
			r.imatrix = args[i+1]
			i++
		case "--include-weights":
			r.include = append(r.include, args[i+1])
			i++
		case "--exclude-weights":
			r.exclude = append(r.exclude, args[i+1])
			i++
		case "--override-kv":
			r.overrides = append(r.overrides, overrideKV(t, args[i+1]))
			i++
		case "--prune-layers", "--tensor-type-file", "--keep-split", "--dry-run":
			return r, false
		case "--allow-requantize":
		default:
			rest = append(rest, args[i])
		}
	}
	if rest[len(rest)-2] == Copy {
		r.o.Copy, r.source = true, rest[0]
		return r, true
	}
	r.o, ok = parseFlags(t, rest)
	r.o.Imatrix = r.imatrix != ""
	r.source = rest[len(rest)-4]
	return r, ok
}

func containsAny(name string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(name, p) {
			return true
		}
	}
	return false
}

// Every recorded run with options gives the same file: overrides, filters, legacy importance matrices, requantization.
func TestOptionFilesEqualLlamaQuantize(t *testing.T) {
	if os.Getenv("QUANTIZE_LONG") == "" {
		t.Skip("QUANTIZE_LONG=1 makes the files of all options")
	}
	var doc struct {
		Runs map[string]struct {
			Arguments []string
			RC        int
			SHA256    string `json:"sha256"`
		}
	}
	readGolden(t, "options.json.gz", &doc)
	sources := map[string]*source{"golm-llama-BF16.gguf": convert(t, "golm-llama"), "golm-qwen2-BF16.gguf": convert(t, "golm-qwen2")}
	sources["src-00001-of-00003.gguf"] = sources["golm-llama-BF16.gguf"]
	sources["q8.gguf"] = sources["golm-llama-BF16.gguf"].as(t, "Q8_0")
	made := 0
	for name, run := range doc.Runs {
		if run.RC != 0 || run.SHA256 == "" {
			continue
		}
		r, ok := parseRun(t, run.Arguments)
		s := sources[r.source]
		if !ok || s == nil {
			continue
		}
		var im *gguf.Imatrix
		if r.imatrix != "" {
			model := strings.TrimSuffix(r.source, "-BF16.gguf")
			if im, _, ok = imatrixFile(t, r.imatrix); !ok {
				continue
			}
			require.Contains(t, r.imatrix, model)
			im.Filter(func(n string) bool {
				return !containsAny(n, r.exclude) && (len(r.include) == 0 || containsAny(n, r.include))
			})
		}
		a, err := ArchOf(&s.header.KV)
		require.NoError(t, err)
		files := s.quantizeWith(t, a, r.o, gguf.RequantizeOptions{Overrides: r.overrides}, im, r.imatrix)
		require.Equal(t, run.SHA256, sum(files[0]), name)
		made++
	}
	require.Greater(t, made, 20)
	t.Logf("%d files equal", made)
}
