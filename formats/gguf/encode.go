package gguf

import (
	"encoding/binary"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// The writer knows one version (3), one byte order and no options: a header is a pure function of metadata, tensors and
// alignment. Offsets are those of the only layout readers accept, so they are never an input.

// appendString appends a length and the bytes.
func appendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(len(s)))
	return append(b, s...)
}

// appendValue appends a value without its kind.
func appendValue(b []byte, v Value) []byte {
	switch {
	case v.kind == KindString:
		return appendString(b, v.str)
	case v.kind != KindArray:
		for i := range kinds[v.kind].size {
			b = append(b, byte(v.num>>(8*i)))
		}
		return b
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(v.elem))
	b = binary.LittleEndian.AppendUint64(b, uint64(v.Len()))
	if v.elem != KindString {
		return append(b, v.str...)
	}
	for _, s := range v.strs {
		b = appendString(b, s)
	}
	return b
}

// encode writes the header of a file with these tensors, padded to the data section. Offsets must be set.
func encode(kv *Metadata, tensors []Tensor, align int64) []byte {
	b := append(make([]byte, 0, 64<<10), magic...)
	b = binary.LittleEndian.AppendUint32(b, writtenVersion)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(tensors)))
	b = binary.LittleEndian.AppendUint64(b, uint64(kv.Len()))
	for key, v := range kv.All() {
		b = appendString(b, key)
		b = binary.LittleEndian.AppendUint32(b, uint32(v.kind))
		b = appendValue(b, v)
	}
	for i := range tensors {
		t := &tensors[i]
		b = appendString(b, t.Name)
		b = binary.LittleEndian.AppendUint32(b, uint32(t.Dims))
		for _, n := range t.NE[:t.Dims] {
			b = binary.LittleEndian.AppendUint64(b, uint64(n))
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(t.Type))
		b = binary.LittleEndian.AppendUint64(b, uint64(t.Offset))
	}
	for int64(len(b))%align != 0 {
		b = append(b, 0)
	}
	return b
}

// setOffsets sets the offsets of the tensors of one file and returns the size of its data section.
func setOffsets(tensors []Tensor, align int64) (int64, error) {
	at, ok := int64(0), true
	for i := range tensors {
		t := &tensors[i]
		if !t.measure() {
			return 0, &safeio.Error{Op: "plan", Tensor: t.Name, Err: safeio.Corruptf("rows of %d elements cannot be stored as %s", t.NE[0], t.Type)}
		}
		t.Offset = at
		if at, ok = tensor.Add(at, t.Bytes); ok {
			at, ok = tensor.Align(at, align)
		}
		if !ok {
			return 0, &safeio.Error{Op: "plan", Tensor: t.Name, Err: safeio.Limitf("the sizes of the tensors overflow")}
		}
	}
	return at, nil
}
