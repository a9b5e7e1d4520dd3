package gguf

import (
	"cmp"
	"io"
	"math"
	"slices"

	"github.com/llmquant/quantize/formats/safeio"
)

// Imatrix is an importance matrix: for every weight matrix, how strongly each of its input columns was driven by a
// calibration text. llama.cpp stores it in a GGUF file or in an older form of its own (.dat); both are read and written.
type Imatrix struct {
	Entries   []ImatrixEntry // by name
	Datasets  []string       // names of the calibration texts
	Chunks    int            // windows evaluated
	ChunkSize int            // tokens of a window; 0 in the legacy form, which does not record it
	Legacy    bool           // read from the legacy form: sums are means times calls
}

// ImatrixEntry holds the sums of one weight matrix, or of a stack of expert matrices.
type ImatrixEntry struct {
	Name   string    // of the weight: "blk.0.attn_q.weight"
	Sums   []float32 // [matrices, columns]: Σ x² over the tokens that reached the matrix
	Counts []float32 // [matrices]: those tokens
}

// even checks that the sums divide into matrices.
func (e *ImatrixEntry) even() error {
	if len(e.Counts) == 0 || len(e.Sums) == 0 || len(e.Sums)%len(e.Counts) != 0 {
		return safeio.Corruptf("the entry %q has %d sums and %d counts", e.Name, len(e.Sums), len(e.Counts))
	}
	return nil
}

// Cols returns the columns of one matrix.
func (e *ImatrixEntry) Cols() int { return len(e.Sums) / len(e.Counts) }

const (
	sumsSuffix   = ".in_sum2"
	countsSuffix = ".counts"

	keyDatasets  = "imatrix.datasets"
	keyChunks    = "imatrix.chunk_count"
	keyChunkSize = "imatrix.chunk_size"
)

// OpenImatrix reads an importance matrix in either form. Non-finite and negative numbers are corrupt.
func OpenImatrix(path string) (*Imatrix, error) {
	f, info, err := safeio.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var head [4]byte
	if _, err := f.ReadAt(head[:], 0); err != nil && err != io.EOF {
		return nil, err
	}
	m := &Imatrix{}
	if string(head[:]) == magic {
		err = m.readGGUF(f, info.Size())
	} else {
		err = m.readLegacy(f, info.Size())
	}
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return nil, safeio.WithPath(err, path)
	}
	return m, nil
}

// sort orders the entries by name, which Find relies on and both file forms write.
func (m *Imatrix) sort() {
	slices.SortFunc(m.Entries, func(a, b ImatrixEntry) int { return cmp.Compare(a.Name, b.Name) })
}

// check refuses numbers that no sum of squares can have.
func (m *Imatrix) check() error {
	for i := range m.Entries {
		e := &m.Entries[i]
		for _, part := range []struct {
			what   string
			values []float32
		}{{"sum", e.Sums}, {"count", e.Counts}} {
			for j, x := range part.values {
				if !(x >= 0) || math.IsInf(float64(x), 0) {
					return &safeio.Error{Op: "read", Tensor: e.Name, Off: -1, Err: safeio.Corruptf("%s %d is %g", part.what, j, x)}
				}
			}
		}
	}
	return nil
}

// Facts returns what a quantized file records about the matrix.
func (m *Imatrix) Facts(path string) ImatrixFacts {
	f := ImatrixFacts{File: path, Entries: len(m.Entries), Chunks: m.Chunks}
	if len(m.Datasets) > 0 {
		f.Dataset = m.Datasets[0]
	}
	return f
}

// Filter keeps the entries whose name keep accepts.
func (m *Imatrix) Filter(keep func(name string) bool) {
	m.Entries = slices.DeleteFunc(m.Entries, func(e ImatrixEntry) bool { return !keep(e.Name) })
}

// Find returns the entry of a weight.
func (m *Imatrix) Find(name string) (*ImatrixEntry, bool) {
	i, ok := slices.BinarySearchFunc(m.Entries, name, func(e ImatrixEntry, name string) int { return cmp.Compare(e.Name, name) })
	if !ok {
		return nil, false
	}
	return &m.Entries[i], true
}

