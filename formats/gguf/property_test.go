package gguf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safeio/safeiotest"
	"github.com/stretchr/testify/require"
)

// randomValue draws a value of any kind, extremes included.
func randomValue(r *rand.Rand) Value {
	bits := [...]uint64{0, 1, math.MaxUint64, 1 << 63, 0x7ff8000000000001, 0x7fa00000, r.Uint64()}[r.IntN(7)]
	k := Kind(r.IntN(len(kinds)))
	switch k {
	case KindString:
		return String(randomText(r))
	case KindArray:
		return randomArray(r)
	case KindBool:
		bits &= 1
	}
	raw := make([]byte, kinds[k].size)
	for i := range raw {
		raw[i] = byte(bits >> (8 * i))
	}
	return Value{kind: k, num: widen(k, raw)}
}

func randomArray(r *rand.Rand) Value {
	n := [...]int{0, 1, 2, 1000, 70_000}[r.IntN(5)]
	switch r.IntN(4) {
	case 0:
		list := make([]string, min(n, 3000))
		for i := range list {
			list[i] = randomText(r)
		}
		return Strings(list)
	case 1:
		list := make([]int32, n)
		for i := range list {
			list[i] = int32(r.Uint32())
		}
		return Int32s(list)
	case 2:
		return Value{kind: KindArray, elem: KindUint8, str: string(bytes.Repeat([]byte{7}, n))}
	}
	list := make([]float32, n)
	for i := range list {
		list[i] = math.Float32frombits(r.Uint32())
	}
	return Float32s(list)
}

func randomText(r *rand.Rand) string {
	return [...]string{"", "a", "▁x", "\x00\xff", string(bytes.Repeat([]byte("long "), 30_000))}[min(r.IntN(60), 59)/15%5]
}

func randomHeader(r *rand.Rand) *Header {
	h := &Header{}
	if r.IntN(2) == 0 {
		h.KV.Set("general.alignment", Uint32(8<<r.IntN(6)))
	}
	for i := range r.IntN(12) {
		h.KV.Set(fmt.Sprintf("key.%d", i), randomValue(r))
	}
	all := Types()
	for i := range r.IntN(20) {
		typ := all[r.IntN(len(all))]
		shape := []int64{typ.BlockElems() * int64(r.IntN(4))}
		for range r.IntN(4) {
			shape = append([]int64{int64(r.IntN(5))}, shape...)
		}
		t, ok := NewTensor(fmt.Sprintf("blk.%d.%s", i, typ), typ, shape...)
		if ok {
			h.Tensors = append(h.Tensors, t)
		}
	}
	return h
}

// What Plan lays out, parse reads back: every key bit for bit, every tensor where the plan put it, in one file and in
// split sets.
func TestPlannedFilesParse(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 150 {
		h := randomHeader(r)
		o := PlanOptions{Name: "m.gguf", MaxCount: r.IntN(6), MaxBytes: int64(r.IntN(3)) * 500}
		p, err := Plan(h, o)
		require.NoError(t, err)
		files := fill(t, p, func(i int, dst []byte) {
			for j := range dst {
				dst[j] = byte(i)
			}
		})
		next := 0
		for i, content := range files {
			var q *parsed
			safeiotest.CheckAllocation(t, len(content), func() {
				q, err = parse(bytes.NewReader(content), int64(len(content)), safeio.DefaultLimits())
			})
			require.NoError(t, err)
			require.Equal(t, uint32(3), q.version)
			if i == 0 {
				for key, v := range h.KV.All() {
					got, ok := q.KV.Get(key)
					require.True(t, ok)
					require.Equal(t, appendValue(nil, v), appendValue(nil, got), key)
					require.Equal(t, v.kind, got.kind)
				}
			}
			for j := range q.Tensors {
				at := p.Tensors[next]
				require.Equal(t, i, at.File)
				require.Equal(t, at.Name, q.Tensors[j].Name)
				require.Equal(t, at.Offset, q.data+q.Tensors[j].Offset)
				require.Equal(t, at.Bytes, q.Tensors[j].Bytes)
				require.Equal(t, h.Tensors[next].NE, q.Tensors[j].NE)
				next++
			}
		}
		require.Equal(t, len(h.Tensors), next)
	}
}

