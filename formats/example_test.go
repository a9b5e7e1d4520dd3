package formats_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/safetensors"
	"github.com/llmquant/quantize/formats/tensor"
)

func ExampleOpen() {
	model, err := formats.Open(context.Background(), "../testdata/golm-llama")
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	info, _ := model.Lookup("model.norm.weight")
	fmt.Println(model.Meta().Kind, len(model.Tensors()), "tensors;", info.Name, info.DType, info.Shape)
	// Output: hf 39 tensors; model.norm.weight BF16 [256]
}

// A job is opened with a complete plan, filled unit by unit, and published. Run again after an interruption, the same
// code skips the units that are done.
func ExampleOpenJob() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := writeModel(filepath.Join(dir, "model")); err != nil {
		log.Fatal(err)
	}
	model, err := formats.Open(context.Background(), filepath.Join(dir, "model"))
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	fmt.Println(model.Tensors())
	// Output: [{a U8 [3]}]
}

func writeModel(out string) error {
	ctx := context.Background()
	plan, _, err := safetensors.Plan([]tensor.Info{{Name: "a", DType: tensor.U8, Shape: []int64{3}}}, 0, nil)
	if err != nil {
		return err
	}
	job, err := formats.OpenJob(ctx, formats.JobOptions{Out: out, Key: "inputs, recipe and version, hashed", Plan: plan})
	if err != nil {
		return err
	}
	defer job.Close()
	if !job.Done("everything") {
		if err := job.Write("a", 0, []byte{1, 2, 3}); err != nil {
			return err
		}
		if err := job.Finish("everything", []string{"a"}, nil); err != nil {
			return err
		}
	}
	return job.Publish(ctx, nil, func([]formats.FileSum) (map[string][]byte, error) {
		return map[string][]byte{"config.json": []byte("{}\n")}, nil
	})
}
