package exl2

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
)

func shapeOf(all []Slot) func(string) (out, in int, ok bool) {
	return func(name string) (int, int, bool) {
		for _, s := range all {
			for _, m := range s.Modules {
				if m.Name == name {
					return m.Out, m.In, true
				}
			}
		}
		return 0, 0, false
	}
}

func TestMeasurementFile(t *testing.T) {
	m := &Measurement{Model: "a1b2", Sensitivity: "kl", Slots: slots(t, 3)}
	var b bytes.Buffer
	require.NoError(t, m.Write(&b))
	back, err := ReadMeasurement(b.Bytes(), shapeOf(m.Slots))
	require.NoError(t, err)
	require.Equal(t, m.Slots, back.Slots)
	require.Equal(t, "a1b2", back.Model)
	text := b.String()
	bad := func(old, new string) []byte {
		require.True(t, strings.Contains(text, old), old)
		return []byte(strings.Replace(text, old, new, 1))
	}
	for want, data := range map[string][]byte{
		"is neither":               bad("measurement/1", "measurement/2"),
		"belongs to another":       bad("\n     \"name\": \"model.layers.b\"", `"name": "x"`),
		"no candidate":             bad(`"2 g128"`, `"2 g"`),
		"is said to take":          bad(`"bits": `, `"bits": 1`),
		"cannot be stored":         bad(`"in": 256`, `"in": 255`),
		"cannot unmarshal":         bad(`"slots": [`, `"slots": [7,`),
		"0 candidates":             bad("[\n      \"2 g128\"\n     ]", `[]`),
		"format \"\"":              []byte(`{}`),
		"no attention":             []byte(`{"measurement":{"x.mamba":[{}]}}`),
		"the measurement is empty": []byte(`{"measurement":{"model.norm.norm":null}}`),
	} {
		_, err := ReadMeasurement(data, shapeOf(m.Slots))
		require.ErrorContains(t, err, want)
	}
}

func TestChoiceFile(t *testing.T) {
	all := slots(t, 3)
	c, err := Optimize(all, 4)
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, c.Write(&b))
	back, err := ReadChoice(b.Bytes())
	require.NoError(t, err)
	require.Equal(t, c, back)
	c, err = ReadChoice([]byte(`{"modules":{"m":"5/4 10/90 g64"}}`))
	require.NoError(t, err)
	require.Equal(t, mustCandidate(t, "5/4 10/90 g64"), c.Modules["m"])
	for _, bad := range []string{`{"modules":{"m":"5"}}`, `{"modules":7}`, `{`, `{"a":1,"a":2}`} {
		_, err := ReadChoice([]byte(bad))
		require.Error(t, err)
	}
}

// foreign is ExLlamaV2's measurement.json for a model of one layer with a mixture of two experts.
const foreign = `{"measurement": {
 "model.layers.0.self_attn": [
  {"accuracy": 0.9, "total_bits": 1,
   "q_proj": {"group_size": {"3": 64, "2": 64}, "bits": [3, 2], "bits_prop": [0.05, 0.95], "scale_bits": 4},
   "k_proj": {"group_size": {"3": 64, "2": 64}, "bits": [3, 2], "bits_prop": [0.05, 0.95], "scale_bits": 4},
   "v_proj": {"group_size": {"4": 128}, "bits": [4], "bits_prop": [1], "scale_bits": 4},
   "o_proj": {"group_size": {"8": 32, "6": 128, "5": 128}, "bits": [8, 6, 5], "bits_prop": [0.05, 0.1, 0.85], "scale_bits": 4}}],
 "model.layers.0.block_sparse_moe": [
  {"accuracy": 0.5, "total_bits": 2, "w1": {"group_size": {"4": 128}, "bits": [4], "bits_prop": [1.0]},
   "w3": {"group_size": {"4": 32}, "bits": [4], "bits_prop": [1.0]}, "w2": {"group_size": {"8": 32, "4": 128}, "bits": [8, 4], "bits_prop": [0.05, 0.95]}},
  {"accuracy": 0.99, "total_bits": 3, "w1": {"group_size": {"8": 128}, "bits": [8], "bits_prop": [1.0]},
   "w3": {"group_size": {"8": 128}, "bits": [8], "bits_prop": [1.0]}, "w2": {"group_size": {"8": 128}, "bits": [8], "bits_prop": [1.0]}}],
 "model.norm.norm": null, "lm_head.linear": null}, "last_module_idx": 5}`

