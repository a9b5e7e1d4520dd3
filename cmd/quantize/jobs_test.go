package main

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/internal/testmodel"
)

// parse decodes one JSON document and nothing else.
func parse[T any](t testing.TB, text string) (v T) {
	require.NoError(t, json.Unmarshal([]byte(text), &v), "%.200q", text)
	return v
}

// The main job with every method and layout leaves a directory that verifies against its base.
func TestMethods(t *testing.T) {
	model, calib := tiny(t), ids(t, 4, 32, 128)
	for _, m := range methods() {
		if m.name == kquantName {
			continue
		}
		for _, format := range m.formats {
			if format == "gguf" {
				continue // the tiny model has no tokenizer
			}
			out := filepath.Join(t.TempDir(), "out")
			args := []string{model, "--method", m.name, "--format", format, "-o", out}
			if m.bits > 0 {
				args = append(args, "--group-size", "32")
			}
			if m.samples > 0 {
				args = append(args, "--calib", calib, "--samples", "4", "--seq-len", "32")
			}
			r := quantize(t, args...).ok(t)
			require.Contains(t, r.out, out)
			require.Contains(t, r.out, "on disk")
			require.FileExists(t, filepath.Join(out, "quantize_report.json"))
			require.NoDirExists(t, out+".partial")
			v := quantize(t, "verify", out, "--base", model, "--json").ok(t).jsonLines(t)
			require.Equal(t, true, v[0]["ok"], "%s %s", m.name, format)
		}
	}
}

// Text comes from every kind of file, compressed or not, from a directory, from the program itself.
func TestCalibrationFiles(t *testing.T) {
	dir := t.TempDir()
	text := strings.Repeat("func main() { fmt.Println(\"hello\") }\n", 60)
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
		return path
	}
	line, err := json.Marshal(map[string]string{"text": text, "other": "x"})
	require.NoError(t, err)
	jsonl := file("a/a.jsonl", string(line)+"\n")
	txt := file("b/b.txt", text)
	gz := filepath.Join(dir, "c.txt.gz")
	f, err := os.Create(gz)
	require.NoError(t, err)
	z := gzip.NewWriter(f)
	_, err = z.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	require.NoError(t, f.Close())
	hash := map[string]string{}
	for name, args := range map[string][]string{
		"jsonl":         {"--calib", jsonl},
		"jsonl, column": {"--calib", jsonl, "--calib-column", "text"},
		"txt":           {"--calib", txt},
		"gz":            {"--calib", gz},
		"directory":     {"--calib", filepath.Join(dir, "b")},
		"parquet":       {"--calib", data("golm-calib.parquet")},
		"ids":           {"--calib", data("golm-calib-ids.jsonl")},
		"default":       {"--calib", "default"},
		"nothing":       {},
		"two":           {"--calib", txt, "--calib", jsonl},
	} {
		out := filepath.Join(t.TempDir(), "out")
		r := quantize(t, append([]string{golm, "--method", "awq", "--samples", "1", "--seq-len", "16", "-o", out, "--keep", "mlp", "--keep", "layers.1", "--keep", "layers.2", "--keep", "layers.3"}, args...)...).ok(t)
		require.Contains(t, r.out, "calibration: 1 windows of 16 tokens", name)
		var rep struct {
			Calibration struct {
				IDsHash string `json:"ids_sha256"`
				Files   []struct{ Name, SHA256 string }
			}
		}
		raw, err := os.ReadFile(filepath.Join(out, "quantize_report.json"))
		require.NoError(t, err)
		rep = parse[struct {
			Calibration struct {
				IDsHash string `json:"ids_sha256"`
				Files   []struct{ Name, SHA256 string }
			}
		}](t, string(raw))
		hash[name] = rep.Calibration.IDsHash
		require.Len(t, rep.Calibration.Files[0].SHA256, 64, name)
	}
	for _, name := range []string{"jsonl, column", "txt", "gz", "directory", "two"} {
		require.Equal(t, hash["jsonl"], hash[name], "the same text gives the same windows: %s", name)
	}
	require.Equal(t, hash["default"], hash["nothing"])
	require.NotEqual(t, hash["default"], hash["parquet"])
	require.Equal(t, hash["parquet"], hash["ids"], "the same ids, given or made")
}

