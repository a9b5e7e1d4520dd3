package quant

import (
	"context"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/tensor"
)

// artifact is where the tensors of a block go: into the layouts of a safetensors directory, or into a GGUF file.
type artifact interface {
	// linear writes a quantized weight.
	linear(t *PlannedTensor, q *packing.Linear) error
	// kept writes the tensors of a block that no rounder touched.
	kept(ctx context.Context, l *Layer) ([]TensorReport, error)
	// names lists the output tensors of a layer, -1: those outside the blocks.
	names(layer int) []string
	// embeddings is a source whose embedding matrix reads as the artifact stores it.
	embeddings(ctx context.Context) (tensor.Source, error)
}

// directory is the artifact of a safetensors directory.
type directory struct{ *job }

func (d directory) linear(t *PlannedTensor, q *packing.Linear) error { return d.writeLinear(t, q) }

func (d directory) kept(ctx context.Context, l *Layer) ([]TensorReport, error) {
	return d.writeKept(ctx, l)
}

// embeddings stay dense in these layouts.
func (d directory) embeddings(context.Context) (tensor.Source, error) { return d.src, nil }

func (d directory) names(layer int) (names []string) {
	for i := range d.plan.Tensors {
		if t := &d.plan.Tensors[i]; t.Layer == layer {
			for _, s := range t.Stored {
				names = append(names, s.Name)
			}
		}
	}
	return names
}