func foreignShape(name string) (out, in int, ok bool) {
	switch {
	case strings.HasPrefix(name, "model.layers.0.self_attn."):
		return 256, 256, true
	case strings.HasPrefix(name, "model.layers.0.block_sparse_moe.experts.0."), strings.HasPrefix(name, "model.layers.0.block_sparse_moe.experts.1."):
		return 512, 256, true
	}
	return 0, 0, false
}

func TestForeignMeasurement(t *testing.T) {
	m, err := ReadMeasurement([]byte(foreign), foreignShape)
	require.NoError(t, err)
	require.Len(t, m.Slots, 2)
	attn, moe := m.Slots[0], m.Slots[1]
	require.Equal(t, "model.layers.0.self_attn", attn.Name)
	require.Len(t, attn.Modules, 4)
	require.InDelta(t, 0.01, attn.Options[0].Error, 1e-12)
	require.Equal(t, "8/6/5 5/10/85 g32/128/128", attn.Options[0].Candidate(3).String())
	require.Equal(t, "4 g128", attn.Options[0].Candidate(2).String())
	require.Len(t, moe.Modules, 6)
	require.Equal(t, "model.layers.0.block_sparse_moe.experts.1.w1", moe.Modules[1].Name)
	c, err := Optimize(m.Slots, 7.03)
	require.NoError(t, err)
	require.Equal(t, "8 g128", c.Modules["model.layers.0.block_sparse_moe.experts.1.w2"].String())
	c, err = Optimize(m.Slots, 4.5)
	require.NoError(t, err)
	require.Equal(t, "4 g32", c.Modules["model.layers.0.block_sparse_moe.experts.0.w3"].String())
	for old, new := range map[string]string{
		`"bits": [3, 2]`:             `"bits": [3]`,
		`"bits_prop": [0.05, 0.95]`:  `"bits_prop": [0.05, 9]`,
		`"3": 64`:                    `"3": 65`,
		`"accuracy": 0.9,`:           ``,
		`"q_proj": {`:                `"x_proj": {`,
		`0.block_sparse_moe": [`:     `1.block_sparse_moe": [`,
		`"model.layers.0.self_attn"`: `"model.layers.0.parallel_decoder"`,
	} {
		require.Contains(t, foreign, old)
		_, err := ReadMeasurement([]byte(strings.Replace(foreign, old, new, 1)), foreignShape)
		require.Error(t, err, new)
	}
	_, err = ReadMeasurement(make([]byte, MaxMeasurement+1), foreignShape)
	require.ErrorIs(t, err, safeio.ErrLimit)
}

// FuzzMeasurement: whatever is read can be optimized without a panic, and written and read again.
func FuzzMeasurement(f *testing.F) {
	m := &Measurement{Slots: slots(f, 1)}
	m.Slots[0].Options = m.Slots[0].Options[:2]
	var b bytes.Buffer
	require.NoError(f, m.Write(&b))
	f.Add(b.Bytes())
	f.Add([]byte(foreign))
	f.Add([]byte(`{"format":"quantize-exl2-measurement/1","slots":[{"modules":[{"out":1,"in":32}],"options":[{"candidates":["8/6/5/4/3/2 1/1/1/1/1/95 g32"],"bits":1}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		shape := func(name string) (int, int, bool) {
			if len(name) == 0 || strings.Contains(name, "experts") {
				return 0, 0, false
			}
			return 32 * len(name), 64, true
		}
		m, err := ReadMeasurement(data, shape)
		if err != nil {
			return
		}
		if _, err := Optimize(m.Slots, 4); err != nil {
			return
		}
		var b bytes.Buffer
		if err := m.Write(&b); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadMeasurement(b.Bytes(), shape); err != nil {
			t.Fatal(err)
		}
	})
}
