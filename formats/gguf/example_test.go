package gguf_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/gguf"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safetensors"
)

var model = filepath.Join("..", "..", "testdata", "golm-llama")

// Plan the conversion of a checkpoint: every byte of the header and the place of every tensor, before any data is read.
func ExampleFromHF() {
	src, err := safetensors.Open(filepath.Join(model, "model.safetensors"), safeio.DefaultLimits())
	if err != nil {
		log.Fatal(err)
	}
	defer src.Close()
	config, err := os.ReadFile(filepath.Join(model, "config.json"))
	if err != nil {
		log.Fatal(err)
	}
	side := map[string][]byte{}
	for _, name := range gguf.SideFiles() {
		if text, err := os.ReadFile(filepath.Join(model, name)); err == nil {
			side[name] = text
		}
	}
	m, err := arch.Resolve(config, src)
	if err != nil {
		log.Fatal(err)
	}
	header, maps, err := gguf.FromHF(m, src, gguf.ConvertOptions{Type: gguf.AutoType(src), Config: config, Side: side, Name: "golm-llama"})
	if err != nil {
		log.Fatal(err)
	}
	plan, err := gguf.Plan(header, gguf.PlanOptions{Name: "golm-llama.gguf"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(plan.Files[0].Name, plan.Files[0].Size)
	fmt.Println(maps[7].Name, maps[7].Type, maps[7].Shape(), "from", maps[7].Sources[0])

	rows := make([]float32, 2*maps[7].Cols()) // stream two rows of it
	if err := maps[7].ReadRows(src, rows, 0); err != nil {
		log.Fatal(err)
	}
	_, second := maps[7].SourceRow(1)
	fmt.Println("row 1 is row", second, "of the checkpoint: rotary pairs lie side by side in GGUF")
	// Output:
	// golm-llama.gguf 8457408
	// blk.0.attn_k.weight BF16 [128 256] from model.layers.0.self_attn.k_proj.weight
	// row 1 is row 16 of the checkpoint: rotary pairs lie side by side in GGUF
}

// The importance of a tensor's columns, as an encoder takes it.
func ExampleImatrix_Importance() {
	im, err := gguf.OpenImatrix(filepath.Join("..", "..", "testdata", "gguf", "golm-llama.imatrix.gguf"))
	if err != nil {
		log.Fatal(err)
	}
	t, _ := gguf.NewTensor("blk.0.attn_q.weight", gguf.F16, 256, 256)
	importance, err := im.Importance(&t)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(im.Datasets, im.Chunks, len(importance.Values), importance.Values[0])
	// Output: [golm-calib-65536.txt] 128 256 0.17628786
}
