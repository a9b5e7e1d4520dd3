package mixture

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llmquant/quantize/formats/gguf"
	"github.com/stretchr/testify/require"
)

// goldenModel is one architecture of testdata/gguf/mixtures.json.gz. Names containing "blk.*." stand for every block;
// where blocks differ the value is a map from "value" to a list of ranges ("0-3,9").
type goldenModel struct {
	KV      [][]any                    `json:"kv"`
	Tensors map[string]json.RawMessage `json:"tensors"`
	Runs    map[string]json.RawMessage `json:"runs"`
}

type goldenRun struct {
	Types    map[string]json.RawMessage `json:"types"`
	Fallback int                        `json:"fallbacks"`
	Requires bool                       `json:"requires_imatrix"`
	Error    []string                   `json:"error"`
}

func readGolden(t *testing.T, name string, into any) {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "..", "testdata", "gguf", name))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	d := json.NewDecoder(z)
	d.UseNumber()
	require.NoError(t, d.Decode(into))
}

// expand turns the compact per-block form into one entry per tensor.
func expand(t *testing.T, compact map[string]json.RawMessage, blocks int) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, raw := range compact {
		var one string
		if json.Unmarshal(raw, &one) == nil {
			if !strings.Contains(name, "*") {
				out[name] = one
				continue
			}
			for b := range blocks {
				out[strings.Replace(name, "*", strconv.Itoa(b), 1)] = one
			}
			continue
		}
		var byValue map[string]string
		require.NoError(t, json.Unmarshal(raw, &byValue))
		for value, ranges := range byValue {
			for _, r := range strings.Split(ranges, ",") {
				lo, hi, isRange := strings.Cut(r, "-")
				if !isRange {
					hi = lo
				}
				from, err := strconv.Atoi(lo)
				require.NoError(t, err)
				to, err := strconv.Atoi(hi)
				require.NoError(t, err)
				for b := from; b <= to; b++ {
					out[strings.Replace(name, "*", strconv.Itoa(b), 1)] = value
				}
			}
		}
	}
	return out
}

func goldenArch(t *testing.T, m *goldenModel) Arch {
	t.Helper()
	var kv gguf.Metadata
	for _, p := range m.KV {
		key := p[0].(string)
		switch p[1] {
		case "str":
			kv.Set(key, gguf.String(p[2].(string)))
		case "u32":
			n, err := p[2].(json.Number).Int64()
			require.NoError(t, err)
			kv.Set(key, gguf.Uint32(uint32(n)))
		case "arr[i32]", "arr[u32]":
			var list []int32
			for _, x := range p[2].([]any) {
				n, err := x.(json.Number).Int64()
				require.NoError(t, err)
				list = append(list, int32(n))
			}
			kv.Set(key, gguf.Int32s(list))
		}
	}
	a, err := ArchOf(&kv)
	require.NoError(t, err)
	return a
}

// goldenTensors lists the model's tensors in llama-quantize's order.
func goldenTensors(t *testing.T, m *goldenModel, blocks int) []Tensor {
	t.Helper()
	var infos []gguf.Tensor
	for name, desc := range expand(t, m.Tensors, blocks) {
		typeName, dims, _ := strings.Cut(desc, " ")
		typ, ok := gguf.ParseType(typeName)
		require.True(t, ok, desc)
		info := gguf.Tensor{Name: name, Type: typ, NE: [4]int64{1, 1, 1, 1}}
		for _, d := range strings.Split(dims, "x") {
			n, err := strconv.ParseInt(d, 10, 64)
			require.NoError(t, err)
			info.NE[info.Dims] = n
			info.Dims++
		}
		infos = append(infos, info)
	}
	var out []Tensor
	for _, i := range gguf.QuantizeOrder(infos, false) {
		out = append(out, Tensor{infos[i].Name, infos[i].NE[:infos[i].Dims], infos[i].Type})
	}
	return out
}

// goldenOptions takes a run's name apart: "pure:Q4_K_M+im".
func goldenOptions(t *testing.T, run string) Options {
	t.Helper()
	var o Options
	if all, ok := strings.CutPrefix(run, "all-nvfp4:"); ok {
		run, o.Overrides = all, []Override{{func(string) bool { return true }, gguf.NVFP4}}
	}
	run, o.Imatrix = strings.CutSuffix(run, "+im")
	run, o.Pure = strings.CutPrefix(run, "pure:")
	if o.Copy = run == Copy; !o.Copy {
		var ok bool
		o.File, ok = ParseFileType(run)
		require.True(t, ok, run)
	}
	return o
}

