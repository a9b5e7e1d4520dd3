package formats

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/container"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safetensors"
	"github.com/llmquant/quantize/formats/tensor"
)

// exl2Model is a one-layer model of ExLlamaV2's kind in which the key and value projections have 16 outputs and the
// vocabulary 50 tokens, all stored as multiples of 32.
type exl2Model struct {
	config map[string]any
	infos  []tensor.Info
	data   map[string][]byte
}

func newEXL2Model(t *testing.T) *exl2Model {
	m := &exl2Model{data: map[string][]byte{}, config: map[string]any{
		"architectures": []string{"Qwen2ForCausalLM"}, "model_type": "qwen2", "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 64,
		"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 1, "vocab_size": 50, "max_position_embeddings": 64,
		"rms_norm_eps": 1e-6, "tie_word_embeddings": true}}
	m.dense("model.embed_tokens.weight", 50, 64)
	for name, out := range map[string]int{"self_attn.q_proj": 64, "self_attn.k_proj": 16, "self_attn.v_proj": 16, "self_attn.o_proj": 64,
		"mlp.gate_proj": 64, "mlp.up_proj": 64, "mlp.down_proj": 64} {
		m.linear(t, "model.layers.0."+name, out)
	}
	for name, n := range map[string]int64{"q": 64, "k": 32, "v": 32} {
		m.dense("model.layers.0.self_attn."+name+"_proj.bias", n)
	}
	for _, name := range []string{"model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"} {
		m.dense(name+".weight", 64)
	}
	m.linear(t, "lm_head", 50)
	return m
}

func (m *exl2Model) add(info tensor.Info, data []byte) {
	m.infos = append(m.infos, info)
	m.data[info.Name] = data
}

func (m *exl2Model) dense(name string, shape ...int64) {
	info := tensor.Info{Name: name, DType: tensor.F16, Shape: shape}
	n, _ := info.Elements()
	data := make([]byte, 2*n)
	for i := range n {
		binary.LittleEndian.PutUint16(data[2*i:], tensor.F32ToF16(float32(i%50+1)))
	}
	m.add(info, data)
}

// linear adds a weight whose code at output n, input k is (n+k) mod 16.
func (m *exl2Model) linear(t *testing.T, name string, out int) {
	const in = 64
	layout, _ := packing.Lookup("exl2")
	groups := []packing.EXL2Group{{Bits: 4, Rows: 64}}
	e := &packing.EXL2{Groups: groups, Row: make([]int32, in), Scale: make([]uint8, out), Max: []uint16{0x3800}}
	l := &packing.Linear{Scheme: packing.Scheme{Grid: "exl2", Mix: packing.EXL2Mix(groups)}, Out: out, In: in, Codes: make([]uint8, out*in), EXL2: e}
	for k := range in {
		e.Row[k] = int32(in - 1 - k)
	}
	for i := range l.Codes {
		l.Codes[i] = uint8((i/in + i%in) % 16)
	}
	for i := range e.Scale {
		e.Scale[i] = 15
	}
	for _, info := range layout.Plan(name, l.Scheme, out, in) {
		n, _ := info.Bytes()
		m.add(info, make([]byte, n))
	}
	require.NoError(t, layout.Pack(l, func(suffix string) []byte { return m.data[name+"."+suffix] }))
}

func (m *exl2Model) write(t *testing.T) string {
	dir := t.TempDir()
	config, err := json.Marshal(m.config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644))
	plan, _, err := safetensors.Plan(m.infos, 0, packing.EXL2FileName)
	require.NoError(t, err)
	file := make([]byte, plan.Files[0].Size)
	copy(file, plan.Files[0].Header)
	for _, p := range plan.Tensors {
		copy(file[p.Offset:p.Offset+p.Bytes], m.data[p.Name])
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, plan.Files[0].Name), file, 0o644))
	return dir
}

// The view of an EXL2 directory without quantization_config is the model: padding is gone, the head of its own is no
// longer tied.
func TestDenseEXL2(t *testing.T) {
	m := newEXL2Model(t)
	dir := m.write(t)
	c, err := Open(context.Background(), dir)
	require.NoError(t, err)
	require.Equal(t, "exl2", c.Meta().Quant.Method)
	d := openDense(t, dir)
	require.Nil(t, d.Meta().Quant)
	model, err := arch.Resolve(d.Meta().Config, d)
	require.NoError(t, err)
	require.False(t, model.Tied)
	require.Equal(t, "lm_head.weight", model.Head)
	require.Empty(t, model.Unknown)
	for name, out := range map[string]int{"lm_head": 50, "model.layers.0.self_attn.k_proj": 16, "model.layers.0.mlp.up_proj": 64} {
		w := floats(t, d, name+".weight")
		require.Len(t, w, out*64)
		for i, v := range w {
			require.Equal(t, float32((i/64+i%64)%16-8)*0.5, v, name)
		}
		found, ok := Stored(d, name)
		require.True(t, ok)
		require.Equal(t, out, found.Out)
		l, err := Unpacked(d, name)
		require.NoError(t, err)
		require.Equal(t, out, l.Out)
	}
	const bias = "model.layers.0.self_attn.k_proj.bias"
	require.Len(t, floats(t, d, bias), 16)
	require.ErrorIs(t, d.ReadTensor(bias, make([]byte, 40), 0), safeio.ErrCorrupt, "the padding does not show")
	require.Len(t, floats(t, d, "model.layers.0.self_attn.q_proj.bias"), 64)

	// A family that is not known shows what is stored.
	m.config["architectures"], m.config["model_type"] = []string{"FutureForCausalLM"}, "future"
	d = openDense(t, m.write(t))
	require.Len(t, floats(t, d, "lm_head.weight"), 64*64)
	require.Len(t, floats(t, d, bias), 32)

	// More outputs than padding explains belong to another model.
	m.config["architectures"], m.config["model_type"], m.config["vocab_size"] = []string{"Qwen2ForCausalLM"}, "qwen2", 20
	c, err = Open(context.Background(), m.write(t))
	require.NoError(t, err)
	defer c.Close()
	_, err = Dense(c)
	require.ErrorIs(t, err, safeio.ErrCorrupt)
	require.ErrorContains(t, err, "lm_head.q_weight")
}

// A job without planned files makes one document: it resumes, is locked and appears as any other.
func TestJobOfOneDocument(t *testing.T) {
	out := filepath.Join(t.TempDir(), "m.json")
	open := func(key string) (*Job, error) {
		return OpenJob(context.Background(), JobOptions{Out: out, SingleFile: true, Key: key, Plan: &container.Plan{}})
	}
	j, err := open("k")
	require.NoError(t, err)
	require.NoError(t, j.Finish("layer 0", nil, []byte("state")))
	_, err = open("k")
	require.ErrorIs(t, err, safeio.ErrLocked)
	require.NoError(t, j.Close())
	_, err = open("other")
	require.ErrorIs(t, err, safeio.ErrExists)
	j, err = open("k")
	require.NoError(t, err)
	require.True(t, j.Done("layer 0"))
	for _, state := range j.States() {
		require.Equal(t, "state", string(state))
	}
	require.NoError(t, j.Publish(context.Background(), nil, func([]FileSum) (map[string][]byte, error) {
		return map[string][]byte{"m.json": []byte("{}")}, nil
	}))
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, "{}", string(text))
	require.NoDirExists(t, out+".partial")
	_, err = open("k")
	require.ErrorIs(t, err, safeio.ErrExists)
}
