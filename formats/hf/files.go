package hf

import (
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
)

// File is a file of the checkpoint that can be streamed.
type File struct {
	Name string // base name
	Size int64
	Open func() (io.ReadCloser, error)
}

// Names with a meaning of their own.
const (
	ConfigName = "config.json"
	singleName = "model.safetensors"
	indexName  = "model.safetensors.index.json"
)

// kind says what a directory entry is to a checkpoint.
type kind uint8

const (
	side    kind = iota // carried over to outputs
	weights             // safetensors
	pickle              // weights in a format that executes code when loaded
	foreign             // weights in a format that is not read from here
	derived             // describes this artifact, rewritten for an output: config, index, quantization config, report
	private             // version control, caches, unfinished outputs
)

// byName lists exact names that no rule below covers.
var byName = map[string]kind{
	ConfigName: derived, indexName: derived,
	"quantize_config.json": derived, "quant_config.json": derived, "quantization_config.json": derived, "hf_quant_config.json": derived,
	"quantize_report.json": derived,
	"lost+found":           private, "__pycache__": private, "Thumbs.db": private,
}

// byPattern is tried in order after byName, on lower-case names.
var byPattern = []struct {
	pattern string
	kind    kind
}{
	{".*", private}, {"*~", private}, {"*.partial", private}, {"*.lock", private}, {"*.tmp", private}, {"*.incomplete", private},
	{"*.index.json", derived}, {"*.safetensors", weights},
	{"*.bin", pickle}, {"*.pt", pickle}, {"*.pth", pickle}, {"*.ckpt", pickle}, {"*.pkl", pickle}, {"*.pickle", pickle},
	{"*.npy", pickle}, {"*.npz", pickle},
	{"*.gguf", foreign}, {"*.ggml", foreign}, {"*.h5", foreign}, {"*.msgpack", foreign}, {"*.onnx", foreign}, {"*.onnx_data", foreign},
	{"*.tflite", foreign}, {"*.ot", foreign}, {"*.nemo", foreign}, {"*.mlmodel", foreign},
}

// classify returns what an entry of that name is.
func classify(name string) kind {
	if k, ok := byName[name]; ok {
		return k
	}
	lower := strings.ToLower(name)
	for _, rule := range byPattern {
		if ok, _ := path.Match(rule.pattern, lower); ok {
			return rule.kind
		}
	}
	return side
}

// shardName splits "model-00002-of-00003.safetensors" into its set ("model", 3) and number 2.
func shardName(name string) (set string, number, of int, ok bool) {
	stem, ok := strings.CutSuffix(name, ".safetensors")
	if !ok {
		return "", 0, 0, false
	}
	rest, total, ok := cutLast(stem, "-of-")
	if !ok {
		return "", 0, 0, false
	}
	prefix, num, ok := cutLast(rest, "-")
	if !ok || len(num) != 5 || len(total) != 5 {
		return "", 0, 0, false
	}
	number, err1 := strconv.Atoi(num)
	of, err2 := strconv.Atoi(total)
	return prefix + "-of-" + total, number, of, err1 == nil && err2 == nil && number >= 1 && number <= of
}

func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// some renders at most three names for a message.
func some(names []string) string {
	const most = 3
	quoted := make([]string, 0, most)
	for _, n := range names[:min(len(names), most)] {
		quoted = append(quoted, strconv.Quote(n))
	}
	if more := len(names) - most; more > 0 {
		return strings.Join(quoted, ", ") + " and " + strconv.Itoa(more) + " more"
	}
	return strings.Join(quoted, ", ")
}

// only returns the names of one kind, in order of name.
func only(names []string, k kind) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return classify(n) != k })
}
