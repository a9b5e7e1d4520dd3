package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/internal/testmodel"
)

// mixedArgs is the EXL2 job on a model.
func mixedArgs(model, calib, out string, more ...string) []string {
	return append([]string{model, "--method", "exl2", "--calib", calib, "--samples", "4", "--seq-len", "32", "-o", out}, more...)
}

func readText(t testing.TB, path string) string {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// A measurement is made once and serves any target; it is held against the model and the calibration text.
func TestMeasurementFile(t *testing.T) {
	model, calib, dir := tiny(t), ids(t, 4, 32, 128), t.TempDir()
	file := filepath.Join(dir, "m.json")
	out := func(name string) string { return filepath.Join(dir, name) }
	quantize(t, mixedArgs(model, calib, "", "--bpw", "5", "--measurement", file, "--dry-run")...).ok(t)
	require.NoFileExists(t, file, "a dry run writes nothing")
	quantize(t, mixedArgs(model, calib, out("a"), "--bpw", "5", "--measurement", file)...).ok(t)
	made := readText(t, file)
	quantize(t, mixedArgs(model, calib, out("b"), "--bpw", "6", "--measurement", file)...).ok(t)
	require.Equal(t, made, readText(t, file))
	r := quantize(t, mixedArgs(model, calib, out("c"), "--bpw", "5")...).ok(t)
	require.Contains(t, r.err, "--measurement FILE")
	requireSameTree(t, tree(t, out("a")), out("c"))
	require.NoFileExists(t, out("c")+".measurement.json", "nobody asked for it")
	quantize(t, mixedArgs(model, calib, out("a"), "--measurement", file)...).fails(t, exitExists, out("a"))

	quantize(t, mixedArgs(model, ids(t, 5, 32, 128), out("d"), "--samples", "5", "--measurement", file)...).fails(t, exitUnsupported, file, "other calibration text")
	c := testmodel.Llama()
	c.Patch = func(_ string, v []float32) { v[0]++ }
	quantize(t, mixedArgs(write(t, c), calib, out("d"), "--measurement", file)...).fails(t, exitUnsupported, file, "another model")
	c.Layers = 1
	quantize(t, mixedArgs(write(t, c), calib, out("d"), "--measurement", file)...).fails(t, exitCorrupt, file, "layers.1")
	require.NoError(t, os.WriteFile(file, []byte("{}"), 0o644))
	quantize(t, mixedArgs(model, calib, out("d"), "--measurement", file)...).fails(t, exitUnsupported, file, "measurement.json")
	quantize(t, mixedArgs(model, calib, out("d"), "--bpw", "1")...).fails(t, exitUnsupported, "smallest possible target")
	quantize(t, mixedArgs(model, calib, out("d"), "--head-bits", "7")...).fails(t, exitUsage, "head-bits")
	quantize(t, mixedArgs(model, calib, out("d"), "--bits", "4")...).fails(t, exitUsage, "--bpw")
	require.NoFileExists(t, out("d"))
}

// ExLlamaV2's own measurement serves as well: whole modules, its candidates.
func TestForeignMeasurement(t *testing.T) {
	setting := func(bits, group string) string {
		return `{"group_size": {"` + bits + `": ` + group + `}, "bits": [` + bits + `], "bits_prop": [1], "scale_bits": 4}`
	}
	option := func(accuracy, bits, group string, parts ...string) string {
		s := `{"accuracy": ` + accuracy + `, "total_bits": 1`
		for _, p := range parts {
			s += `, "` + p + `": ` + setting(bits, group)
		}
		return s + "}"
	}
	var text strings.Builder
	text.WriteString(`{"measurement": {`)
	for _, l := range []string{"0", "1"} {
		for module, parts := range map[string][]string{"self_attn": {"q_proj", "k_proj", "v_proj", "o_proj"}, "mlp": {"gate_proj", "up_proj", "down_proj"}} {
			text.WriteString(`"model.layers.` + l + `.` + module + `": [` + option("0.9", "3", "64", parts...) + "," + option("0.99", "6", "64", parts...) + "],")
		}
	}
	text.WriteString(`"model.norm.norm": null, "lm_head.linear": null}, "last_module_idx": 5}`)
	file, out := filepath.Join(t.TempDir(), "measurement.json"), filepath.Join(t.TempDir(), "out")
	require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o644))
	r := quantize(t, mixedArgs(tiny(t), ids(t, 4, 32, 128), out, "--bpw", "6", "--measurement", file)...).ok(t)
	require.Contains(t, r.err, "ExLlamaV2's")
	choice := choiceIn(t, out)
	require.Contains(t, []string{"3 g64", "6 g64"}, choice["model.layers.0.mlp.up_proj"])
	require.Equal(t, choice["model.layers.0.mlp.up_proj"], choice["model.layers.0.mlp.down_proj"])
}

