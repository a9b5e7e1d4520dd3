package gguf

import (
	"encoding/binary"
	"io"
	"math"
	"unicode/utf8"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// The legacy form: i32 entries; per entry i32 name length, name, i32 calls, i32 values, values; then optionally i32
// chunks, i32 length and name of the data set. A value is the mean of x² times the calls, so that files could be merged
// by adding; the number of matrices of a stack is not recorded.

// readLegacy reads a .dat file.
func (m *Imatrix) readLegacy(r io.ReaderAt, size int64) error {
	m.Legacy = true
	in := newReader(r, size)
	n := in.length("the number of entries", 13)
	if in.err == nil && n == 0 {
		in.fail(safeio.Corruptf("there are no entries: not an importance matrix"))
	}
	seen := make(map[string]bool)
	for range n {
		e := in.legacyEntry()
		if in.err == nil && seen[e.Name] {
			in.fail(safeio.Corruptf("the entry %q occurs twice", e.Name))
		}
		if in.err != nil {
			return at(in, in.err)
		}
		seen[e.Name] = true
		m.Entries = append(m.Entries, e)
	}
	if in.left() > 0 {
		m.Chunks = int(int32(in.u32("the number of chunks")))
		if in.err == nil && m.Chunks < 0 {
			in.fail(safeio.Corruptf("%d chunks", m.Chunks))
		}
		if name := in.bytes(in.length("the data set's name", 1), "the data set's name"); name != "" {
			m.Datasets = []string{name}
		}
		if in.err == nil && in.left() > 0 {
			in.fail(safeio.Corruptf("%d bytes follow the data set's name", in.left()))
		}
	}
	if in.err != nil {
		return at(in, in.err)
	}
	m.sort()
	return nil
}

// length reads an i32 count and compares it with the bytes left.
func (r *reader) length(what string, recordSize int64) int64 {
	n := int64(int32(r.u32(what)))
	if r.err != nil {
		return 0
	}
	if need, ok := tensor.Mul(n, recordSize); !ok || need > r.left() {
		r.fail(safeio.Corruptf("%s is %d, more than the %d bytes left can hold", what, n, r.left()))
		return 0
	}
	return n
}

// legacyEntry reads one entry. It keeps the calls as the count of a single matrix: how many matrices the values cover shows
// only when they are compared with a tensor.
func (r *reader) legacyEntry() ImatrixEntry {
	name := r.bytes(r.length("an entry's name", 1), "an entry's name")
	if r.err == nil && (name == "" || !utf8.ValidString(name)) {
		r.fail(safeio.Corruptf("an entry is called %q", name))
	}
	calls := int32(r.u32("an entry's calls"))
	if r.err == nil && calls < 0 {
		r.fail(safeio.Corruptf("the entry %q has %d calls", name, calls))
	}
	n := r.length("an entry's values", 4)
	if r.err == nil && n == 0 {
		r.fail(safeio.Corruptf("the entry %q has no values", name))
	}
	values := r.bytes(4*n, "an entry's values")
	return ImatrixEntry{Name: name, Sums: floatsOf([]byte(values)), Counts: []float32{float32(calls)}}
}

// EncodeLegacy returns the matrix in the legacy form, where token counts become calls (windows). Matrices that no token
// reached are written as 1; entries none of whose matrices was reached are left out.
func (m *Imatrix) EncodeLegacy() []byte {
	var b []byte
	n := int32(0)
	for i := range m.Entries {
		if e := &m.Entries[i]; m.Legacy || largest(e.Counts) > 0 {
			b = m.appendLegacy(b, e)
			n++
		}
	}
	b = append(binary.LittleEndian.AppendUint32(nil, uint32(n)), b...)
	b = binary.LittleEndian.AppendUint32(b, uint32(m.Chunks))
	name := ""
	if len(m.Datasets) > 0 {
		name = m.Datasets[len(m.Datasets)-1]
	}
	return appendLegacyString(b, name)
}

// appendLegacyString appends an i32 length and the bytes.
func appendLegacyString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}

// appendLegacy appends one entry, in float32 steps of the reference so that its bytes come out.
func (m *Imatrix) appendLegacy(b []byte, e *ImatrixEntry) []byte {
	calls := int32(e.Counts[0])
	if !m.Legacy {
		size := max(1, m.ChunkSize)
		calls = int32((int64(largest(e.Counts)) + int64(size) - 1) / int64(size))
	}
	b = appendLegacyString(b, e.Name)
	b = binary.LittleEndian.AppendUint32(b, uint32(calls))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(e.Sums)))
	cols := e.Cols()
	for i, x := range e.Sums {
		if !m.Legacy {
			count := e.Counts[i/cols]
			if count == 0 {
				x, count = 1, 1
			}
			x = float32(x/count) * float32(calls)
		}
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// largest returns the greatest value, 0 for none.
func largest(values []float32) float32 {
	most := float32(0)
	for _, x := range values {
		most = max(most, x)
	}
	return most
}
