package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/internal/testmodel"
	"github.com/llmquant/quantize/quant"
)

// poison writes the tiny model with one value that is not a number.
func poison(t *testing.T) string {
	c := testmodel.Llama()
	c.Patch = func(name string, v []float32) {
		if name == "model.layers.1.mlp.up_proj.weight" {
			v[65] /= 0 * v[65]
		}
	}
	return write(t, c)
}

// A run that fails, in whatever class, says what, where and why, and leaves nothing under the final name.
func TestExitCodes(t *testing.T) {
	model := tiny(t)
	damaged := func(change func(dir string)) string {
		dir := tiny(t)
		change(dir)
		return dir
	}
	weights := func(dir string) string { return filepath.Join(dir, "model.safetensors") }
	config := func(dir, old, now string) {
		text, err := os.ReadFile(filepath.Join(dir, "config.json"))
		require.NoError(t, err)
		require.Contains(t, string(text), old)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(strings.Replace(string(text), old, now, 1)), 0o644))
	}
	quantized := filepath.Join(t.TempDir(), "quantized")
	quantize(t, model, "--method", "rtn", "--group-size", "32", "-o", quantized).ok(t)
	for name, x := range map[string]struct {
		model string
		extra []string
		code  int
		parts []string
	}{
		"truncated weights": {damaged(func(d string) { require.NoError(t, os.Truncate(weights(d), 5000)) }), nil, exitCorrupt, []string{"model.safetensors"}},
		"broken header":     {damaged(func(d string) { flip(t, weights(d), 9) }), nil, exitCorrupt, []string{"model.safetensors"}},
		"broken config":     {damaged(func(d string) { config(d, "{", "[") }), nil, exitCorrupt, []string{"config.json"}},
		"contradiction":     {damaged(func(d string) { config(d, `"hidden_size": 64`, `"hidden_size": 96`) }), nil, exitCorrupt, []string{"shape"}},
		"another family":    {damaged(func(d string) { config(d, "LlamaForCausalLM", "T5ForConditionalGeneration") }), nil, exitUnsupported, []string{"T5ForConditionalGeneration", "LlamaForCausalLM"}},
		"pickle": {damaged(func(d string) {
			require.NoError(t, os.Rename(weights(d), filepath.Join(d, "pytorch_model.bin")))
		}), nil, exitUnsupported, []string{"safetensors"}},
		"quantized already":  {quantized, nil, exitUnsupported, []string{"already quantized", "convert"}},
		"not a number":       {poison(t), nil, exitCorrupt, []string{"model.layers.1.mlp.up_proj.weight", "1 NaN or infinite", "[1 1]"}},
		"nowhere":            {filepath.Join(t.TempDir(), "nowhere"), nil, exitIO, []string{"nowhere"}},
		"empty directory":    {t.TempDir(), nil, exitIO, nil},
		"no such tensor":     {model, []string{"--tensor", "nothing=keep"}, exitUsage, []string{"nothing=keep"}},
		"not a linear":       {model, []string{"--tensor", "norm=int8"}, exitUsage, []string{"norm=int8"}},
		"little memory":      {model, []string{"--memory", "1MB"}, exitUsage, []string{"memory", "MB would do"}},
		"strict":             {model, []string{"--strict", "--group-size", "48"}, exitUnsupported, []string{"48", "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.up_proj"}},
		"inside the input":   {model, []string{"-o", filepath.Join(model, "out")}, exitUnsupported, []string{model}},
		"the input itself":   {model, []string{"-o", model, "-f"}, exitUnsupported, []string{model}},
		"around the input":   {model, []string{"-o", filepath.Dir(model), "-f"}, exitUnsupported, []string{filepath.Dir(model)}},
		"below a file":       {model, []string{"-o", filepath.Join(model, "config.json", "out")}, exitUnsupported, nil},
		"below another file": {model, []string{"-o", filepath.Join(quantized, "config.json", "out")}, exitIO, []string{"config.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			before := entries(t, x.model)
			args := append([]string{x.model, "--method", "rtn", "--group-size", "32", "-o", out}, x.extra...)
			r := quantize(t, args...)
			require.Equal(t, x.code, r.code, r.err)
			r.fails(t, x.code, x.parts...)
			require.Empty(t, r.out)
			require.NoDirExists(t, out)
			require.Equal(t, before, entries(t, x.model), "the input is as it was")
		})
	}
}

// entries lists the files of a directory with their sizes.
func entries(t *testing.T, dir string) map[string]int64 {
	all := map[string]int64{}
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range list {
		info, err := e.Info()
		require.NoError(t, err)
		all[e.Name()] = info.Size()
	}
	return all
}

