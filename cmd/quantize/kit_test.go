package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/internal/testmodel"
)

// result is what one command line left behind.
type result struct {
	code     int
	out, err string
}

// quantize runs a command line inside the test's process.
func quantize(t testing.TB, args ...string) result {
	out, errs := tempFile(t), tempFile(t)
	defer debug.SetMemoryLimit(math.MaxInt64) // runs bound their own process
	code := run(append([]string{"quantize"}, args...), out, errs)
	return result{code, contentOf(t, out), contentOf(t, errs)}
}

func tempFile(t testing.TB) *os.File {
	f, err := os.CreateTemp(t.TempDir(), "stream")
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func contentOf(t testing.TB, f *os.File) string {
	text, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	return string(text)
}

// ok requires success.
func (r result) ok(t testing.TB) result {
	require.Zero(t, r.code, "stdout: %s\nstderr: %s", r.out, r.err)
	return r
}

// fails requires a failure in the form of the contract: nothing on stdout but what was asked for, one line with what,
// where and why, a second line with what to do, no stack trace.
func (r result) fails(t testing.TB, code int, parts ...string) result {
	require.Equal(t, code, r.code, "stdout: %s\nstderr: %s", r.out, r.err)
	var message []string
	for line := range strings.Lines(r.err) {
		if message != nil || strings.HasPrefix(line, "quantize: ") {
			message = append(message, line)
		}
	}
	require.GreaterOrEqual(t, len(message), 2, "stderr: %s", r.err)
	for _, line := range message[1:] { // a list of all that is wrong may stand in between
		require.True(t, strings.HasPrefix(line, "  ") && len(line) > 10, "a hint: %q", line)
	}
	require.NotContains(t, r.err, "goroutine")
	for _, part := range parts {
		require.Contains(t, r.err, part)
	}
	return r
}

// jsonLines parses every line of stdout and returns the last document.
func (r result) jsonLines(t testing.TB) (all []map[string]any) {
	require.True(t, strings.HasSuffix(r.out, "\n"))
	for line := range strings.Lines(r.out) {
		var doc map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &doc), "%q", line)
		all = append(all, doc)
	}
	require.NotEmpty(t, all)
	return all
}

// golm is the trained model of the repository, with its tokenizer.
var golm = filepath.Join("..", "..", "testdata", "golm-llama")

// data locates a data file of the repository.
func data(name string) string { return filepath.Join("..", "..", "testdata", "data", name) }

// tiny writes the synthetic model and returns its path.
func tiny(t testing.TB) string { return write(t, testmodel.Llama()) }

func write(t testing.TB, c testmodel.Config) string {
	dir := filepath.Join(t.TempDir(), "model")
	require.NoError(t, c.Write(dir))
	return dir
}

// ids writes calibration windows of token ids, one per line.
func ids(t testing.TB, n, seqLen, vocab int) string {
	var text bytes.Buffer
	all := testmodel.IDs(n*seqLen, vocab, 0)
	for i := range n {
		line, err := json.Marshal(map[string]any{"input_ids": all[i*seqLen : (i+1)*seqLen]})
		require.NoError(t, err)
		text.Write(append(line, '\n'))
	}
	path := filepath.Join(t.TempDir(), "ids.jsonl")
	require.NoError(t, os.WriteFile(path, text.Bytes(), 0o644))
	return path
}

// awqArgs is the calibrated main job on the tiny model.
func awqArgs(model, calib, out string) []string {
	return []string{model, "--method", "awq", "--group-size", "32", "--calib", calib, "--samples", "4", "--seq-len", "32", "-o", out}
}

// tree maps every file below dir to its content, except for reports, which hold times.
func tree(t testing.TB, dir string) map[string]string {
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "report.json") {
			return err
		}
		text, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		files[rel] = string(text)
		return err
	}))
	return files
}

// requireSameTree compares two outputs without printing their bytes.
func requireSameTree(t testing.TB, want map[string]string, dir string, what ...any) {
	got := tree(t, dir)
	require.Equal(t, len(want), len(got), what...)
	for name, text := range want {
		require.True(t, text == got[name], "%s differs: %s", name, fmt.Sprint(what...))
	}
}

// flip changes one byte of a file; at < 0 counts from the end.
func flip(t testing.TB, path string, at int) {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	if at < 0 {
		at += len(text)
	}
	text[at] ^= 0x10
	require.NoError(t, os.WriteFile(path, text, 0o644))
}

// The program is built once, for tests that need a process of their own.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// binary builds the program.
func binary(t testing.TB) string {
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "quantize-test"); built.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-o", filepath.Join(built.dir, "quantize"), ".")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	require.NoError(t, built.err)
	return filepath.Join(built.dir, "quantize")
}

// process prepares the built program with its output collected.
func process(t testing.TB, args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	cmd := exec.Command(binary(t), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	return cmd, &out, &errs
}
