package kernel

import (
	"slices"
	"testing"
)

func TestSlice(t *testing.T) {
	m := MatF32(3, 4, []float32{0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23})
	s := m.Slice(1, 3, 1, 3)
	if s.Rows != 2 || s.Cols != 2 || !slices.Equal(s.Row(0), []float32{11, 12}) || !slices.Equal(s.Row(1), []float32{21, 22}) {
		t.Errorf("got %+v", s)
	}
	if e := m.Slice(3, 3, 0, 4); e.Rows != 0 || e.Cols != 4 {
		t.Errorf("empty: got %+v", e)
	}
	h := MatU16(BF16, 2, 2, []uint16{1, 2, 3, 4}).Slice(1, 2, 0, 2)
	if !slices.Equal(h.U16, []uint16{3, 4}) {
		t.Errorf("16 bits: got %+v", h)
	}
}

func TestShapesArePanics(t *testing.T) {
	m := func(rows, cols int) Mat { return MatF32(rows, cols, make([]float32, rows*cols)) }
	for name, f := range map[string]func(){
		"short data": func() { MatF32(2, 3, make([]float32, 5)) },
		"negative":   func() { MatF32(-1, 3, nil) },
		"small stride": func() {
			GemmNT(nil, m(1, 1), Mat{Rows: 1, Cols: 2, Stride: 1, F32: make([]float32, 2)}, m(1, 2), false)
		},
		"inner":     func() { GemmNT(nil, m(2, 2), m(2, 3), m(2, 4), false) },
		"outer":     func() { GemmNN(nil, m(2, 2), m(2, 3), m(3, 4), false) },
		"kind of A": func() { GemmNT(nil, m(1, 1), MatU16(F16, 1, 1, make([]uint16, 1)), m(1, 1), false) },
		"unknown kind": func() {
			GemmNT(nil, m(1, 1), m(1, 1), Mat{Rows: 1, Cols: 1, Stride: 1, Kind: 9, U16: make([]uint16, 1)}, false)
		},
		"slice":   func() { m(2, 2).Slice(0, 3, 0, 1) },
		"hessian": func() { SyrkAddF64(nil, make([]float64, 4), 2, m(2, 3)) },
		"float64": func() {
			GemmTN64(nil, MatF64(1, 1, make([]float64, 1)), MatF64(1, 2, make([]float64, 2)), MatF64(1, 1, make([]float64, 1)), false)
		},
		"column sums":  func() { ColAbsSum(make([]float64, 1), m(2, 2)) },
		"widen of F32": func() { Widen(make([]float32, 1), make([]uint16, 1), F32) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

func TestFeaturesIsAvailable(t *testing.T) {
	if !slices.Contains(Available(), Features()) || !slices.Contains(Available(), "generic") {
		t.Errorf("features %q of %v", Features(), Available())
	}
}
