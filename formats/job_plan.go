package formats

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"

	"github.com/llmquant/quantize/formats/container"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// layoutOf is a checked plan: tensors by name, and by file in order of offset.
type layoutOf struct {
	*container.Plan
	byName map[string]int
	byFile [][]int
}

// checkPlan proves that names are usable and distinct and that headers and tensors lie inside their files without overlap.
func checkPlan(p *container.Plan) (*layoutOf, error) {
	l := &layoutOf{Plan: p, byName: make(map[string]int, len(p.Tensors)), byFile: make([][]int, len(p.Files))}
	names := make([]string, len(p.Files))
	var total int64
	for i, f := range p.Files {
		names[i] = f.Name
		var ok bool
		if total, ok = tensor.Add(total, f.Size); !ok {
			return nil, planError(f.Name, "", "the sizes of the files overflow")
		}
		if f.Size < int64(len(f.Header)) {
			return nil, planError(f.Name, "", "its %d bytes do not hold the header of %d", f.Size, len(f.Header))
		}
	}
	if err := safeio.CheckNames(names); err != nil {
		return nil, &safeio.Error{Op: "plan", Off: -1, Err: err}
	}
	for i, t := range p.Tensors {
		if _, twice := l.byName[t.Name]; twice {
			return nil, planError("", t.Name, "the plan lists it twice")
		}
		if t.File < 0 || t.File >= len(p.Files) {
			return nil, planError("", t.Name, "its file does not exist in the plan")
		}
		l.byName[t.Name] = i
		l.byFile[t.File] = append(l.byFile[t.File], i)
	}
	for i, f := range p.Files {
		slices.SortFunc(l.byFile[i], func(a, b int) int {
			return cmp.Or(cmp.Compare(p.Tensors[a].Offset, p.Tensors[b].Offset), cmp.Compare(p.Tensors[a].Bytes, p.Tensors[b].Bytes))
		})
		at := int64(len(f.Header))
		for _, k := range l.byFile[i] {
			t := p.Tensors[k]
			end, ok := tensor.Add(t.Offset, t.Bytes)
			if !ok || t.Offset < at || end > f.Size {
				return nil, planError(f.Name, t.Name, "its bytes %d to %d overlap others or leave the file of %d", t.Offset, end, f.Size)
			}
			at = end
		}
	}
	return l, nil
}

func planError(path, name, format string, args ...any) error {
	return &safeio.Error{Op: "plan", Path: path, Tensor: name, Off: -1, Err: safeio.Corruptf(format, args...)}
}

// bytes returns the size of all files.
func (l *layoutOf) bytes() int64 {
	var n int64
	for _, f := range l.Files {
		n += f.Size
	}
	return n
}

// digest identifies the plan: equal digests mean the same bytes in the same places.
func (l *layoutOf) digest() string {
	h := sha256.New()
	text := func(s string) {
		_ = binary.Write(h, binary.LittleEndian, int64(len(s))) // a hash never fails
		h.Write([]byte(s))
	}
	for _, f := range l.Files {
		text(f.Name)
		text(string(f.Header))
		_ = binary.Write(h, binary.LittleEndian, f.Size)
	}
	for _, t := range l.Tensors {
		text(t.Name)
		_ = binary.Write(h, binary.LittleEndian, [3]int64{int64(t.File), t.Offset, t.Bytes})
	}
	return hex.EncodeToString(h.Sum(nil))
}
