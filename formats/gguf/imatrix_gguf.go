package gguf

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
)

// The GGUF form keeps sums and counts apart, as float32, one tensor each, so that matrices can be merged exactly and unseen
// experts recognised. It has no architecture: it fits any file with the same tensor names and sizes.

// readGGUF reads NAME.in_sum2 and NAME.counts pairs.
func (m *Imatrix) readGGUF(r io.ReaderAt, size int64) error {
	p, err := parse(r, size, safeio.DefaultLimits())
	if err != nil {
		return err
	}
	kind, _ := p.KV.String("general.type")
	if kind != "imatrix" {
		return safeio.Corruptf("this GGUF file is no importance matrix: general.type is %q", kind)
	}
	if m.Datasets, err = p.KV.Strings(keyDatasets); err != nil {
		return err
	}
	for _, k := range []struct {
		key string
		to  *int
	}{{keyChunks, &m.Chunks}, {keyChunkSize, &m.ChunkSize}} {
		n, err := p.KV.Int(k.key, 0, math.MaxInt32)
		if err != nil {
			return err
		}
		*k.to = int(n)
	}
	byName := make(map[string]*ImatrixEntry)
	for i := range p.Tensors {
		if err := m.readTensor(r, p, &p.Tensors[i], byName); err != nil {
			return &safeio.Error{Op: "read", Tensor: p.Tensors[i].Name, Off: -1, Err: err}
		}
	}
	for _, e := range byName {
		if err := e.even(); err != nil {
			return err
		}
		m.Entries = append(m.Entries, *e)
	}
	m.sort()
	return nil
}

// readTensor reads one half of an entry. Tensors with other endings are left to newer versions of the format.
func (m *Imatrix) readTensor(r io.ReaderAt, p *parsed, t *Tensor, byName map[string]*ImatrixEntry) error {
	name, isSums := strings.CutSuffix(t.Name, sumsSuffix)
	if !isSums {
		var isCounts bool
		if name, isCounts = strings.CutSuffix(t.Name, countsSuffix); !isCounts {
			return nil
		}
	}
	if t.Type != F32 {
		return safeio.Corruptf("the type is %s, F32 is expected", t.Type)
	}
	raw := make([]byte, t.Bytes)
	if err := safeio.ReadFullAt(r, raw, p.data+t.Offset); err != nil {
		return err
	}
	e := byName[name]
	if e == nil {
		e = &ImatrixEntry{Name: name}
		byName[name] = e
	}
	if isSums {
		e.Sums = floatsOf(raw)
	} else {
		e.Counts = floatsOf(raw)
	}
	return nil
}

// floatsOf widens little-endian bytes to numbers.
func floatsOf(raw []byte) []float32 {
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

// EncodeGGUF returns the matrix as a GGUF file that llama.cpp reads.
func (m *Imatrix) EncodeGGUF() ([]byte, error) {
	h := &Header{}
	h.KV.Set("general.type", String("imatrix"))
	h.KV.Set(keyDatasets, Strings(m.Datasets))
	h.KV.Set(keyChunks, Uint32(uint32(m.Chunks)))
	h.KV.Set(keyChunkSize, Uint32(uint32(m.ChunkSize)))
	var data [][]float32
	add := func(name string, cols, matrices int, values []float32) {
		shape := []int64{int64(cols)}
		if matrices > 1 {
			shape = []int64{int64(matrices), int64(cols)}
		}
		t, _ := NewTensor(name, F32, shape...)
		h.Tensors = append(h.Tensors, t)
		data = append(data, values)
	}
	for i := range m.Entries {
		e := &m.Entries[i]
		if err := e.even(); err != nil {
			return nil, err
		}
		add(e.Name+sumsSuffix, e.Cols(), len(e.Counts), e.Sums)
		add(e.Name+countsSuffix, 1, len(e.Counts), e.Counts)
	}
	p, err := Plan(h, PlanOptions{Name: "imatrix.gguf"})
	if err != nil {
		return nil, fmt.Errorf("importance matrix: %w", err)
	}
	out := make([]byte, p.Files[0].Size)
	copy(out, p.Files[0].Header)
	for i, at := range p.Tensors {
		if err := EncodeRows(out[at.Offset:at.Offset+at.Bytes], F32, data[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}
