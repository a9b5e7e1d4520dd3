package packing

import (
	"slices"
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
)

// Validate runs the checks that come before writing: the layout takes this scheme and shape, every scale is finite,
// not zero and exact in its stored type, every code and zero point fits its field, and zero points obey the layout's
// own rules. Each was a real defect of some writer.
func Validate(l *Linear, to *Layout) error {
	if to.valid == nil {
		return safeio.Unsupportedf("layout %s is read only", to.Name)
	}
	return to.valid(l)
}

// fused lists the projections that servers merge into one matrix, with the merged name. All members of a set need
// the same scheme, or none may be quantized.
var fused = []struct {
	into    string
	members []string
}{
	{"qkv_proj", []string{"q_proj", "k_proj", "v_proj"}},
	{"gate_up_proj", []string{"gate_proj", "up_proj"}},
	{"w13", []string{"w1", "w3"}},
}

// CheckFused checks that servers can merge what they merge: within a module such as model.layers.0.self_attn, the
// projections q, k, v (and gate, up) are all in schemes with one scheme, or none is. exists reports whether the model has
// a module of that name, so that absent projections are not demanded.
func CheckFused(schemes map[string]Scheme, exists func(module string) bool) error {
	for name, s := range schemes {
		parent, last, _ := cutLast(name)
		for _, f := range fused {
			if !slices.Contains(f.members, last) {
				continue
			}
			for _, m := range f.members {
				other := parent + "." + m
				if !exists(other) {
					continue
				}
				if t, ok := schemes[other]; !ok || t != s {
					return safeio.Unsupportedf("servers merge %s and %s into %s: give both the same scheme", name, other, f.into)
				}
			}
		}
	}
	return nil
}

// TensorParallel returns the degrees out of 1, 2, 4, 8 at which a layout still takes each part of a weight: split
// along the outputs (column parallel: q, k, v, gate, up) or along the inputs (row parallel: o, down).
func TensorParallel(l *Layout, s Scheme, out, in int, rowParallel bool) []int {
	var ok []int
	for _, degree := range []int{1, 2, 4, 8} {
		n, k := out, in
		if rowParallel {
			k = in / degree
		} else {
			n = out / degree
		}
		if n*k*degree == out*in && l.Check(s, n, k) == nil {
			ok = append(ok, degree)
		}
	}
	return ok
}

// cutLast splits a module name at its last dot.
func cutLast(name string) (parent, last string, ok bool) {
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		return name[:i], name[i+1:], true
	}
	return "", name, false
}
