package tokenizer

import (
	"encoding/base64"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safeio/safeiotest"
)

// mutate damages a copy of data: bytes changed, stretches removed, repeated or moved, the end cut off.
func mutate(rng *rand.Rand, data []byte) []byte {
	out := append([]byte(nil), data...)
	for range 1 + rng.IntN(3) {
		a := rng.IntN(len(out))
		b := min(len(out), a+rng.IntN(1+rng.IntN(60)))
		switch rng.IntN(5) {
		case 0:
			out[a] = byte(rng.IntN(256))
		case 1:
			out[a] ^= 1 << rng.IntN(8)
		case 2:
			out = append(out[:a:a], out[b:]...)
		case 3:
			out = append(out[:b:b], out[a:]...)
		case 4:
			out = out[:max(1, a)]
		}
		if len(out) == 0 {
			return []byte{0}
		}
	}
	return out
}

// TestDamagedFiles gives damaged versions of good files to the readers: each is refused with a typed error or works.
func TestDamagedFiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 24))
	refused, read := 0, 0
	for _, c := range loadReference(t).Cases {
		data, parse := []byte(c.JSON), Parse
		if c.Model != "" {
			model, err := base64.StdEncoding.DecodeString(c.Model)
			require.NoError(t, err)
			data, parse = model, ParseSentencePiece
		}
		for range 25 {
			bad := mutate(rng, data)
			var tok *Tokenizer
			var err error
			safeiotest.CheckAllocation(t, len(bad), func() { tok, err = parse(bad) })
			if err != nil {
				refused++
				var e *safeio.Error
				require.True(t, errors.As(err, &e), "%v", err)
				known := errors.Is(err, safeio.ErrCorrupt) || errors.Is(err, safeio.ErrUnsupported) || errors.Is(err, safeio.ErrLimit)
				require.True(t, known, "%v", err)
				continue
			}
			read++
			exercise(t, tok)
		}
	}
	require.Greater(t, refused, 200)
	require.Positive(t, read)
}