// Calibration data that does not serve: the reason, the class, nothing written.
func TestCalibrationErrors(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	for _, x := range []struct {
		calib string
		code  int
		part  string
	}{
		{filepath.Join(t.TempDir(), "nowhere.txt"), exitIO, "nowhere.txt"},
		{file("short.txt", "a few words"), exitCorrupt, "too little data"},
		{file("x.jsonl", "{broken"), exitCorrupt, "x.jsonl"},
		{file("x.parquet", "PAR1 no"), exitCorrupt, "x.parquet"},
		{file("ids.jsonl", `{"input_ids":[1,2,99999]}`), exitCorrupt, "99999"},
		{t.TempDir(), exitUnsupported, "no data files"},
	} {
		quantize(t, golm, "--method", "awq", "--samples", "1", "--seq-len", "64", "--calib", x.calib, "-o", out).fails(t, x.code, x.part)
		require.NoDirExists(t, out)
		require.NoDirExists(t, out+".partial")
	}
}

// GGUF output: the whole way from a checkpoint through the file and back, with importance from text or file.
func TestGGUF(t *testing.T) {
	dir := t.TempDir()
	q4, imat, plain, back := filepath.Join(dir, "q4.gguf"), filepath.Join(dir, "im.gguf"), filepath.Join(dir, "plain.gguf"), filepath.Join(dir, "back")
	r := quantize(t, golm, "--method", "kquant", "-o", q4).ok(t)
	require.Contains(t, r.out, q4)
	require.FileExists(t, filepath.Join(dir, "q4.report.json"))
	in := quantize(t, "inspect", q4, "--json").ok(t).jsonLines(t)[0]
	require.Equal(t, "gguf", in["kind"])
	require.Equal(t, "llama", in["architecture"])
	quantize(t, "verify", q4, "--base", golm).ok(t)

	r = quantize(t, "imatrix", golm, "--calib", data("golm-calib-ids.jsonl"), "--samples", "2", "--seq-len", "64", "-o", imat).ok(t)
	require.Empty(t, r.out)
	require.Contains(t, r.err, "28 entries from 2 windows")
	quantize(t, "imatrix", golm, "--calib", data("golm-calib-ids.jsonl"), "--samples", "1", "--seq-len", "64", "-o", imat).fails(t, exitExists)
	quantize(t, "imatrix", golm, "--calib", data("golm-calib-ids.jsonl"), "--samples", "1", "--seq-len", "64", "-o", imat, "-f", "--merge", imat).ok(t)
	quantize(t, golm, "--method", "kquant", "--type", "IQ4_XS", "--imatrix", imat, "-o", filepath.Join(dir, "iq.gguf")).ok(t)
	quantize(t, golm, "--method", "kquant", "--type", "IQ2_XXS", "-o", filepath.Join(dir, "no.gguf")).fails(t, exitUnsupported, "importance")
	quantize(t, golm, "--method", "kquant", "--type", "Q2_K", "--calib", data("golm-calib.parquet"), "--samples", "1", "--seq-len", "32", "-o", filepath.Join(dir, "q2.gguf")).ok(t)

	quantize(t, "convert", golm, "-o", plain).ok(t)
	quantize(t, "convert", plain, "--format", "safetensors", "-o", back).ok(t)
	want, got := tree(t, golm), tree(t, back)
	require.True(t, want["model.safetensors"] == got["model.safetensors"], "the weights come back bit for bit")
	require.Contains(t, got, "tokenizer.json")
	require.Equal(t, quantize(t, "tokenize", golm, "func main() {}").ok(t).out, quantize(t, "tokenize", back, "func main() {}").ok(t).out)
	require.Equal(t, quantize(t, "tokenize", golm, "func main() {}").ok(t).out, quantize(t, "tokenize", plain, "func main() {}").ok(t).out)
	quantize(t, plain, "--method", "rtn", "-o", filepath.Join(dir, "rtn")).ok(t)
	quantize(t, q4, "--method", "rtn", "-o", filepath.Join(dir, "twice")).fails(t, exitUnsupported, "quantized")
	quantize(t, q4, "--method", "kquant", "--type", "Q8_0", "-o", filepath.Join(dir, "twice.gguf")).fails(t, exitUnsupported, "--allow-requantize")
	quantize(t, q4, "--method", "kquant", "--type", "Q8_0", "--allow-requantize", "-o", filepath.Join(dir, "twice.gguf")).ok(t)
}

