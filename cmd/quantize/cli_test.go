package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every command explains itself, and help is no error.
func TestHelp(t *testing.T) {
	for _, args := range [][]string{{}, {"help"}, {"--help"}, {"-h"}} {
		r := quantize(t, args...).ok(t)
		for _, word := range []string{"convert", "inspect", "verify", "eval", "imatrix", "tokenize", "list", "version", "--method"} {
			require.Contains(t, r.out, word)
		}
	}
	for _, cmd := range commands(&console{}) {
		r := quantize(t, cmd.Name, "--help").ok(t)
		require.Contains(t, r.out, cmd.Usage)
		for _, f := range cmd.Flags {
			require.Contains(t, r.out, "--"+f.Names()[0])
		}
		require.Empty(t, r.err)
	}
}

func TestVersion(t *testing.T) {
	require.Contains(t, quantize(t, "version").ok(t).out, "CPU kernels")
	doc := quantize(t, "version", "--json").ok(t).jsonLines(t)
	require.Len(t, doc, 1)
	for _, key := range []string{"name", "version", "go", "platform", "cpu_kernels"} {
		require.NotEmpty(t, doc[0][key], key)
	}
}

// The tables come from the code: every row is there, in columns and as JSON.
func TestList(t *testing.T) {
	for _, x := range tables {
		r := quantize(t, "list", x.name).ok(t)
		require.Equal(t, len(x.rows())+1, strings.Count(r.out, "\n"), x.name)
		for _, row := range x.rows() {
			require.Len(t, row, len(x.header))
			require.NotEmpty(t, row[0])
			require.NotEmpty(t, row[len(row)-1]+row[len(row)-2])
		}
		for _, args := range [][]string{{"list", x.name, "--json"}, {"list", "--json", x.name}} {
			rows := parse[[]map[string]string](t, quantize(t, args...).ok(t).out)
			require.Len(t, rows, len(x.rows()))
			for _, key := range x.header {
				require.Contains(t, rows[0], key)
			}
		}
	}
}

// Methods explain themselves in a line, and the README knows every method, table and command; flags have --help.
func TestTablesAreDocumented(t *testing.T) {
	var words []string
	for _, m := range methods() {
		require.Greater(t, len(m.doc), 10, m.name)
		require.NotContains(t, m.doc, "\n")
		require.NotEmpty(t, m.formats, m.name)
		words = append(words, m.name)
	}
	for _, x := range tables {
		words = append(words, x.name)
	}
	for _, cmd := range commands(&console{}) {
		if !cmd.Hidden {
			words = append(words, "quantize "+cmd.Name)
		}
	}
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if os.IsNotExist(err) {
		t.Skip("there is no README.md yet")
	}
	require.NoError(t, err)
	for _, w := range words {
		if !strings.Contains(string(readme), w) {
			t.Errorf("README.md does not mention %s", w)
		}
	}
}

// Mistakes in the command line itself: exit code 2, the mistake, and what would be right.
func TestUsageErrors(t *testing.T) {
	model, out := tiny(t), filepath.Join(t.TempDir(), "out")
	for _, x := range []struct {
		args string
		part string
	}{
		{"list nonsense", "methods, formats"},
		{"list", "missing"},
		{"inspect", "PATH is missing"},
		{"inspect a b", "one PATH"},
		{"--method rtn -o OUT", "MODEL is missing"},
		{"MODEL MODEL --method rtn -o OUT", "one MODEL"},
		{"MODEL --model MODEL --method rtn -o OUT", "twice"},
		{"MODEL -o OUT", "--method is missing"},
		{"MODEL --method rtn", "--out is missing"},
		{"MODEL --method awk -o OUT", "awq, rtn, gptq"},
		{"MODEL --method rtn --format gguf2 -o OUT", "compressed-tensors"},
		{"MODEL --method kquant --type Q4_K_X -o OUT.gguf", "Q4_K_X"},
		{"MODEL --method kquant -o OUT", ".gguf"},
		{"MODEL --method kquant --bits 4 -o OUT.gguf", "--bits means nothing"},
		{"MODEL --method none --bits 4 -o OUT", "--bits means nothing"},
		{"MODEL --method rtn --bits 5 -o OUT", "2, 3, 4 or 8"},
		{"MODEL --method rtn --bits four -o OUT", "bits"},
		{"MODEL --method rtn --group-size 0 -o OUT", "group-size 0"},
		{"MODEL --method rtn --sym --asym -o OUT", "exclude"},
		{"MODEL --method rtn --tensor q_proj -o OUT", "PATTERN=SPEC"},
		{"MODEL --method rtn --tensor q_proj=int9x -o OUT", "int9x"},
		{"MODEL --method rtn --nan maybe -o OUT", "error or zero"},
		{"MODEL --method rtn --threads -1 -o OUT", "threads"},
		{"MODEL --method rtn --memory lots -o OUT", "5GB"},
		{"MODEL --method rtn --max-shard-size 0 -o OUT", "5GB"},
		{"MODEL --method rtn --device cuda:0 -o OUT", "list devices"},
		{"MODEL --method rtn --nonsense -o OUT", "nonsense"},
		{"MODEL --method rtn -o", "needs an argument: -o"},
		{"MODEL --metod rtn -o OUT", "did you mean --method?"},
		{"inspct MODEL", "did you mean inspect?"},
		{"lits methods", "did you mean list?"},
		{"MODEL --method gpqt -o OUT", "did you mean gptq?"},
		{"MODEL --method kquant --type Q4KM -o OUT.gguf", "did you mean Q4_K_M?"},
		{"MODEL --method rtn --format compresed-tensors -o OUT", "did you mean compressed-tensors?"},
		{"list engine", "did you mean engines?"},
		{"MODEL --method awq --samples 0 --calib IDS -o OUT", "0 windows"},
		{"MODEL --method awq --seq-len 100 --calib IDS -o OUT", "context of 64"},
		{"convert MODEL -o OUT", "safetensors, gguf"},
		{"convert MODEL -o OUT --format nonsense", "safetensors, gguf"},
		{"convert MODEL -o OUT --format gguf", ".gguf"},
		{"convert MODEL -o OUT --format safetensors --dtype f8", "bf16, f16 or f32"},
		{"convert MODEL -o OUT --format safetensors --type Q8_0", "--type"},
		{"verify MODEL", "--base is missing"},
		{"eval MODEL", "--data is missing"},
		{"eval MODEL --data IDS --max-kl 1", "--base"},
		{"imatrix MODEL", "--out is missing"},
		{"tokenize", "MODEL is missing"},
		{"tokenize MODEL", "TEXT or --file"},
		{"tokenize MODEL a b", "quote"},
		{"MODEL --method kquant --imatrix x --calib IDS -o OUT.gguf", "exclude"},
	} {
		args := strings.Fields(x.args)
		for i, a := range args {
			switch {
			case a == "MODEL":
				args[i] = model
			case a == "IDS":
				args[i] = ids(t, 4, 32, 128)
			case strings.HasPrefix(a, "OUT"):
				args[i] = out + strings.TrimPrefix(a, "OUT")
			}
		}
		r := quantize(t, args...)
		require.Equal(t, exitUsage, r.code, "%s: %s", x.args, r.err)
		r.fails(t, exitUsage, x.part)
		require.Empty(t, r.out, x.args)
	}
	entries, err := os.ReadDir(filepath.Dir(out))
	require.NoError(t, err)
	require.Empty(t, entries, "nothing was created")
}

