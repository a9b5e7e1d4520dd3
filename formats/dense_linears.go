package formats

import (
	"strings"

	"github.com/llmquant/quantize/formats/gguf"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// Stored tells how a checkpoint that Dense returned stores the weight of a module; ok is false for a module that is
// not quantized or not of this checkpoint.
func Stored(dense Checkpoint, module string) (found packing.Found, ok bool) {
	v, is := dense.(*denseView)
	if !is {
		return packing.Found{}, false
	}
	found, ok = v.linears[module]
	return found, ok
}

// StoredScheme tells how a checkpoint that Dense returned stores a tensor of its view; ok is false for plain numbers.
func StoredScheme(dense Checkpoint, name string) (s packing.Scheme, ok bool) {
	if v, is := dense.(*ggufView); is {
		types, has := v.Source.(interface {
			StoredType(string) (gguf.Type, bool)
		})
		if !has {
			return s, false
		}
		t, ok := types.StoredType(name)
		return packing.Scheme{Grid: t.String()}, ok && t.DType() == tensor.Invalid
	}
	module, isWeight := strings.CutSuffix(name, weightSuffix)
	found, ok := Stored(dense, module)
	return found.Scheme, ok && isWeight
}

// StoredTensors lists the stored pieces of a module's weight, in storage order.
func StoredTensors(dense Checkpoint, module string) []tensor.Info {
	v, is := dense.(*denseView)
	if !is {
		return nil
	}
	return v.pieces[module]
}

// Unpacked returns the codes and parameters of a module that Stored knows.
func Unpacked(dense Checkpoint, module string) (*packing.Linear, error) {
	v, is := dense.(*denseView)
	if !is {
		return nil, safeio.Unsupportedf("%s is not stored in a quantized layout", module)
	}
	found, ok := v.linears[module]
	if !ok {
		return nil, safeio.Unsupportedf("%s is not stored in a quantized layout", module)
	}
	l, err := v.unpack(module, found)
	if err != nil {
		return nil, v.fail(module+weightSuffix, err)
	}
	return l, nil
}
