package gguf

import (
	"unicode/utf8"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// readTensor reads one tensor info; its numbers are checked before anything is computed from them.
func (p *parsed) readTensor(in *reader, lim safeio.Limits, names map[string]struct{}) {
	t := Tensor{NE: [4]int64{1, 1, 1, 1}}
	t.Name = in.text(int64(lim.GGUFTensorName), "a tensor name")
	if in.err == nil {
		if err := checkName(t.Name, names); err != nil {
			in.fail(err)
		}
	}
	dims := in.u32("a tensor's rank")
	if in.err == nil && dims > maxDims {
		in.fail(safeio.Corruptf("tensor %q has %d dimensions, at most %d exist", t.Name, dims, maxDims))
	}
	if in.err != nil {
		return
	}
	t.Dims = int(dims)
	for i := range t.Dims {
		n := in.u64("a tensor's sizes")
		if t.NE[i] = int64(n); t.NE[i] < 0 {
			in.fail(safeio.Corruptf("tensor %q has the negative size %d", t.Name, t.NE[i]))
		}
	}
	t.Type = Type(in.u32("a tensor's type"))
	offset := in.u64("a tensor's offset")
	if in.err != nil {
		return
	}
	if err := checkTensor(&t, offset); err != nil {
		in.fail(err)
		return
	}
	p.Tensors = append(p.Tensors, t)
}

// checkName refuses names that are empty, undecodable or taken.
func checkName(name string, seen map[string]struct{}) error {
	if name == "" {
		return safeio.Corruptf("a tensor has no name")
	}
	if !utf8.ValidString(name) {
		return safeio.Corruptf("the tensor name %q is not valid UTF-8", name)
	}
	if _, twice := seen[name]; twice {
		return safeio.Corruptf("the tensor name %q occurs twice", name)
	}
	seen[name] = struct{}{}
	return nil
}

// checkTensor checks the type and the sizes and sets Bytes and Offset.
func checkTensor(t *Tensor, offset uint64) error {
	switch {
	case t.Type.Removed():
		return safeio.Unsupportedf("tensor %q has the type %s, which ggml removed", t.Name, t.Type)
	case !t.Type.Valid():
		return safeio.Unsupportedf("tensor %q has the unknown ggml type %d", t.Name, uint32(t.Type))
	case t.NE[0]%t.Type.BlockElems() != 0:
		return safeio.Corruptf("tensor %q has rows of %d elements, not a multiple of the %d of a %s block", t.Name, t.NE[0], t.Type.BlockElems(), t.Type)
	case !t.measure():
		return safeio.Corruptf("the sizes of tensor %q overflow", t.Name)
	case offset>>63 != 0:
		return safeio.Corruptf("tensor %q has the offset %d", t.Name, offset)
	}
	t.Offset = int64(offset)
	return nil
}

// layout checks the data section: each tensor starts where the padded one before it ends, and the file ends after the
// last one, with or without its padding.
func (p *parsed) layout(in *reader) error {
	header := in.pos
	fail := func(t *Tensor, err error) error {
		return &safeio.Error{Op: "parse", Tensor: t.Name, Off: header, Err: err}
	}
	data, ok := tensor.Align(header, p.align)
	if !ok {
		return at(in, safeio.Corruptf("the header's size overflows"))
	}
	p.data = data
	end, padded := int64(0), int64(0)
	for i := range p.Tensors {
		t := &p.Tensors[i]
		if t.Offset != padded {
			return fail(t, safeio.Corruptf("the data lie at offset %d of the data section, the tensor before ends at %d", t.Offset, padded))
		}
		if end, ok = tensor.Add(t.Offset, t.Bytes); ok {
			padded, ok = tensor.Align(end, p.align)
		}
		if ok {
			_, ok = tensor.Add(padded, data)
		}
		if !ok {
			return fail(t, safeio.Corruptf("the sizes of the tensors overflow"))
		}
		if data+end > in.size {
			return fail(t, safeio.Corruptf("the data end at byte %d, the file at byte %d: it is truncated", data+end, in.size))
		}
	}
	return p.tail(in, header, data+end, data+padded)
}

// tail checks that the file ends where the data end and that the padding before the data is zero.
func (p *parsed) tail(in *reader, header, end, padded int64) error {
	if len(p.Tensors) == 0 && in.size == header {
		return nil // a writer that does not pad
	}
	switch {
	case in.size < p.data:
		return at(in, safeio.Corruptf("the file ends inside the padding after the header"))
	case in.size != end && in.size != padded:
		return at(in, safeio.Corruptf("the file ends at byte %d, the data at byte %d", in.size, end))
	}
	in.pos = header
	for p.data > in.pos && in.err == nil {
		if b := in.window(1, "the padding"); b != nil && b[0] != 0 {
			return at(in, safeio.Corruptf("the padding after the header is not zero"))
		}
	}
	if in.err != nil {
		return at(in, in.err)
	}
	return nil
}
