//go:build unix

package tokenizer

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// benchTexts are English prose, encyclopedia text and source code; none repeats itself.
var benchTexts = [][]string{
	{"assets", "literature", "war-and-peace.txt"},
	{"assets", "wikitext2", "wikitext2-test-joined.txt"},
	{"data", "golm-eval.txt"},
	{"assets", "literature", "xiyou-zh.txt"},
}

// benchTokenizers are the vocabularies that matter for speed.
var benchTokenizers = [][]string{
	{"assets", "tokenizers", "qwen3", "tokenizer.json"},
	{"assets", "tokenizers", "llama3-tiktoken", "tokenizer.model"},
	{"assets", "tokenizers", "gpt2", "tokenizer.json"},
	{"assets", "tokenizers", "llama2", "tokenizer.json"},
	{"assets", "tokenizers", "llama2", "tokenizer.model"},
}

func openBench(b *testing.B, source []string) *Tokenizer {
	data, err := os.ReadFile(shared(b, source...))
	require.NoError(b, err)
	parse := Parse
	switch {
	case source[2] == "llama3-tiktoken":
		data = llama3JSON(b, data)
	case source[3] == "tokenizer.model":
		parse = ParseSentencePiece
	}
	tok, err := parse(data)
	require.NoError(b, err)
	return tok
}

func BenchmarkEncode(b *testing.B) {
	for _, source := range benchTokenizers {
		tok := openBench(b, source)
		for _, file := range benchTexts {
			data, err := os.ReadFile(shared(b, file...))
			require.NoError(b, err)
			text := string(data)
			b.Run(source[2]+filepath.Ext(source[3])+"/"+filepath.Base(file[len(file)-1]), func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				var ids []int32
				start := cpuSeconds(b)
				for b.Loop() {
					ids = tok.EncodeAppend(ids[:0], text, false)
				}
				b.ReportMetric(float64(len(text))*float64(b.N)/1e6/(cpuSeconds(b)-start), "MB/CPU-s")
				b.ReportMetric(float64(len(text))/float64(len(ids)), "B/id")
			})
		}
	}
}

// cpuSeconds is the processor time of this process: the figure that a busy machine leaves alone.
func cpuSeconds(b *testing.B) float64 {
	var use syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &use))
	return float64(use.Utime.Nano()+use.Stime.Nano()) / 1e9
}

func BenchmarkParse(b *testing.B) {
	for _, source := range benchTokenizers[:4] {
		data, err := os.ReadFile(shared(b, source...))
		require.NoError(b, err)
		if source[2] == "llama3-tiktoken" {
			data = llama3JSON(b, data)
		}
		b.Run(source[2], func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			start := cpuSeconds(b)
			for b.Loop() {
				_, err := Parse(data)
				require.NoError(b, err)
			}
			b.ReportMetric((cpuSeconds(b)-start)/float64(b.N), "CPU-s/op")
		})
	}
}