// Determinism: the same header gives the same bytes.
func TestPlansAreDeterministic(t *testing.T) {
	for seed := range uint64(20) {
		a, err := Plan(randomHeader(rand.New(rand.NewPCG(seed, 0))), PlanOptions{Name: "m.gguf", MaxCount: 3})
		require.NoError(t, err)
		b, err := Plan(randomHeader(rand.New(rand.NewPCG(seed, 0))), PlanOptions{Name: "m.gguf", MaxCount: 3})
		require.NoError(t, err)
		require.Equal(t, a, b)
	}
}

// failing is a file whose n-th read fails or comes back short.
type failing struct {
	content []byte
	n       int
	err     error // nil: a short read without an error
}

func (f *failing) ReadAt(dst []byte, off int64) (int, error) {
	if f.n--; f.n == 0 {
		return copy(dst, f.content[off:]) / 2, f.err
	}
	return bytes.NewReader(f.content).ReadAt(dst, off)
}

// An I/O error stays an I/O error; a file that ends early is corrupt. No read is missed.
func TestReadErrorsPassThrough(t *testing.T) {
	r := good()
	oneKey(pair("long", KindString, str(string(bytes.Repeat([]byte{'x'}, 3*bufferSize)))))(r)
	oneKey(array(KindUint32, 40_000, make([]byte, 160_000)...))(r)
	content := r.bytes()
	reads := 0
	for n := 1; ; n++ {
		f := &failing{content: content, n: n, err: syscall.EIO}
		_, err := parse(f, int64(len(content)), safeio.DefaultLimits())
		if err == nil {
			reads = n - 1
			break
		}
		require.ErrorIs(t, err, syscall.EIO)
		require.NotErrorIs(t, err, safeio.ErrCorrupt)
		for _, short := range []error{nil, io.EOF} {
			_, err = parse(&failing{content: content, n: n, err: short}, int64(len(content)), safeio.DefaultLimits())
			require.ErrorIs(t, err, safeio.ErrCorrupt)
		}
	}
	require.Greater(t, reads, 3)
}

// Limits can be lowered by a caller; nothing in a file raises them.
func TestLimitsOfTheCaller(t *testing.T) {
	path := write(t, "m.gguf", good().bytes())
	for name, lower := range map[string]func(*safeio.Limits){
		"keys": func(l *safeio.Limits) { l.GGUFKeys = 1 }, "tensors": func(l *safeio.Limits) { l.Tensors = 1 },
		"strings": func(l *safeio.Limits) { l.GGUFString = 4 }, "names": func(l *safeio.Limits) { l.GGUFTensorName = 0 },
	} {
		lim := safeio.DefaultLimits()
		lower(&lim)
		_, err := OpenLimits(path, lim)
		require.ErrorIs(t, err, safeio.ErrLimit, name)
		require.ErrorContains(t, err, path)
	}
}

// Many readers at once see the same bytes.
func TestConcurrentReads(t *testing.T) {
	f := openHeader(t, tiny("llama"))
	_, src, err := f.HF()
	require.NoError(t, err)
	const name = "model.layers.0.self_attn.q_proj.weight"
	want := readAll(t, src, name)
	results := make(chan error, 16)
	for range cap(results) {
		go func() {
			got := make([]byte, len(want))
			err := src.ReadTensor(name, got, 0)
			if err == nil && !bytes.Equal(want, got) {
				err = errors.New("other bytes")
			}
			results <- err
		}()
	}
	for range cap(results) {
		require.NoError(t, <-results)
	}
}