// An existing output is refused with exit code 6 and replaced with --force.
func TestExistingOutput(t *testing.T) {
	model, out := tiny(t), filepath.Join(t.TempDir(), "out")
	rtn := []string{model, "--method", "rtn", "--group-size", "32", "-o", out}
	quantize(t, rtn...).ok(t)
	want := tree(t, out)
	quantize(t, rtn...).fails(t, exitExists, out, "--force")
	requireSameTree(t, want, out)
	quantize(t, append(rtn, "--bits", "8", "--format", "gptq", "-f")...).ok(t)
	require.False(t, want["model.safetensors"] == tree(t, out)["model.safetensors"])
	quantize(t, append(rtn, "--force")...).ok(t)
	requireSameTree(t, want, out)
}

// --dry-run prints the plan, in both forms, and writes nothing: not even with a calibrated method, not for GGUF.
func TestDryRun(t *testing.T) {
	model, calib, dir := tiny(t), ids(t, 4, 32, 128), t.TempDir()
	out := filepath.Join(dir, "out")
	for _, args := range [][]string{
		awqArgs(model, calib, out),
		{model, "--method", "rtn", "--group-size", "32", "-o", out},
		{model, "--method", "rtn", "--group-size", "32"},
		{golm, "--method", "kquant", "-o", out + ".gguf"},
		{golm, "--method", "kquant"},
	} {
		text := quantize(t, append(args, "--dry-run")...).ok(t)
		require.Contains(t, text.out, "on disk")
		require.Contains(t, text.out, "memory: about")
		doc := quantize(t, append(args, "--dry-run", "--json")...).ok(t)
		require.Empty(t, doc.err)
		plan := parse[map[string]any](t, doc.out)
		require.Equal(t, "quantize-plan/1", plan["schema"])
		for _, key := range []string{"tensors", "memory", "disk"} {
			require.NotEmpty(t, plan[key], key)
		}
		if slices.Contains(args, "awq") {
			require.Contains(t, text.out, "more while it runs")
			require.NotEmpty(t, plan["scratch"])
		}
		require.Equal(t, false, plan["states_on_disk"])
	}
	require.Empty(t, entries(t, dir))
}

// --json leaves nothing but JSON on stdout and nothing on stderr; --quiet leaves nothing anywhere.
func TestStreams(t *testing.T) {
	model, calib := write(t, testmodel.Qwen3MoE()), ids(t, 4, 32, 128)
	out := filepath.Join(t.TempDir(), "out")
	r := quantize(t, append(awqArgs(model, calib, out), "--json")...).ok(t)
	require.Empty(t, r.err)
	docs := r.jsonLines(t)
	kinds := map[string]int{}
	for _, d := range docs[:len(docs)-1] {
		kinds[d["kind"].(string)]++
	}
	require.Positive(t, kinds["progress"])
	require.Equal(t, 6, kinds["fallback"], "the expert without tokens")
	require.Equal(t, "quantize-report/1", docs[len(docs)-1]["schema"])

	r = quantize(t, append(awqArgs(model, calib, out), "--quiet", "--force")...).ok(t)
	require.Empty(t, r.out)
	require.Empty(t, r.err)
	r = quantize(t, append(awqArgs(model, calib, out), "--no-progress", "--force")...).ok(t)
	require.Contains(t, r.err, "experts.3")
	require.NotContains(t, r.err, "%")
	r = quantize(t, append(awqArgs(model, calib, out), "--json")...).fails(t, exitExists)
	require.True(t, r.out == "" || json.Valid([]byte(r.out)))
}

// Every command with --json prints documents that parse, and errors on stderr alone.
func TestJSONOfEveryCommand(t *testing.T) {
	model, calib, dir := tiny(t), ids(t, 4, 32, 128), t.TempDir()
	out := filepath.Join(dir, "out")
	quantize(t, model, "--method", "rtn", "--group-size", "32", "-o", out).ok(t)
	for schema, args := range map[string][]string{
		"quantize-report/1":  {"convert", out, "--format", "gptq_v2", "-o", filepath.Join(dir, "converted")},
		"quantize-inspect/1": {"inspect", out},
		"quantize-verify/1":  {"verify", out, "--base", model},
		"quantize-eval/1":    {"eval", out, "--data", calib, "--seq-len", "32"},
		"quantize-imatrix/1": {"imatrix", model, "--calib", calib, "--samples", "2", "--seq-len", "32", "-o", filepath.Join(dir, "m.gguf")},
	} {
		r := quantize(t, append(args, "--json")...).ok(t)
		docs := r.jsonLines(t)
		require.Equal(t, schema, docs[len(docs)-1]["schema"])
		require.Empty(t, r.err)
	}
}

