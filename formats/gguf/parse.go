package gguf

import (
	"encoding/binary"
	"io"
	"unicode/utf8"

	"github.com/llmquant/quantize/formats/safeio"
)

// parsed is one file's header and where its data section starts.
type parsed struct {
	Header
	version uint32
	align   int64
	data    int64 // offset of the data section; the end of the header when there are no tensors
}

// parse reads and checks the header of a file of the given size. Tensor offsets are checked against the only layout
// ggml accepts and the data against the end of the file, so that a truncated or padded file never opens.
func parse(r io.ReaderAt, size int64, lim safeio.Limits) (*parsed, error) {
	p := &parsed{}
	in := newReader(r, size)
	p.readPreamble(in, lim)
	if in.err != nil {
		return nil, at(in, in.err)
	}
	if err := p.layout(in); err != nil {
		return nil, err
	}
	return p, nil
}

// at gives an error of the parser the position it was noticed at.
func at(in *reader, err error) error { return &safeio.Error{Op: "parse", Off: in.pos, Err: err} }

// readPreamble reads everything before the data section.
func (p *parsed) readPreamble(in *reader, lim safeio.Limits) {
	if m := in.fixed(4, "the magic number"); in.err == nil && string(m) != magic {
		in.fail(safeio.Corruptf("the file does not start with %q", magic))
		return
	}
	p.version = in.u32("the version")
	if in.err != nil {
		return
	}
	if err := checkVersion(p.version); err != nil {
		in.fail(err)
		return
	}
	tensors := in.count(int64(lim.Tensors), 24, "the tensor count") // name length, dims, type, offset
	keys := in.count(int64(lim.GGUFKeys), 12, "the key count")      // key length, kind
	for range keys {
		if p.readPair(in, lim); in.err != nil {
			return
		}
	}
	if in.err != nil {
		return
	}
	var err error
	if p.align, err = alignment(&p.KV, lim); err != nil {
		in.fail(err)
		return
	}
	names := make(map[string]struct{}, min(tensors, 1<<16))
	for range tensors {
		if p.readTensor(in, lim, names); in.err != nil {
			return
		}
	}
}

// checkVersion accepts 2 and 3 and tells the other files apart.
func checkVersion(v uint32) error {
	switch {
	case v == 2 || v == 3:
		return nil
	case v&0xffff == 0 && v != 0:
		return safeio.Unsupportedf("this is a big-endian GGUF file (version %d); convert it to little-endian with gguf_convert_endian.py of llama.cpp",
			binary.BigEndian.Uint32(binary.LittleEndian.AppendUint32(nil, v)))
	case v == 0:
		return safeio.Corruptf("GGUF version 0 does not exist")
	case v == 1:
		return safeio.Unsupportedf("GGUF version 1 is not supported (2 and 3 are)")
	}
	return safeio.Unsupportedf("GGUF version %d is newer than this tool (2 and 3 are supported)", v)
}

// readPair reads one key with its value. Keys must be unique: of two, readers disagree which one counts.
func (p *parsed) readPair(in *reader, lim safeio.Limits) {
	key := in.text(maxKeyBytes, "a metadata key")
	if in.err != nil {
		return
	}
	switch {
	case key == "":
		in.fail(safeio.Corruptf("a metadata key is empty"))
		return
	case !utf8.ValidString(key):
		in.fail(safeio.Corruptf("the metadata key %q is not valid UTF-8", key))
		return
	case p.KV.Has(key):
		in.fail(safeio.Corruptf("the metadata key %q occurs twice", key))
		return
	}
	v := readValue(in, Kind(in.u32("a value's kind")), lim)
	if in.err != nil {
		in.err = atKey(key, in.err)
		return
	}
	p.KV.Set(key, v)
}

// readValue reads a value of kind k.
func readValue(in *reader, k Kind, lim safeio.Limits) Value {
	if in.err != nil {
		return Value{}
	}
	switch {
	case !k.valid():
		in.fail(safeio.Corruptf("has the unknown kind %d", uint32(k)))
		return Value{}
	case k == KindString:
		return String(in.text(lim.GGUFString, "a string"))
	case k == KindArray:
		return readArray(in, lim)
	}
	b := in.fixed(kinds[k].size, "a value")
	v := Value{kind: k, num: widen(k, b)}
	if k == KindBool && v.num > 1 {
		in.fail(safeio.Corruptf("is a bool of value %d", v.num))
	}
	return v
}

// readArray reads an array. Arrays of numbers stay as the bytes of the file, which costs no more memory than the file itself
// and lets a writer copy them unchanged; the getters decode.
func readArray(in *reader, lim safeio.Limits) Value {
	v := Value{kind: KindArray, elem: Kind(in.u32("an array's element kind"))}
	if in.err != nil {
		return v
	}
	if !v.elem.valid() || v.elem == KindArray {
		in.fail(safeio.Unsupportedf("is an array of %s, which the format does not allow", v.elem))
		return v
	}
	if v.elem == KindString {
		n := in.count(lim.GGUFArray, 8, "an array of strings")
		v.strs = make([]string, n)
		for i := range v.strs {
			if v.strs[i] = in.text(lim.GGUFString, "a string of an array"); in.err != nil {
				return v
			}
		}
		return v
	}
	size := kinds[v.elem].size
	n := in.count(lim.GGUFArray, size, "an array")
	if in.err == nil && n > 0 {
		v.str = in.bytes(n*size, "an array")
	}
	if v.elem == KindBool {
		for i := range len(v.str) {
			if v.str[i] > 1 {
				in.fail(safeio.Corruptf("holds a bool of value %d", v.str[i]))
				break
			}
		}
	}
	return v
}
