package quant

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/internal/testmodel"
)

// Every row of the table names a layout that exists, says how it was checked, and makes sense.
func TestEngineRules(t *testing.T) {
	seen := map[string]bool{}
	version := map[string]string{}
	for _, r := range EngineRules() {
		key := r.Engine + " " + r.Layout
		require.False(t, seen[key], key)
		seen[key] = true
		if v, ok := version[r.Engine]; ok {
			require.Equal(t, v, r.Version, "one version of an engine")
		}
		version[r.Engine] = r.Version
		require.Contains(t, []string{"run", "loader"}, r.Checked, key)
		require.Contains(t, []string{"sym", "asym", "both"}, r.Sym, key)
		require.Positive(t, r.OutMul, key)
		if r.Layout == "" {
			require.Empty(t, r.Bits)
			continue
		}
		l, ok := packing.Lookup(r.Layout)
		require.True(t, ok, key)
		require.Equal(t, r.Layout == exl2Name, len(r.Bits) == 0, key)
		for _, bits := range r.Bits {
			for _, group := range r.Groups {
				s := packing.Scheme{Grid: "int", Bits: bits, GroupSize: group, Sym: r.Sym != "asym"}
				require.NoError(t, l.Check(s, 512, 512), "%s: an engine cannot load what the layout cannot hold", key)
			}
		}
	}
}

// Notes say for each engine whether it loads the artifact, and name the first linear and the reason when not.
func TestEngineNotes(t *testing.T) {
	src := openModel(t, writeModel(t, testmodel.Llama()))
	note := func(r Recipe, engine string) EngineNote {
		p, err := MakePlan(context.Background(), src, r, options(t))
		require.NoError(t, err)
		for _, n := range p.Engines {
			if strings.HasPrefix(n.Engine, engine+" ") {
				require.Equal(t, n.Loads, n.Reason == "")
				return n
			}
		}
		t.Fatalf("nothing about %s", engine)
		return EngineNote{}
	}
	require.True(t, note(RTN(4, 32), "vllm").Loads)
	require.Contains(t, note(RTN(4, 16), "vllm").Reason, "group size 16")
	require.Contains(t, note(NewRTN(int4, "gptq"), "vllm").Reason, "asymmetric")
	require.True(t, note(NewRTN(int4Sym, "gptq"), "vllm").Loads)
	require.Contains(t, note(NewRTN(packing.Scheme{Grid: "int", Bits: 3, GroupSize: 32, Sym: true}, "gptq"), "vllm").Reason, "3 bits")
	require.True(t, note(NewRTN(packing.Scheme{Grid: "int", Bits: 3, GroupSize: 32, Sym: true}, "gptq"), "transformers").Loads)
	require.True(t, note(NewCopy(), "vllm").Loads)
	require.True(t, note(mixed(t, src.Meta().Path, 3, 2), "exllamav2").Loads)
	require.Contains(t, note(mixed(t, src.Meta().Path, 3, 2), "vllm").Reason, "does not load exl2")
	require.Contains(t, note(RTN(4, 32), "exllamav2").Reason, "does not load awq")
	require.Contains(t, note(NewRTN(int4, "compressed-tensors"), "transformers").Reason, "model.layers.0.")
}
