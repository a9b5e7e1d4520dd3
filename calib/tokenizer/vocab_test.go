package tokenizer

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
)

func TestVocabulary(t *testing.T) {
	v, err := newVocabulary([]vocabEntry{{"b", 3}, {"a", 0}, {"", 1}})
	require.NoError(t, err)
	require.Equal(t, []string{"a", "", "", "b"}, v.tokens)
	require.Equal(t, []bool{true, true, false, true}, v.used, "an empty token is one, a hole is none")
	require.True(t, v.has(1))
	for _, id := range []int32{-1, 2, 4, 1 << 30} {
		require.False(t, v.has(id), "%d", id)
	}
	require.EqualValues(t, 3, v.id("b"))
	require.EqualValues(t, -1, v.id("c"))

	id, err := v.add("b", 3, v.count)
	require.NoError(t, err)
	require.EqualValues(t, 3, id, "a known token keeps its id")
	_, err = v.add("new", 4, v.count)
	require.ErrorIs(t, err, safeio.ErrCorrupt, "numbered from the count, not from the end")
	_, err = v.add("new", 3, 3)
	require.ErrorIs(t, err, safeio.ErrCorrupt, "taken")
	id, err = v.add("new", 4, 4)
	require.NoError(t, err)
	require.EqualValues(t, 4, id)
	require.Equal(t, "new", v.tokens[4])
	_, err = v.add("far", maxVocab, maxVocab)
	require.ErrorIs(t, err, safeio.ErrLimit)
}

func TestVocabularyLimits(t *testing.T) {
	var entries []vocabEntry
	for i := range 1000 {
		entries = append(entries, vocabEntry{fmt.Sprint(i), int32(i)})
	}
	for last, want := range map[int32]error{66_000: nil, 68_000: safeio.ErrCorrupt, maxVocab - 1: safeio.ErrCorrupt, maxVocab: safeio.ErrLimit} {
		_, err := newVocabulary(append(entries[:len(entries):len(entries)], vocabEntry{"last", last}))
		if want == nil {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, want, "%d", last)
		}
	}
}
