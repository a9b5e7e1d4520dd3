package ggml

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCodebookChecksums(t *testing.T) {
	for name, c := range map[string]struct {
		entries []uint16
		sum     string
	}{
		"IQ2_XXS": {entriesIQ2XXS(), "915952ebc4af8ddba8113583ca1316fc818843f7b825bbf1a25ae1c39bf0e16d"},
		"IQ2_XS":  {entriesIQ2XS(), "f66435966ca8d64e9e4a6e3c91e64afcf9015e700ec85962f527283ebae207b9"},
		"IQ2_S":   {entriesIQ2S(), "e6e75e121b65e8afa5c1f92b71463cfbe217b83893f438acde22fd5db06a43f7"},
		"IQ3_XXS": {entriesIQ3XXS(), "c9678803c61b2210fbd8cbbb3f965a835409cd7d88a04d086d236261bd221d11"},
		"IQ3_S":   {entriesIQ3S(), "353274c58dd7d8dc5ee960dc8fc54ff9164eaf2b49206b841cd49415cf393f81"},
		"IQ1":     {entriesIQ1(), "e9ffebfc997ad6023063a667c0bf4eedd8ebf7f56b3da399cbc7d1b1f7ea52c6"},
	} {
		var raw []byte
		for _, e := range c.entries {
			raw = binary.LittleEndian.AppendUint16(raw, e)
		}
		sum := sha256.Sum256(raw)
		require.Equal(t, c.sum, hex.EncodeToString(sum[:]), name)
	}
}

// TestNeighbours compares random neighbour lists with a plain sort of the whole codebook.
func TestNeighbours(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, grid := range []*codebook{gridIQ2XXS(), gridIQ2XS(), gridIQ2S(), gridIQ3XXS(), gridIQ3S(), gridIQ1()} {
		for range 200 {
			var v uint16
			for i := range grid.elems {
				v |= uint16(r.IntN(grid.levels)) << (grid.bits * i)
			}
			if grid.index[v] >= 0 {
				require.Equal(t, v, grid.entries[grid.index[v]])
				require.Nil(t, grid.candidates(v))
				continue
			}
			require.Equal(t, sortedNeighbours(grid, v), grid.candidates(v))
		}
	}
}

func sortedNeighbours(grid *codebook, v uint16) []uint16 {
	type entry struct{ d, i int }
	var all []entry
	for i, e := range grid.entries {
		d := 0
		for s := 0; s < grid.elems*grid.bits; s += grid.bits {
			diff := int(e>>s&(1<<grid.bits-1)) - int(v>>s&(1<<grid.bits-1))
			d += diff * diff
		}
		all = append(all, entry{d, i})
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Or(cmp.Compare(a.d, b.d), cmp.Compare(a.i, b.i)) })
	var near []uint16
	distances := 0
	for i, e := range all {
		if i == 0 || e.d != all[i-1].d {
			distances++
		}
		if distances > grid.spread {
			break
		}
		near = append(near, grid.entries[e.i])
	}
	return near
}

// TestNearestIQ4 compares the thresholds with the definition of the nearest table entry around every one of them.
func TestNearestIQ4(t *testing.T) {
	nearest := func(v float32) uint8 {
		if v <= levelsIQ4[0] {
			return 0
		}
		for i := range 15 {
			if v < levelsIQ4[i+1] {
				if v-levelsIQ4[i] < levelsIQ4[i+1]-v {
					return uint8(i)
				}
				return uint8(i + 1)
			}
		}
		return 15
	}
	for _, m := range append(levelsIQ4[:], middlesIQ4[:]...) {
		v := m
		for range 100 {
			v = nextDown(v)
		}
		for range 200 {
			require.Equal(t, nearest(v), nearestIQ4(v), "%v", v)
			v = nextUp(v)
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 100000 {
		v := float32(r.NormFloat64() * 60)
		require.Equal(t, nearest(v), nearestIQ4(v), "%v", v)
	}
}
