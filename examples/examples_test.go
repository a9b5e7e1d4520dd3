// Package examples holds programs that show the library; its tests run them.
package examples

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The programs run one after another on the trained model: the artifacts of the first two are what the third evaluates.
func TestPrograms(t *testing.T) {
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin, "./...")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	root := filepath.Join("..", "testdata")
	model, calib, data := filepath.Join(root, "golm-llama"), filepath.Join(root, "data", "golm-calib.parquet"), filepath.Join(root, "data", "golm-eval-ids.jsonl")
	awq, shift := filepath.Join(t.TempDir(), "awq"), filepath.Join(t.TempDir(), "shift")

	program := func(name string, args ...string) (string, error) {
		out, err := exec.Command(filepath.Join(bin, name), args...).CombinedOutput()
		return string(out), err
	}
	text, err := program("quantize", "-calib", calib, "-samples", "2", "-seq-len", "128", model, awq)
	require.NoError(t, err, text)
	require.Contains(t, text, "times smaller")
	text, err = program("rounder", model, shift)
	require.NoError(t, err, text)
	require.Equal(t, 39, strings.Count(text, "\n"))
	for _, artifact := range []string{awq, shift} {
		text, err = program("evaluate", "-data", data, "-windows", "2", "-seq-len", "256", artifact, model)
		require.NoError(t, err, text)
		require.Contains(t, text, "511 tokens")
	}
	text, err = program("evaluate", "-data", data, "-windows", "2", "-seq-len", "256", "-max-kl", "1e-6", shift, model)
	require.Error(t, err, text)
	scalesArePowersOfTwo(t, shift)
	for _, name := range []string{"quantize", "rounder", "evaluate"} {
		text, err = program(name)
		require.Error(t, err)
		require.Contains(t, text, "usage: "+name)
	}
}

// scalesArePowersOfTwo reads the raw bytes of the stored scales: BF16 numbers without a mantissa.
func scalesArePowersOfTwo(t *testing.T, dir string) {
	file, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
	require.NoError(t, err)
	size := 0
	for i := 7; i >= 0; i-- {
		size = size<<8 | int(file[i])
	}
	var header map[string]struct {
		DType   string `json:"dtype"`
		Offsets [2]int `json:"data_offsets"`
	}
	require.NoError(t, json.Unmarshal(file[8:8+size], &header))
	n := 0
	for name, info := range header {
		if !strings.HasSuffix(name, ".weight_scale") {
			continue
		}
		require.Equal(t, "BF16", info.DType)
		for at := info.Offsets[0]; at < info.Offsets[1]; at += 2 {
			require.Zero(t, file[8+size+at]&0x7f, name)
			n++
		}
	}
	require.Positive(t, n)
}