// Layouts change exactly; a chain of conversions ends in the first file.
func TestConvert(t *testing.T) {
	model, dir := tiny(t), t.TempDir()
	a, b, c, d := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c"), filepath.Join(dir, "d")
	quantize(t, model, "--method", "rtn", "--group-size", "32", "-o", a).ok(t)
	quantize(t, "convert", a, "--format", "compressed-tensors", "-o", b).ok(t)
	quantize(t, "convert", b, "--format", "gptq_v2", "-o", c).ok(t)
	quantize(t, "convert", c, "--format", "awq", "-o", d).ok(t)
	require.True(t, tree(t, a)["model.safetensors"] == tree(t, d)["model.safetensors"])
	quantize(t, "convert", a, "--format", "safetensors", "--dtype", "bf16", "-o", filepath.Join(dir, "dense")).ok(t)
	quantize(t, "convert", model, "--format", "awq", "-o", filepath.Join(dir, "no")).fails(t, exitUnsupported, "nothing in the source is quantized")
	quantize(t, "convert", a, "--format", "gptq", "-o", b).fails(t, exitExists)
	plan := parse[map[string]any](t, quantize(t, "convert", a, "--format", "gptq_v2", "--dry-run", "--json").ok(t).out)
	require.Equal(t, "quantize-plan/1", plan["schema"])
}

// Token ids, one document per line, with and without the tokenizer's own additions.
func TestTokenize(t *testing.T) {
	require.Equal(t, "[1988]\n", quantize(t, "tokenize", golm, "hi").ok(t).out)
	file := filepath.Join(t.TempDir(), "docs.jsonl")
	require.NoError(t, os.WriteFile(file, []byte("{\"text\":\"hi\"}\n{\"text\":\"\"}\n{\"text\":\"package main\"}\n"), 0o644))
	lines := strings.Split(strings.TrimSuffix(quantize(t, "tokenize", golm, "--file", file, "--no-special").ok(t).out, "\n"), "\n")
	require.Len(t, lines, 3, "every document has a line")
	require.Equal(t, []string{"[1988]", "[]"}, lines[:2])
	quantize(t, "tokenize", tiny(t), "hi").fails(t, exitUnsupported)
	quantize(t, "tokenize", filepath.Join(t.TempDir(), "x"), "hi").fails(t, exitIO)
}

// A conversation is laid out by the model's own template, which a GGUF file keeps in its metadata.
func TestChatTemplateOfGGUF(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	require.NoError(t, os.CopyFS(dir, os.DirFS(golm)))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "chat_template.jinja"),
		[]byte(`{% for m in messages %}// {{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}`), 0o644))
	file, gguf := filepath.Join(t.TempDir(), "chat.jsonl"), filepath.Join(t.TempDir(), "model.gguf")
	text := `{"messages":[{"role":"user","content":"func main"},{"role":"assistant","content":"return nil"}]}` + "\n"
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat(text, 20)), 0o644))
	quantize(t, "convert", dir, "--format", "gguf", "-o", gguf).ok(t)
	want := quantize(t, "tokenize", dir, "--file", file).ok(t).out
	require.Equal(t, want, quantize(t, "tokenize", gguf, "--file", file).ok(t).out)
	quantize(t, "imatrix", gguf, "--calib", file, "--samples", "2", "--seq-len", "32", "-o", filepath.Join(t.TempDir(), "m.gguf")).ok(t)

	quantize(t, "convert", golm, "--format", "gguf", "-o", gguf, "-f").ok(t)
	quantize(t, "tokenize", gguf, "--file", file).fails(t, exitUnsupported, "no chat template")
	quantize(t, "tokenize", gguf, "--file", file, "--chat-template", "plain").ok(t)
}

// Inspection shows what lies where, of dense checkpoints and artifacts alike.
func TestInspect(t *testing.T) {
	model := tiny(t)
	out := filepath.Join(t.TempDir(), "out")
	quantize(t, model, "--method", "rtn", "--group-size", "32", "-o", out).ok(t)
	for _, path := range []string{model, out} {
		text := quantize(t, "inspect", path).ok(t)
		require.Contains(t, text.out, "model.layers.1.mlp.down_proj.weight")
		in := parse[inspection](t, quantize(t, "inspect", path, "--json").ok(t).out)
		require.Equal(t, "LlamaForCausalLM", in.Architecture)
		require.Len(t, in.Tensors, 21)
		var sum int64
		for _, x := range in.Tensors {
			require.NotEqual(t, "other", x.Role, x.Name)
			require.Equal(t, x.DType == "", x.Grid != "")
			sum += x.Bytes
		}
		require.Equal(t, in.Totals.TensorBytes, sum)
		info, err := os.Stat(filepath.Join(path, "model.safetensors"))
		require.NoError(t, err)
		require.Equal(t, info.Size(), in.Totals.FileBytes)
	}
	quantize(t, "inspect", filepath.Join(model, "config.json")).fails(t, exitUnsupported)
}