// Importance is the weight of each column of a tensor, ready for an encoder.
type Importance struct {
	Values []float32 // [matrices, columns]
	Unseen []int     // matrices that no token reached: importance 1 throughout
	Zero   []int     // matrices that tokens reached but whose inputs were all zero: 1 throughout as well
}

// Importance returns the importance of the columns of a tensor, nil when there is no entry for it. An entry of another
// size is an error, except for embeddings, whose entry never fits.
//
// Differs from the reference: a matrix whose sums are all zero counts as unseen. The reference takes the zeros for
// importances and rounds the whole matrix to zero.
func (m *Imatrix) Importance(t *Tensor) (*Importance, error) {
	e, ok := m.Find(t.Name)
	if !ok {
		return nil, nil
	}
	if int64(len(e.Sums)) != t.NE[0]*t.NE[2] {
		if t.Name == nameEmbed {
			return nil, nil
		}
		return nil, &safeio.Error{Op: "importance", Tensor: t.Name, Off: -1, Hint: "The importance matrix belongs to another model.",
			Err: safeio.Corruptf("the importance matrix has %d values, the tensor %d columns in %d matrices", len(e.Sums), t.NE[0], t.NE[2])}
	}
	out := &Importance{Values: make([]float32, len(e.Sums))}
	cols := e.Cols()
	for i, count := range e.Counts {
		sums, values := e.Sums[i*cols:(i+1)*cols], out.Values[i*cols:(i+1)*cols]
		zero := !slices.ContainsFunc(sums, func(x float32) bool { return x != 0 })
		switch {
		case count == 0 && !m.Legacy:
			out.Unseen = append(out.Unseen, i)
		case zero:
			out.Zero = append(out.Zero, i)
		}
		for j, x := range sums {
			switch {
			case zero || count == 0 && !m.Legacy:
				values[j] = 1
			case count == 0: // legacy entries without calls hold finished values
				values[j] = x
			default:
				values[j] = x / count
			}
		}
	}
	return out, nil
}

// Coverage compares the matrix with the tensors that will be quantized: names without an entry, and entries without a
// tensor, both sorted.
func (m *Imatrix) Coverage(names []string) (missing, extra []string) {
	have := make(map[string]bool, len(m.Entries))
	for i := range m.Entries {
		have[m.Entries[i].Name] = true
	}
	for _, name := range names {
		if !have[name] {
			missing = append(missing, name)
		}
		delete(have, name)
	}
	for name := range have {
		extra = append(extra, name)
	}
	slices.Sort(missing)
	slices.Sort(extra)
	return missing, extra
}

// Merge adds the sums and counts of other, as if both texts had been evaluated in one run.
func (m *Imatrix) Merge(other *Imatrix) error {
	if m.Legacy != other.Legacy || m.ChunkSize != other.ChunkSize {
		return safeio.Unsupportedf("importance matrices of different forms or window sizes (%d and %d tokens) cannot be merged", m.ChunkSize, other.ChunkSize)
	}
	for i := range other.Entries {
		theirs := &other.Entries[i]
		ours, ok := m.Find(theirs.Name)
		if !ok {
			continue // added below, so that Find works on the sorted list
		}
		if len(ours.Sums) != len(theirs.Sums) || len(ours.Counts) != len(theirs.Counts) {
			return &safeio.Error{Op: "merge", Tensor: theirs.Name, Off: -1,
				Err: safeio.Corruptf("%d sums for %d matrices against %d for %d", len(ours.Sums), len(ours.Counts), len(theirs.Sums), len(theirs.Counts))}
		}
		for j, x := range theirs.Sums {
			ours.Sums[j] += x
		}
		for j, x := range theirs.Counts {
			ours.Counts[j] += x
		}
	}
	for i := range other.Entries {
		if _, ok := m.Find(other.Entries[i].Name); !ok {
			e := other.Entries[i]
			at, _ := slices.BinarySearchFunc(m.Entries, e.Name, func(x ImatrixEntry, name string) int { return cmp.Compare(x.Name, name) })
			m.Entries = slices.Insert(m.Entries, at, ImatrixEntry{e.Name, slices.Clone(e.Sums), slices.Clone(e.Counts)})
		}
	}
	m.Datasets = append(m.Datasets, other.Datasets...)
	m.Chunks += other.Chunks
	return nil
}
