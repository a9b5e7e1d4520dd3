package mixture

import (
	"regexp"
	"strings"
	"testing"

	"github.com/llmquant/quantize/formats/gguf"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/stretchr/testify/require"
)

// typeFlags are the llama-quantize options that change types, as recorded in testdata/gguf/options.json.gz.
func parseFlags(t *testing.T, args []string) (o Options, ok bool) {
	t.Helper()
	typ := func(name string) gguf.Type {
		v, known := gguf.ParseType(name)
		require.True(t, known, name)
		return v
	}
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "--leave-output-tensor":
			o.KeepHead = true
		case "--pure":
			o.Pure = true
		case "--imatrix":
			o.Imatrix = true
			i++
		case "--output-tensor-type":
			i++
			v := typ(args[i])
			o.Head = &v
		case "--token-embedding-type":
			i++
			v := typ(args[i])
			o.Embedding = &v
		case "--tensor-type":
			i++
			pattern, name, _ := strings.Cut(args[i], "=")
			re := regexp.MustCompile(strings.ToLower(pattern))
			o.Overrides = append(o.Overrides, Override{re.MatchString, typ(name)})
		default:
			if strings.HasPrefix(args[i], "--") {
				return o, false // an option that this package does not decide about
			}
		}
	}
	if len(args) >= 3 {
		o.File, ok = ParseFileType(args[len(args)-2])
	}
	return o, ok
}

func TestOptionsOfLlamaQuantize(t *testing.T) {
	var doc struct {
		Runs map[string]struct {
			Arguments []string
			RC        int
			Against   string
			Tensors   map[string][2]string
		}
	}
	readGolden(t, "options.json.gz", &doc)
	checked := 0
	for name, run := range doc.Runs {
		o, ok := Options{}, run.RC == 0 && run.Tensors != nil && !strings.Contains(name, "imatrix")
		if ok {
			o, ok = parseFlags(t, run.Arguments)
		}
		if !ok {
			continue
		}
		model := "golm-llama"
		if strings.Contains(run.Against, "golm-qwen2") {
			model = "golm-qwen2"
		}
		tensors := ourTensors(t, model)
		got, err := Choose(ourArch[model], tensors, o)
		require.NoError(t, err)
		plain, err := Choose(ourArch[model], tensors, Options{File: o.File})
		require.NoError(t, err)
		for i, c := range got {
			want := plain[i].Type.String()
			if changed, ok := run.Tensors[tensors[i].Name]; ok {
				want = changed[0]
			}
			require.Equal(t, want, c.Type.String(), "%s: %s", name, tensors[i].Name)
		}
		checked++
	}
	require.Greater(t, checked, 15)
}

func ourTensors(t *testing.T, model string) []Tensor {
	t.Helper()
	var doc struct {
		NE    map[string][]int64 `json:"ne"`
		Order []string           `json:"tensor_order"`
	}
	readGolden(t, "quantize-"+model+".json.gz", &doc)
	var tensors []Tensor
	for _, name := range doc.Order {
		typ := gguf.BF16
		if !Quantizable(name, doc.NE[name]) {
			typ = gguf.F32
		}
		tensors = append(tensors, Tensor{name, doc.NE[name], typ})
	}
	return tensors
}

func TestParseFileType(t *testing.T) {
	for name, want := range map[string]string{"q4_k": "Q4_K_M", "Q3_K": "Q3_K_M", "15": "Q4_K_M", "iq2_xxs": "IQ2_XXS", "mxfp4_moe": "MXFP4_MOE"} {
		f, ok := ParseFileType(name)
		require.True(t, ok, name)
		require.Equal(t, want, f.Name)
	}
	for _, name := range []string{"", "Q9_9", "COPY", "4", "99", "-1", "7abc"} {
		_, ok := ParseFileType(name)
		require.False(t, ok, name)
	}
	for _, f := range FileTypes() {
		same, ok := FileTypeOf(f.ID)
		require.True(t, ok)
		require.Equal(t, f, same)
		require.NotEmpty(t, f.Doc)
		require.True(t, f.Base.Valid())
	}
	_, ok := FileTypeOf(4)
	require.False(t, ok)
}

func TestLayerNumbersInMixturesOfExperts(t *testing.T) {
	a := Arch{Name: "llama", Blocks: 2, Heads: 8, KVHeads: 8, Experts: 8}
	f, _ := ParseFileType("Q4_K_M")
	for name, ok := range map[string]bool{"blk.1.ffn_down_exps.weight": true, "blk.2.ffn_down_exps.weight": false, "ffn_down.weight": false} {
		_, err := Choose(a, []Tensor{{name, []int64{256, 256, 8}, gguf.F16}}, Options{File: f})
		if ok {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, safeio.ErrCorrupt)
		require.ErrorContains(t, err, name)
	}
}

func TestRowsThatFitNothingBecomeF16(t *testing.T) {
	a := Arch{Name: "llama", Blocks: 1, Heads: 1, KVHeads: 1}
	for name, refused := range map[string]bool{"Q8_0": true, "Q4_0": true, "Q4_K_M": false, "IQ2_XXS": false} {
		f, _ := ParseFileType(name)
		got, err := Choose(a, []Tensor{{"blk.0.attn_q.weight", []int64{40, 8}, gguf.BF16}, {"output.weight", []int64{256, 8}, gguf.BF16}}, Options{File: f, Pure: true})
		require.NoError(t, err)
		require.Equal(t, gguf.F16, got[0].Type, name)
		require.Equal(t, f.Base, got[0].Wanted)
		require.Equal(t, refused, got[0].Refused, name)
	}
}

func TestArchOf(t *testing.T) {
	var kv gguf.Metadata
	_, err := ArchOf(&kv)
	require.ErrorIs(t, err, safeio.ErrCorrupt)
	kv.Set("general.architecture", gguf.String("deci"))
	_, err = ArchOf(&kv)
	require.ErrorContains(t, err, "deci.block_count")
	kv.Set("deci.block_count", gguf.Uint32(80))
	kv.Set("deci.attention.head_count", gguf.Uint32(64))
	a, err := ArchOf(&kv)
	require.NoError(t, err)
	require.Equal(t, 1, a.GQA(), "without head_count_kv every head has its own")
	kv.Set("deci.attention.head_count_kv", gguf.Int32s([]int32{0, 8}))
	a, err = ArchOf(&kv)
	require.NoError(t, err)
	require.Zero(t, a.GQA())
	require.True(t, a.Large())
	kv.Set("deci.expert_count", gguf.Uint32(1<<30))
	_, err = ArchOf(&kv)
	require.ErrorIs(t, err, safeio.ErrCorrupt)
}

func TestReasons(t *testing.T) {
	f, _ := ParseFileType("Q4_K_M")
	got, err := Choose(ourArch["golm-llama"], ourTensors(t, "golm-llama"), Options{File: f,
		Overrides: []Override{{func(n string) bool { return strings.Contains(n, "attn_q.") }, gguf.Q8_0}}})
	require.NoError(t, err)
	count := map[Reason]int{}
	for _, c := range got {
		count[c.Reason]++
	}
	require.Equal(t, map[Reason]int{Kept: 9, Overridden: 4, Base: 21, Rule: 5}, count)
}
