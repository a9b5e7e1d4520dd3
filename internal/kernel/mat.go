package kernel

import "fmt"

// Kind is the element type of a Mat.
type Kind uint8

// The element types. BF16 and F16 are widened exactly to float32 before any arithmetic, except by the products made for
// bfloat16 numbers.
const (
	F32 Kind = iota
	BF16
	F16
	Pairs // two BF16 numbers, see PairRows
)

// String names the kind as safetensors does.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

var kindNames = [...]string{F32: "F32", BF16: "BF16", F16: "F16", Pairs: "Pairs"}

// Mat is a row-major matrix: element (i, j) lies at index i*Stride+j of F32 (Kind F32) or of U16 (BF16, F16), or is the two
// numbers from index 2*(i*Stride+j) of U16 on (Pairs).
type Mat struct {
	Rows, Cols int
	Stride     int // in elements, at least Cols
	Kind       Kind
	F32        []float32
	U16        []uint16
}

// MatF32 is the dense rows x cols matrix over data.
func MatF32(rows, cols int, data []float32) Mat {
	m := Mat{Rows: rows, Cols: cols, Stride: cols, F32: data}
	m.check("MatF32")
	return m
}

// MatU16 is the dense rows x cols matrix of 16-bit floats (kind BF16 or F16) or of Pairs over data.
func MatU16(kind Kind, rows, cols int, data []uint16) Mat {
	m := Mat{Rows: rows, Cols: cols, Stride: cols, Kind: kind, U16: data}
	m.check("MatU16")
	return m
}

// Slice is the sub-matrix of rows [r0, r1) and columns [c0, c1), sharing memory.
func (m Mat) Slice(r0, r1, c0, c1 int) Mat {
	if r0 < 0 || r1 < r0 || r1 > m.Rows || c0 < 0 || c1 < c0 || c1 > m.Cols {
		panic(fmt.Sprintf("kernel: slice [%d:%d, %d:%d] of a %dx%d matrix", r0, r1, c0, c1, m.Rows, m.Cols))
	}
	s := m
	s.Rows, s.Cols = r1-r0, c1-c0
	if s.Rows == 0 || s.Cols == 0 {
		s.F32, s.U16 = nil, nil
		return s
	}
	lo, hi := r0*m.Stride+c0, (r1-1)*m.Stride+c1
	switch m.Kind {
	case F32:
		s.F32 = m.F32[lo:hi]
	case Pairs:
		s.U16 = m.U16[2*lo : 2*hi]
	default:
		s.U16 = m.U16[lo:hi]
	}
	return s
}

// Row is row i of a float32 matrix.
func (m Mat) Row(i int) []float32 { return m.F32[i*m.Stride : i*m.Stride+m.Cols] }

// check panics unless every element of m lies inside its slice.
func (m Mat) check(name string) {
	n := len(m.F32)
	switch m.Kind {
	case F32:
	case Pairs:
		n = len(m.U16) / 2
	default:
		n = len(m.U16)
	}
	checkShape(name, m.Rows, m.Cols, m.Stride, n)
	if m.Kind > Pairs {
		panic(fmt.Sprintf("kernel: %s: unknown kind %d", name, m.Kind))
	}
}

func checkShape(name string, rows, cols, stride, n int) {
	switch {
	case rows < 0 || cols < 0 || stride < cols:
		panic(fmt.Sprintf("kernel: %s: impossible shape %dx%d with stride %d", name, rows, cols, stride))
	case rows > 0 && cols > 0 && (rows-1)*stride+cols > n:
		panic(fmt.Sprintf("kernel: %s: %dx%d with stride %d needs more than %d elements", name, rows, cols, stride, n))
	}
}

// Mat64 is a row-major float64 matrix: element (i, j) lies at F64[i*Stride+j].
type Mat64 struct {
	Rows, Cols int
	Stride     int // in elements, at least Cols
	F64        []float64
}

// MatF64 is the dense rows x cols matrix over data.
func MatF64(rows, cols int, data []float64) Mat64 {
	m := Mat64{Rows: rows, Cols: cols, Stride: cols, F64: data}
	m.check("MatF64")
	return m
}

func (m Mat64) check(name string) { checkShape(name, m.Rows, m.Cols, m.Stride, len(m.F64)) }
