package exl2

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/packing"
)

func mustCandidate(t testing.TB, s string) Candidate {
	t.Helper()
	c, err := ParseCandidate(s)
	require.NoError(t, err)
	return c
}

// Every candidate of the tables and of ExLlamaV2's own has one spelling, legal groups for every size, and the bits that
// the layout's tensors take.
func TestCandidates(t *testing.T) {
	layout, ok := packing.Lookup("exl2")
	require.True(t, ok)
	texts := append([]string(nil), measured...)
	for bits := range heads {
		c, err := HeadCandidate(bits)
		require.NoError(t, err)
		texts = append(texts, c.String())
	}
	texts = append(texts, "3/2 5/95 g64", "3/2 10/90 g64", "4/3 10/90 g128", "5/4 10/90 g32", "8/4/3 5/10/85 g32/128/128",
		"6/3/2 5/20/75 g32/64/64", "8/6 15/85 g128", "8/6/5/4/3/2 10/10/10/20/20/30 g32")
	for _, text := range texts {
		c := mustCandidate(t, text)
		require.Equal(t, text, c.String())
		again, err := NewCandidate(c.Bands()...)
		require.NoError(t, err)
		require.Equal(t, c, again)
		for _, k := range []int{32, 64, 96, 256, 768, 4096, 11008, 14336} {
			s := c.Scheme(k)
			require.NoError(t, layout.Check(s, 100, k), "%s on %d", text, k)
			bits := int64(0)
			for _, info := range layout.Plan("m", s, 100, k) {
				n, ok := info.Bytes()
				require.True(t, ok)
				bits += 8 * n
			}
			require.Equal(t, bits, c.Bits(100, k))
		}
	}
}

// Bands are rounded up to whole groups in turn, the last takes what is left.
func TestGroups(t *testing.T) {
	for text, want := range map[string]string{
		"4 g128":                    "4:128*2 4:64",
		"5/4 10/90 g32":             "5:32 4:32*9",
		"5/4 10/90 g128":            "5:128 4:128 4:64",
		"8/4/3 5/10/85 g32/128/128": "8:32 4:128 3:128 3:32",
		"6/3/2 40/40/20 g128":       "6:128 3:128 2:64",
		"6/5/4/3 40/40/10/10 g128":  "6:128 5:128 4:64", // the last band vanished
	} {
		require.Equal(t, want, mustCandidate(t, text).Scheme(320).Mix, text)
	}
	short, err := Candidates(32)
	require.NoError(t, err)
	require.Len(t, short, 6, "on one group only the widths differ")
	require.Contains(t, short, mustCandidate(t, "4 g128"))
	all, err := Candidates(4096)
	require.NoError(t, err)
	require.Len(t, all, len(measured))
}

func TestCandidateErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                    "no candidate",
		"4":                   "no candidate",
		"4 128":               "no candidate",
		"x g32":               "no candidate",
		"5/4 10/90 g32/64/32": "no candidate",
		"5/4 100 g32":         "no candidate",
		"7 g32":               "7 bits",
		"9 g32":               "9 bits",
		"4/5 10/90 g32":       "have to fall",
		"4/4 10/90 g32":       "have to fall",
		"5/4 10/80 g32":       "cover 90 %",
		"5/4 20/90 g32":       "80 % are left",
		"5/4 0/100 g32":       "0 %",
		"4 g16":               "groups of 16",
		"4 g48":               "groups of 48",
	} {
		_, err := ParseCandidate(text)
		require.ErrorContains(t, err, want, text)
	}
	_, err := NewCandidate()
	require.Error(t, err)
	_, err = HeadCandidate(7)
	require.ErrorContains(t, err, "2, 3, 4, 5, 6 and 8")
	var c Candidate
	require.Error(t, json.Unmarshal([]byte(`"4 g7"`), &c))
	require.NoError(t, json.Unmarshal([]byte(`"8/4 5/95 g32/128"`), &c))
	b, err := json.Marshal(map[string]Candidate{"m": c})
	require.NoError(t, err)
	require.Equal(t, `{"m":"8/4 5/95 g32/128"}`, string(b))
	require.False(t, strings.Contains(Candidate{}.String(), "/"))
}