// Flags stand before, behind and between positional arguments, in both spellings, to the same effect.
func TestFlagsAnywhere(t *testing.T) {
	model := tiny(t)
	var want map[string]string
	for i, line := range []string{
		"MODEL --method rtn --group-size 32 -o OUT", "--method rtn --group-size 32 -o OUT MODEL", "--method rtn MODEL --group-size=32 --out OUT",
		"--model MODEL --method=rtn -o OUT --group-size 32", "-o=OUT --method rtn --group-size 32 -- MODEL", "run MODEL --method rtn --group-size 32 -o OUT",
		"--quiet --method rtn --no-progress MODEL -o OUT --group-size 32 --asym",
	} {
		out := filepath.Join(t.TempDir(), "out")
		args := strings.Fields(line)
		for k := range args {
			args[k] = strings.ReplaceAll(strings.ReplaceAll(args[k], "MODEL", model), "OUT", out)
		}
		quantize(t, args...).ok(t)
		if i == 0 {
			want = tree(t, out)
		}
		requireSameTree(t, want, out, line)
	}
	require.Contains(t, quantize(t, "inspect", "--json", model).ok(t).out, "quantize-inspect/1")
	require.Contains(t, quantize(t, "inspect", model, "--json").ok(t).out, "quantize-inspect/1")
}

// A name of a directory that looks like a flag or a command can be said behind --.
func TestArrange(t *testing.T) {
	for line, want := range map[string]string{
		"q":                           "q",
		"q help":                      "q help",
		"q MODEL --method rtn -o x":   "q run --method rtn -o x -- MODEL",
		"q --method rtn MODEL -o x":   "q run --method rtn -o x -- MODEL",
		"q inspect a --json":          "q inspect --json -- a",
		"q eval --data d m --quiet":   "q eval --data d --quiet -- m",
		"q eval --data=d m":           "q eval --data=d -- m",
		"q tokenize m -- --text":      "q tokenize -- m --text",
		"q m --group-size -1 -o x":    "q run --group-size -1 -o x -- m",
		"q list methods --json":       "q list --json -- methods",
		"q m --method rtn -f -o x":    "q run --method rtn -f -o x -- m",
		"q m --keep a --keep b -o":    "q run --keep a --keep b -o",
		"q --json=true version":       "q run --json=true -- version",
		"q version --json":            "q version --json",
		"q - --method rtn":            "q run --method rtn -- -",
		"q m --tensor a=keep --quiet": "q run --tensor a=keep --quiet -- m",
	} {
		require.Equal(t, want, strings.Join(arrange(strings.Fields(line)), " "), line)
	}
}

func TestSizes(t *testing.T) {
	for s, want := range map[string]int64{"1": 1, "5GB": 5e9, "512MiB": 512 << 20, "1.5kb": 1500, "2 TiB": 2 << 40, "3g": 3e9, "100B": 100, "7K": 7000} {
		got, err := parseSize("x", s)
		require.NoError(t, err, s)
		require.Equal(t, want, got, s)
	}
	for _, s := range []string{"", "GB", "-1GB", "0", "1e30TB", "NaN", "5 GB 3", "Inf", "5X"} {
		_, err := parseSize("x", s)
		require.Error(t, err, s)
	}
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1 kB", 8397400: "8.4 MB", 999_600: "1 MB", 5e9: "5 GB", 1e12: "1 TB"} {
		require.Equal(t, want, humanBytes(n))
	}
}

func TestQuoted(t *testing.T) {
	require.Equal(t, []string{"quantize", "''", "a b", "'it'\\''s'", "'*_proj=keep'", "plain-1.5/x"}[0], quoted([]string{"quantize"})[0])
	require.Equal(t, "quantize '' 'a b' 'it'\\''s' '*_proj=keep' plain-1.5/x", strings.Join(quoted([]string{"quantize", "", "a b", "it's", "*_proj=keep", "plain-1.5/x"}), " "))
}