// start begins a run of the built program that takes long enough to be met by a signal, and waits until it works.
func start(t *testing.T, args ...string) (*exec.Cmd, func() (code int, out, err string)) {
	cmd, out, errs := process(t, args...)
	require.NoError(t, cmd.Start())
	partial := args[len(args)-1] + ".partial"
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(partial, "journal"))
		return err == nil
	}, time.Minute, time.Millisecond, "%s", errs)
	return cmd, func() (int, string, string) {
		_ = cmd.Wait() // the exit code tells
		return cmd.ProcessState.ExitCode(), out.String(), errs.String()
	}
}

// slowArgs is a run of several seconds.
func slowArgs(out string) []string {
	return []string{golm, "--method", "gptq", "--calib", data("golm-calib-ids.jsonl"), "--samples", "32", "--seq-len", "512", "-o", out}
}

// The first SIGINT or SIGTERM stops the run at its next chunk, with the command that continues it.
func TestSignals(t *testing.T) {
	for _, x := range []struct {
		signal syscall.Signal
		code   int
	}{{syscall.SIGINT, exitInterrupted}, {syscall.SIGTERM, exitRequeue}} {
		out := filepath.Join(t.TempDir(), "out")
		cmd, wait := start(t, slowArgs(out)...)
		require.NoError(t, cmd.Process.Signal(x.signal))
		code, stdout, stderr := wait()
		require.Equal(t, x.code, code, stderr)
		require.Empty(t, stdout)
		require.NoDirExists(t, out)
		require.Contains(t, stderr, "continue with: "+cmd.Path)
		require.Contains(t, stderr, out)
	}
}

// A second signal ends the process at once.
func TestSecondSignal(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	cmd, wait := start(t, slowArgs(out)...)
	for range 200 { // the first may still be on its way
		if cmd.Process.Signal(syscall.SIGINT) != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	code, _, stderr := wait()
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	// One more signal may meet the process on its way out, where the default action is in force again.
	require.True(t, code == exitInterrupted || status.Signaled() && status.Signal() == syscall.SIGINT, "%d %s", code, stderr)
	require.NoDirExists(t, out)
}

// Of two runs with one output, the later ends at once with exit code 6 and the owner's name; the first is not disturbed.
func TestTwoRunsOneOutput(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	cmd, wait := start(t, slowArgs(out)...)
	began := time.Now()
	second, _, errs := process(t, slowArgs(out)...)
	require.Error(t, second.Run())
	require.Equal(t, exitExists, second.ProcessState.ExitCode(), errs.String())
	require.Contains(t, errs.String(), "working on this output")
	t.Logf("the loser ended after %v", time.Since(began).Round(time.Millisecond))
	require.NoError(t, cmd.Process.Signal(syscall.Signal(0)), "the winner still runs")
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	code, _, stderr := wait()
	require.Equal(t, exitInterrupted, code, stderr)
}

// A closed pipe behind stdout is no crash.
func TestClosedPipe(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	errs := tempFile(t)
	code := run([]string{"quantize", "inspect", tiny(t), "--json"}, w, errs)
	require.NoError(t, w.Close())
	require.Equal(t, exitIO, code, contentOf(t, errs))
	require.NotContains(t, contentOf(t, errs), "goroutine")
}

// Progress away from a terminal is one plain line every few seconds, with the time left where it is known.
func TestProgressLines(t *testing.T) {
	errs := tempFile(t)
	c := &console{out: errs, err: errs, lastLine: time.Now().Add(-time.Hour)}
	c.event(quant.Event{Kind: quant.EventProgress, Stage: "layer 2 of 4", Done: 0.25, LeftSecs: 90})
	c.event(quant.Event{Kind: quant.EventProgress, Stage: "too soon", Done: 0.3})
	c.lastLine = time.Now().Add(-time.Hour)
	c.event(quant.Event{Kind: quant.EventProgress, Stage: "evaluating", Done: 1})
	require.Equal(t, " 25 %  layer 2 of 4, about 1m30s left\n100 %  evaluating\n", contentOf(t, errs))
}

// Findings are shown up to a limit; the report has them all.
func TestManyFindings(t *testing.T) {
	errs := tempFile(t)
	c := &console{out: errs, err: errs}
	for range 3 * maxFindings {
		c.event(quant.Event{Kind: quant.EventFinding, Tensor: "x", Message: "odd"})
	}
	text := contentOf(t, errs)
	require.Equal(t, maxFindings-1, strings.Count(text, "note: x: odd"))
	require.Contains(t, text, "report")
}
