package packing

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// stored is a handful of tensors in memory: what a checkpoint is to this package.
type stored map[string]struct {
	tensor.Info
	data []byte
}

// readStored reads a small, trusted safetensors file of the test data.
func readStored(t *testing.T, path string) stored {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	n := binary.LittleEndian.Uint64(b)
	header, err := safeio.ParseJSON(b[8 : 8+n])
	require.NoError(t, err)
	body := b[8+n:]
	s := stored{}
	for name, v := range header.Members() {
		if name == "__metadata__" {
			continue
		}
		dtype, err := safeio.At(v, "dtype", safeio.Value.Str)
		require.NoError(t, err)
		d, ok := tensor.ParseDType(dtype)
		require.True(t, ok)
		shape, err := safeio.At(v, "shape", safeio.Value.Ints)
		require.NoError(t, err)
		off, err := safeio.At(v, "data_offsets", safeio.Value.Ints)
		require.NoError(t, err)
		e := s[name]
		e.Info = tensor.Info{Name: name, DType: d, Shape: shape}
		e.data = body[off[0]:off[1]]
		s[name] = e
	}
	return s
}

func (s stored) module(name string) Module {
	return Module{
		Name: name,
		Info: func(suffix string) (tensor.Info, bool) {
			e, ok := s[name+"."+suffix]
			return e.Info, ok
		},
		Read: func(suffix string) ([]byte, error) { return s[name+"."+suffix].data, nil },
	}
}

func (s stored) source(name string) func(string) []byte {
	return func(suffix string) []byte { return s[name+"."+suffix].data }
}

// packed runs Pack of a layout into fresh buffers of the planned sizes, filled with junk so that a byte that Pack
// forgets shows.
func packed(t *testing.T, l Layout, w *Linear) stored {
	t.Helper()
	s, err := tryPack(l, w)
	require.NoError(t, err)
	return s
}

func tryPack(l Layout, w *Linear) (stored, error) {
	s := stored{}
	for _, info := range l.Plan("m", w.Scheme, w.Out, w.In) {
		n, ok := info.Bytes()
		if !ok {
			return nil, fmt.Errorf("tensor %s has no size", info.Name)
		}
		e := s[info.Name]
		e.Info, e.data = info, make([]byte, n)
		for i := range e.data {
			e.data[i] = 0xa5
		}
		s[info.Name] = e
	}
	return s, l.Pack(w, s.source("m"))
}

func words(b []byte) []uint32 {
	w := make([]uint32, len(b)/4)
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return w
}

// randomLinear makes a weight that a layout with scales of type d can hold.
func randomLinear(r *rand.Rand, s Scheme, out, in int, d tensor.DType) *Linear {
	s.Grid, s.ScaleType = "int", d
	l := newLinear(s, out, in)
	for i := range l.Codes {
		l.Codes[i] = uint8(r.IntN(1 << s.Bits))
	}
	for i := range l.Scales {
		l.Scales[i] = RoundTo(d, 0.001+r.Float32())
		l.Zeros[i] = float32(1 + r.IntN(1<<s.Bits-1))
	}
	if s.Sym {
		l.Zeros = nil
	}
	return l
}

// shared returns a path below the directory of reference data beside the repository, and skips the test without it.
func shared(t *testing.T, elem ...string) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(dir)
		require.NotEqual(t, dir, parent, "no go.mod above the package")
		dir = parent
	}
	path := filepath.Join(append([]string{dir, "..", "shared"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("reference data %s is not here", strings.Join(elem, "/"))
	}
	return path
}

func parseConfig(t *testing.T, text string) *Config {
	t.Helper()
	v, err := safeio.ParseJSON(text)
	require.NoError(t, err)
	c, err := ParseConfig(v)
	require.NoError(t, err)
	return c
}
