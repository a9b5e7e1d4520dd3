package parquet

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// mutations is how many spoiled files TestMutations reads; QUANTIZE_LONG=1 asks for a release's worth.
func mutations() int {
	if v := os.Getenv("QUANTIZE_LONG"); v != "" {
		if n, err := strconv.Atoi(v); err == nil && n > 1 {
			return n
		}
		return 1_000_000
	}
	return 4_000
}

// mutate spoils one to four places: a flipped bit, a byte, a varint that became huge, a cut or doubled stretch.
func mutate(r *rand.Rand, data []byte) []byte {
	out := append([]byte(nil), data...)
	for range 1 + r.IntN(4) {
		i := r.IntN(len(out))
		switch r.IntN(6) {
		case 0, 1:
			out[i] ^= 1 << r.IntN(8)
		case 2:
			out[i] = byte(r.Uint32())
		case 3: // in place, so that the offsets behind it stay right
			copy(out[i:], binary.AppendUvarint(nil, r.Uint64()>>r.IntN(60)))
		case 4:
			j := min(len(out), i+1+r.IntN(16))
			out = append(out[:i:i], append(append([]byte(nil), out[i:j]...), out[i:]...)...)
		case 5:
			j := min(len(out), i+1+r.IntN(16))
			if j-i < len(out) {
				out = append(out[:i:i], out[j:]...)
			}
		}
	}
	return out
}

// TestMutations reads spoiled files of all writers: no death, no hang, bounded memory. What still reads is counted, so
// that the test cannot pass by refusing everything.
func TestMutations(t *testing.T) {
	names, err := filepath.Glob("testdata/*.parquet")
	require.NoError(t, err)
	var seeds [][]byte
	for _, n := range names {
		data, err := os.ReadFile(n)
		require.NoError(t, err)
		seeds = append(seeds, data)
	}
	for _, codec := range []int{codecNone, codecSnappy, codecGzip, codecZstd} {
		for _, f := range []fileOf{textFile(codec), dictFile(codec), v2File(codec), idsFile(codec)} {
			seeds = append(seeds, f.bytes())
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	readable, slowest, most := 0, time.Duration(0), uint64(0)
	n := mutations()
	for range n {
		seed := seeds[r.IntN(len(seeds))]
		data := mutate(r, seed)
		start := time.Now()
		var err error
		used := allocated(func() { err = readAll(data) })
		slowest = max(slowest, time.Since(start))
		if used > most {
			most = used
		}
		require.Less(t, used, uint64(64<<20+64*len(data)))
		if err == nil {
			readable++
		}
	}
	t.Logf("%d of %d spoiled files still read; slowest %v; most allocated %d KiB", readable, n, slowest, most>>10)
	require.Greater(t, readable, n/50)
}

// TestCutGroup reads pages whose last bit-packed group lacks the bytes behind the last value, as some writers leave
// it.
func TestCutGroup(t *testing.T) {
	f := build(textSchema, list{"text"}, typeByteArray, codecNone, 3, 3,
		dictPage(codecNone, 200, plainText(make([]string, 200)...)),
		dataPage(codecNone, 3, encRLEDict, join(withLength(rleRun(3, 1, 1)), []byte{8}, []byte{1<<1 | 1, 1, 2, 3})))
	done := make(chan error, 1)
	go func() { done <- readAll(f.bytes()) }()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("reading hangs")
	}
}

// TestCancel stops at the context.
func TestCancel(t *testing.T) {
	f, err := openBytes(textFile(codecNone).bytes())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, err := range f.Read(ctx, f.Columns()[0]) {
		require.ErrorIs(t, err, context.Canceled)
	}
}
