package gguf

import (
	"fmt"
	"os"
	"testing"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safeio/safeiotest"
	"github.com/stretchr/testify/require"
)

// tiny is a complete model of one block: width 8, 2 heads of 4 over 1 key-value head, 12 tokens.
func tiny(architecture string) *Header {
	h := &Header{}
	h.KV.Set("general.architecture", String(architecture))
	for _, n := range []struct {
		key string
		v   uint32
	}{
		{"block_count", 1}, {"context_length", 16}, {"embedding_length", 8}, {"feed_forward_length", 6},
		{"attention.head_count", 2}, {"attention.head_count_kv", 1}, {"attention.key_length", 4}, {"attention.value_length", 4},
	} {
		h.KV.Set(architecture+"."+n.key, Uint32(n.v))
	}
	h.KV.Set(architecture+".attention.layer_norm_rms_epsilon", Float32(1e-5))
	add := func(name string, shape ...int64) {
		t, _ := NewTensor(name, F32, shape...)
		h.Tensors = append(h.Tensors, t)
	}
	add(nameEmbed, 12, 8)
	add(nameNorm, 8)
	for _, t := range []struct {
		name  string
		shape []int64
	}{
		{"attn_norm.weight", []int64{8}}, {"ffn_norm.weight", []int64{8}}, {"attn_q.weight", []int64{8, 8}}, {"attn_k.weight", []int64{4, 8}},
		{"attn_v.weight", []int64{4, 8}}, {"attn_output.weight", []int64{8, 8}},
	} {
		add(block(0, t.name), t.shape...)
	}
	if architecture == "qwen3" || architecture == "qwen3moe" {
		add(block(0, nameQNorm), 4)
		add(block(0, nameKNorm), 4)
	}
	if architecture == "qwen2" {
		add(block(0, "attn_q.bias"), 8)
		add(block(0, "attn_k.bias"), 4)
		add(block(0, "attn_v.bias"), 4)
	}
	if architecture == "qwen3moe" {
		h.KV.Set("qwen3moe.expert_count", Uint32(3))
		h.KV.Set("qwen3moe.expert_used_count", Uint32(2))
		add(block(0, "ffn_gate_inp.weight"), 3, 8)
		add(block(0, "ffn_gate_exps.weight"), 3, 5, 8)
		add(block(0, "ffn_up_exps.weight"), 3, 5, 8)
		add(block(0, "ffn_down_exps.weight"), 3, 8, 5)
		return h
	}
	add(block(0, "ffn_gate.weight"), 6, 8)
	add(block(0, "ffn_up.weight"), 6, 8)
	add(block(0, "ffn_down.weight"), 8, 6)
	return h
}

func fileOf(t testing.TB, h *Header) []byte {
	t.Helper()
	p, err := Plan(h, PlanOptions{Name: "m.gguf"})
	require.NoError(t, err)
	return fill(t, p, func(i int, dst []byte) {
		for j := range dst {
			dst[j] = byte(i + j)
		}
	})[0]
}