// choiceIn reads the widths from an artifact's report.
func choiceIn(t testing.TB, out string) map[string]string {
	return parse[struct {
		Recipe struct{ Choice map[string]string }
	}](t, readText(t, filepath.Join(out, "quantize_report.json"))).Recipe.Choice
}

// A choice is written, can be edited, and is then used as it is; one made by hand needs no measurement.
func TestChoiceFile(t *testing.T) {
	model, calib, dir := tiny(t), ids(t, 4, 32, 128), t.TempDir()
	file := filepath.Join(dir, "choice.json")
	out := func(name string) string { return filepath.Join(dir, name) }
	quantize(t, mixedArgs(model, calib, out("a"), "--bpw", "5", "--choice", file)...).ok(t)
	written := parse[map[string]any](t, readText(t, file))
	require.EqualValues(t, 5, written["target"])
	modules := written["modules"].(map[string]any)
	require.Len(t, modules, 14)
	for name, text := range choiceIn(t, out("a")) {
		require.Equal(t, modules[name], text)
	}
	quantize(t, mixedArgs(model, calib, out("b"), "--bpw", "5", "--choice", file)...).ok(t)
	requireSameTree(t, tree(t, out("a")), out("b"))

	for name := range modules {
		modules[name] = "8 g32"
		if strings.Contains(name, "layers.1.self_attn") {
			modules[name] = "dense"
		}
	}
	save := func(v any) {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, text, 0o644))
	}
	save(map[string]any{"modules": modules})
	r := quantize(t, mixedArgs(model, calib, out("c"), "--bpw", "5", "--choice", file)...).ok(t)
	require.Contains(t, r.err, "--bpw is not used")
	require.Equal(t, "dense", choiceIn(t, out("c"))["model.layers.1.self_attn.q_proj"])
	quantize(t, "verify", out("c"), "--base", model).ok(t)

	modules["model.layers.1.self_attn.q_proj"] = "4 g32"
	save(map[string]any{"modules": modules})
	quantize(t, mixedArgs(model, calib, out("d"), "--choice", file)...).fails(t, exitUnsupported, "the attention of layer 1", "k_proj")
	modules["model.layers.1.self_attn.q_proj"] = "9 g32"
	save(map[string]any{"modules": modules})
	quantize(t, mixedArgs(model, calib, out("d"), "--choice", file)...).fails(t, exitCorrupt, file, "9 bits")
	delete(modules, "model.layers.1.self_attn.q_proj")
	save(map[string]any{"modules": modules})
	quantize(t, mixedArgs(model, calib, out("d"), "--choice", file)...).fails(t, exitUnsupported, file, "says nothing about model.layers.1.self_attn.q_proj")
	modules["model.layers.1.self_attn.q_proj"], modules["model.layers.7.x"] = "dense", "4 g32"
	save(map[string]any{"modules": modules})
	quantize(t, mixedArgs(model, calib, out("d"), "--choice", file)...).fails(t, exitUnsupported, file, "model.layers.7.x")
}

// Killed while it measures, after whole layers, a run continues with the layer that was lost.
func TestKillWhileMeasuring(t *testing.T) {
	v := victim{name: "exl2", args: exl2Victim(t)}
	whole := filepath.Join(t.TempDir(), "out")
	v.finish(t, whole)
	want := tree(t, filepath.Dir(whole))
	for _, unit := range []string{`"layer 0"`, `"layer 1"`} {
		out := filepath.Join(t.TempDir(), "out")
		cmd, _, errs := process(t, v.command(out)...)
		require.NoError(t, cmd.Start())
		journal := filepath.Join(out+".m.json.partial", "journal")
		for range 100_000 {
			if text, err := os.ReadFile(journal); err == nil && bytes.Contains(text, []byte(unit)) {
				break
			}
			time.Sleep(100 * time.Microsecond)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		require.NoFileExists(t, out, errs)
		v.finish(t, out)
		requireSameTree(t, want, filepath.Dir(out), unit)
	}
}