func TestChoicesOfLlamaQuantize(t *testing.T) {
	var doc struct{ Models map[string]goldenModel }
	readGolden(t, "mixtures.json.gz", &doc)
	require.Len(t, doc.Models, 83)
	runs, agree := 0, 0
	for name, m := range doc.Models {
		a := goldenArch(t, &m)
		tensors := goldenTensors(t, &m, a.Blocks)
		for run, raw := range m.Runs {
			runs++
			var want goldenRun
			var same string
			if json.Unmarshal(raw, &same) == nil { // "as without": the importance matrix changes nothing
				raw = m.Runs[strings.TrimSuffix(run, "+im")]
			}
			require.NoError(t, json.Unmarshal(raw, &want))
			if err := checkRun(t, a, tensors, goldenOptions(t, run), &want, same != ""); err != nil {
				t.Errorf("%s %s: %v", name, run, err)
				continue
			}
			agree++
		}
	}
	require.Equal(t, 6225, runs)
	t.Logf("%d of %d runs agree", agree, runs)
}

func checkRun(t *testing.T, a Arch, tensors []Tensor, o Options, want *goldenRun, same bool) error {
	got, err := Choose(a, tensors, o)
	if err != nil {
		return err
	}
	refused := slices.ContainsFunc(got, func(c Choice) bool { return c.Refused })
	if refused != (want.Error != nil) {
		return fmt.Errorf("refused %v, the reference says %q", refused, want.Error)
	}
	if refused {
		return nil
	}
	types := expand(t, want.Types, a.Blocks)
	fallbacks, requires := 0, false
	for i, c := range got {
		if types[tensors[i].Name] != c.Type.String() {
			return fmt.Errorf("%s is %s (%s), the reference chooses %s", tensors[i].Name, c.Type, c.Reason, types[tensors[i].Name])
		}
		if c.Type != c.Wanted {
			fallbacks++
		}
		requires = requires || c.Reason != Kept && NeedsImatrix(tensors[i].Name, c.Type, o.File)
	}
	if fallbacks != want.Fallback {
		return fmt.Errorf("%d fallbacks, %d recorded", fallbacks, want.Fallback)
	}
	if !o.Imatrix && !same && requires != want.Requires {
		return fmt.Errorf("needs an importance matrix: %v, recorded %v", requires, want.Requires)
	}
	return nil
}

// The quantize-*.json files record real runs on the project's models.
func TestChoicesOnOurModels(t *testing.T) {
	for _, model := range []string{"golm-llama", "golm-qwen2", "golm-qwen3moe"} {
		var doc struct {
			NE    map[string][]int64 `json:"ne"`
			Order []string           `json:"tensor_order"`
			Runs  map[string]struct {
				Types map[string][]string
				Error []string
			}
		}
		readGolden(t, "quantize-"+model+".json.gz", &doc)
		a := ourArch[model]
		var tensors []Tensor
		for _, name := range doc.Order {
			typ := gguf.BF16
			if !Quantizable(name, doc.NE[name]) {
				typ = gguf.F32
			}
			tensors = append(tensors, Tensor{name, doc.NE[name], typ})
		}
		for run, want := range doc.Runs {
			if want.Error != nil {
				continue
			}
			got, err := Choose(a, tensors, goldenOptions(t, run))
			require.NoError(t, err)
			types := map[string][]string{}
			for i, c := range got {
				types[c.Type.String()] = append(types[c.Type.String()], tensors[i].Name)
			}
			require.Equal(t, want.Types, types, "%s %s", model, run)
		}
	}
}

var ourArch = map[string]Arch{
	"golm-llama":    {Name: "llama", Blocks: 4, Heads: 8, KVHeads: 4},
	"golm-qwen2":    {Name: "qwen2", Blocks: 2, Heads: 8, KVHeads: 4},
	"golm-qwen3moe": {Name: "qwen3moe", Blocks: 3, Heads: 8, KVHeads: 4, Experts: 8},
}