func openHeader(t testing.TB, h *Header) *File {
	t.Helper()
	f, err := Open(write(t, "m.gguf", fileOf(t, h)))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// Every supported architecture resolves from its reconstructed config.
func TestConfigsResolve(t *testing.T) {
	for _, fam := range families {
		f := openHeader(t, tiny(fam.arch))
		config, src, err := f.HF()
		require.NoError(t, err)
		m, err := arch.Resolve(config, src)
		require.NoError(t, err, "%s", config)
		require.Empty(t, m.Unknown)
		require.Equal(t, fam.arch, m.GGUF.Arch)
		require.Equal(t, fam.permuted, m.GGUF.PermuteQK)
		for from, to := range targets(m) { // the two tables of names agree
			p, err := f.readParams()
			require.NoError(t, err)
			hf, stack, ok := p.hfName(to.name)
			require.True(t, ok, to.name)
			if !stack {
				require.Equal(t, from, hf)
			}
		}
	}
}

func TestRopeScalingsResolve(t *testing.T) {
	h := tiny("llama")
	h.KV.Set("llama.rope.scaling.type", String("yarn"))
	h.KV.Set("llama.rope.scaling.factor", Float32(4))
	h.KV.Set("llama.rope.scaling.original_context_length", Uint32(4))
	h.KV.Set("llama.rope.scaling.yarn_beta_fast", Float32(16))
	config, src, err := openHeader(t, h).HF()
	require.NoError(t, err)
	m, err := arch.Resolve(config, src)
	require.NoError(t, err)
	require.Equal(t, "yarn", m.Rope.Type)
	require.Equal(t, 4, m.Rope.OriginalMaxPos)
	require.Equal(t, 16.0, m.Rope.BetaFast)

	h = tiny("llama")
	for _, n := range []string{"attention.key_length", "attention.value_length"} {
		h.KV.Set("llama."+n, Uint32(128))
	}
	for i := range h.Tensors {
		switch h.Tensors[i].Name {
		case "blk.0.attn_q.weight":
			h.Tensors[i].NE[1] = 256
		case "blk.0.attn_k.weight", "blk.0.attn_v.weight":
			h.Tensors[i].NE[1] = 128
		case "blk.0.attn_output.weight":
			h.Tensors[i].NE[0] = 256
		}
	}
	h.KV.Set("llama.rope.freq_base", Float32(500000))
	freqs, _ := NewTensor(nameRopeFreqs, F32, 64)
	h.Tensors = append(h.Tensors, freqs)
	p, err := Plan(h, PlanOptions{Name: "m.gguf"})
	require.NoError(t, err)
	content := fill(t, p, func(i int, dst []byte) {
		if p.Tensors[i].Name == nameRopeFreqs {
			require.NoError(t, EncodeRows(dst, F32, ropeFactors(llama31())))
		}
	})[0]
	f, err := Open(write(t, "m.gguf", content))
	require.NoError(t, err)
	defer f.Close()
	config, src, err = f.HF()
	require.NoError(t, err)
	m, err = arch.Resolve(config, src)
	require.NoError(t, err)
	require.Equal(t, "llama3", m.Rope.Type)
	require.Equal(t, []float64{8, 1, 4, 8192}, []float64{m.Rope.Factor, m.Rope.LowFreqFactor, m.Rope.HighFreqFactor, float64(m.Rope.OriginalMaxPos)})
}

// Metadata that contradict themselves or the tensors are refused before anything is computed from them.
func TestHostileMetadata(t *testing.T) {
	set := func(key string, v Value) func(*Header) { return func(h *Header) { h.KV.Set(key, v) } }
	without := func(name string) func(*Header) {
		return func(h *Header) {
			for i := range h.Tensors {
				if h.Tensors[i].Name == name {
					h.Tensors = append(h.Tensors[:i], h.Tensors[i+1:]...)
					return
				}
			}
		}
	}
	retype := func(name string, typ Type) func(*Header) {
		return func(h *Header) {
			t, _ := h.Find(name)
			t.Type = typ
		}
	}
	rename := func(from, to string) func(*Header) {
		return func(h *Header) {
			t, _ := h.Find(from)
			t.Name = to
		}
	}
	corrupt, unsupported := safeio.ErrCorrupt, safeio.ErrUnsupported
	for i, c := range []struct {
		arch   string
		want   error
		change func(*Header)
	}{
		{"llama", unsupported, set("general.architecture", String("mamba"))},
		{"llama", corrupt, set("general.architecture", Uint32(1))},
		{"llama", corrupt, func(h *Header) { h.KV.Delete("general.architecture") }},
		{"llama", corrupt, func(h *Header) { h.KV.Delete("llama.block_count") }},
		{"llama", corrupt, set("llama.block_count", Uint32(0))},
		{"llama", corrupt, set("llama.block_count", Uint32(1_000_000_000))},
		{"llama", corrupt, set("llama.block_count", Int32(-1))},
		{"llama", corrupt, set("llama.block_count", String("1"))},
		{"llama", corrupt, set("llama.attention.head_count", Uint32(0))},
		{"llama", corrupt, set("llama.attention.head_count", Int32s([]int32{2}))},
		{"llama", corrupt, set("llama.attention.head_count_kv", Uint32(3))},
		{"llama", corrupt, set("llama.attention.head_count", Uint32(1<<31))},
		{"llama", corrupt, set("llama.embedding_length", Uint32(0))},
		{"llama", corrupt, func(h *Header) {
			h.KV.Delete("llama.attention.key_length")
			h.KV.Set("llama.embedding_length", Uint32(9))
		}},
		{"llama", corrupt, set("llama.attention.head_count", Uint32(3))},
		{"llama", unsupported, set("llama.attention.value_length", Uint32(5))},
		{"llama", corrupt, set("llama.attention.layer_norm_rms_epsilon", Float32(0))},
		{"llama", corrupt, set("llama.attention.layer_norm_rms_epsilon", Uint32(1))},
		{"llama", corrupt, set("llama.rope.freq_base", Float32(-1))},
		{"llama", unsupported, set("llama.rope.scaling.type", String("longrope"))},
		{"llama", unsupported, set("llama.expert_count", Uint32(8))},
		{"qwen3moe", corrupt, set("qwen3moe.expert_count", Uint32(0))},
		{"qwen3moe", corrupt, set("qwen3moe.expert_used_count", Uint32(9))},
		{"llama", corrupt, without(nameEmbed)},
		{"llama", unsupported, rename("blk.0.attn_v.weight", "blk.1.attn_v.weight")},
		{"llama", unsupported, rename("blk.0.attn_v.weight", "blk.0.attn_qkv.weight")},
		{"llama", unsupported, rename("blk.0.attn_v.weight", "blk.0.attn_v")},
		{"llama", unsupported, rename("blk.0.attn_v.weight", "blk.0.attn_v.scale")},
		{"llama", unsupported, rename("blk.0.attn_v.weight", "something.weight")},
		{"llama", unsupported, retype("blk.0.attn_v.weight", I8)},
		{"llama", corrupt, rename("blk.0.ffn_norm.weight", nameRopeFreqs)},
		{"qwen3moe", corrupt, rename("blk.0.ffn_gate_inp.weight", "blk.0.ffn_down_exps.bias")},
		{"qwen3moe", corrupt, set("qwen3moe.expert_count", Uint32(4))},
		{"qwen3moe", corrupt, func(h *Header) { // no data, but a million experts
			h.KV.Set("qwen3moe.expert_count", Uint32(1<<20))
			t, _ := h.Find("blk.0.ffn_up_exps.weight")
			t.NE = [4]int64{8, 0, 1 << 20, 1}
		}},
		{"llama", corrupt, func(h *Header) {
			t, _ := h.Find(nameEmbed)
			t.NE = [4]int64{8, 0, 1, 1}
		}},
		{"llama", corrupt, set("llama.embedding_length", Uint32(16))},
	} {
		h := tiny(c.arch)
		c.change(h)
		f := openHeader(t, h)
		config, src, err := f.HF()
		if err == nil { // the rest is checked against the tensors
			_, err = arch.Resolve(config, src)
		}
		require.ErrorIs(t, err, c.want, "case %d", i)
		require.NotContains(t, err.Error(), "%!")
	}
}

// FuzzHF changes a valid model and reads whatever still opens.
func FuzzHF(f *testing.F) {
	for _, fam := range families {
		f.Add(fileOf(f, tiny(fam.arch)))
	}
	path := f.TempDir() + "/m.gguf"
	f.Fuzz(func(t *testing.T, content []byte) {
		name := fmt.Sprintf("%s.%d", path, os.Getpid())
		require.NoError(t, os.WriteFile(name, content, 0o600))
		safeiotest.CheckAllocation(t, len(content), func() {
			file, err := Open(name)
			if err != nil {
				return
			}
			defer file.Close()
			_, src, err := file.HF()
			if err != nil {
				return
			}
			for _, info := range src.Tensors() {
				n, ok := info.Bytes()
				if !ok {
					t.Fatalf("tensor %q has no size", info.Name)
				}
				buf := make([]byte, min(n, 64))
				if err := src.ReadTensor(info.Name, buf, n-int64(len(buf))); err != nil {
					t.Fatalf("tensor %q of an accepted file: %v", info.Name, err)
				}
			}
			_, _ = file.ToHF()
		})
	})
}

// The view says where the stored bytes of a tensor lie.
func TestPlace(t *testing.T) {
	content := fileOf(t, tiny("qwen3moe"))
	f, err := Open(write(t, "m.gguf", content))
	require.NoError(t, err)
	defer f.Close()
	_, src, err := f.HF()
	require.NoError(t, err)
	placer := src.(interface {
		Place(name string) (file string, offset, bytes int64, ok bool)
	})
	for _, info := range src.Tensors() {
		file, offset, n, ok := placer.Place(info.Name)
		require.True(t, ok)
		require.Equal(t, "m.gguf", file)
		require.Equal(t, readAll(t, src, info.Name), content[offset:offset+n], info.Name)
	}
	_, _, _, ok := placer.Place("none")
	require.False(t, ok)
}

// tinyModel stands for a model where only the name of the architecture matters.
var tinyModel = arch.Model{GGUF: arch.GGUF{Arch: "llama"}}