// Evaluation: figures as text and JSON, gates that fail with exit code 7 after the figures, continuations.
func TestEval(t *testing.T) {
	model, text := tiny(t), ids(t, 20, 32, 128)
	out := filepath.Join(t.TempDir(), "out")
	quantize(t, model, "--method", "rtn", "--bits", "3", "--format", "gptq", "--group-size", "32", "-o", out).ok(t)
	alone := parse[map[string]any](t, quantize(t, "eval", model, "--data", text, "--seq-len", "32", "--json").ok(t).out)
	require.Equal(t, "quantize-eval/1", alone["schema"])
	require.EqualValues(t, 20*31, alone["tokens"])
	require.NotContains(t, alone, "kl")
	both := parse[map[string]any](t, quantize(t, "eval", out, "--base", model, "--data", text, "--seq-len", "32", "--json", "--max-kl", "10", "--max-ppl-ratio", "10").ok(t).out)
	for _, key := range []string{"model", "base", "data", "seq_len", "protocol", "stride", "documents", "windows", "tokens", "cross_entropy", "perplexity",
		"base_cross_entropy", "base_perplexity", "kl", "top1_agreement", "perplexity_ratio", "gates", "seconds"} {
		require.Contains(t, both, key)
	}
	require.InDelta(t, alone["cross_entropy"], both["base_cross_entropy"], 1e-9)
	require.Len(t, both["gates"], 2)

	r := quantize(t, "eval", out, "--base", model, "--data", text, "--seq-len", "32", "--max-kl", "1e-9").fails(t, exitVerify, "--max-kl")
	require.Contains(t, r.out, "FAILED")
	r = quantize(t, "eval", out, "--base", model, "--data", text, "--seq-len", "32", "--max-kl", "1e-9", "--json").fails(t, exitVerify)
	require.Equal(t, false, parse[map[string]any](t, r.out)["gates"].([]any)[0].(map[string]any)["ok"])
	require.Contains(t, quantize(t, "eval", model, "--data", text, "--seq-len", "32", "--protocol", "all", "--quiet").ok(t).out, "perplexity")
	quantize(t, "eval", model, "--data", text, "--seq-len", "32", "--protocol", "x").fails(t, exitUsage, "gptq, all, llama.cpp")
	quantize(t, "eval", model, "--data", text, "--seq-len", "32", "--stride", "40").fails(t, exitUsage, "40")
	quantize(t, "eval", model, "--data", text, "--seq-len", "65").fails(t, exitUsage, "context of 64")

	r = quantize(t, "eval", golm, "--prompt", "package main\n", "--prompt-tokens", "5").ok(t)
	require.True(t, strings.HasPrefix(r.out, "package main\n"))
	require.Greater(t, len(r.out), len("package main\n")+5)
	require.Equal(t, r.out, quantize(t, "eval", golm, "--prompt", "package main\n", "--prompt-tokens", "5", "--threads", "1").ok(t).out)
}

// Verification fails, with exit code 7, on a flipped byte and on a model that is not the base.
func TestVerify(t *testing.T) {
	model := tiny(t)
	out := filepath.Join(t.TempDir(), "out")
	quantize(t, model, "--method", "rtn", "--group-size", "32", "-o", out).ok(t)
	r := quantize(t, "verify", out, "--base", model).ok(t)
	require.Contains(t, r.out, "→ ok")
	require.Contains(t, r.out, "14 quantized")
	c := testmodel.Llama()
	c.Patch = func(_ string, v []float32) {
		for i := range v {
			v[i] = -v[i]
		}
	}
	r = quantize(t, "verify", out, "--base", write(t, c), "--json").fails(t, exitVerify)
	require.Equal(t, false, parse[map[string]any](t, r.out)["ok"])
	flip(t, filepath.Join(out, "model.safetensors"), -100)
	quantize(t, "verify", out, "--base", model).fails(t, exitVerify, "model.safetensors", "checksum")
}
