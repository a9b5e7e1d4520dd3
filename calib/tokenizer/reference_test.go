package tokenizer

import (
	"encoding/base64"
	"encoding/json"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// reference is testdata/tokenizers/reference.json.gz.
type reference struct {
	Strings []string
	Cases   []referenceCase
}

type referenceCase struct {
	Name  string
	JSON  json.RawMessage
	Model string
	Rows  []referenceRow
}

// referenceRow is [ids, text of the ids, ids with special tokens].
type referenceRow struct {
	ids, full []int32
	text      string
}

func (r *referenceRow) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&r.ids, &r.text, &r.full})
}

func loadReference(t testing.TB) reference {
	var r reference
	gunzipJSON(t, filepath.Join(repoRoot(t), "testdata", "tokenizers", "reference.json.gz"), &r)
	require.Greater(t, len(r.Cases), 20)
	return r
}

func (c *referenceCase) open(t testing.TB) *Tokenizer {
	t.Helper()
	if c.Model == "" {
		tok, err := Parse(c.JSON)
		require.NoError(t, err, c.Name)
		return tok
	}
	model, err := base64.StdEncoding.DecodeString(c.Model)
	require.NoError(t, err)
	tok, err := ParseSentencePiece(model)
	require.NoError(t, err, c.Name)
	return tok
}

func TestReferenceIDs(t *testing.T) {
	ref := loadReference(t)
	for _, c := range ref.Cases {
		t.Run(c.Name, func(t *testing.T) {
			tok := c.open(t)
			for i, s := range ref.Strings {
				want := c.Rows[i]
				require.Equal(t, want.ids, append([]int32{}, tok.Encode(s, false)...), "%q", s)
				require.Equal(t, want.full, append([]int32{}, tok.Encode(s, true)...), "%q with special tokens", s)
				require.Equal(t, want.text, tok.Decode(want.ids), "%q", s)
			}
		})
	}
}

// TestEncodeAppend appends and leaves what is there alone, and a second use of cached words gives the same ids.
func TestEncodeAppend(t *testing.T) {
	ref := loadReference(t)
	for _, c := range ref.Cases {
		tok := c.open(t)
		ids := []int32{-7}
		want := []int32{-7}
		for round := range 2 {
			for i, s := range ref.Strings {
				ids = tok.EncodeAppend(ids, s, round == 1)
				if round == 1 {
					want = append(want, c.Rows[i].full...)
				} else {
					want = append(want, c.Rows[i].ids...)
				}
			}
		}
		require.Equal(t, want, ids, c.Name)
	}
}

func TestConcurrentUse(t *testing.T) {
	ref := loadReference(t)
	for _, c := range ref.Cases {
		tok := c.open(t)
		var wg sync.WaitGroup
		for worker := range 4 {
			wg.Go(func() {
				for k := range ref.Strings {
					i := (k*7 + worker) % len(ref.Strings)
					if got := tok.Encode(ref.Strings[i], false); !slices.Equal(got, c.Rows[i].ids) {
						t.Errorf("%s: %q", c.Name, ref.Strings[i])
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

// TestVocabularyAccess checks the small accessors against each other.
func TestVocabularyAccess(t *testing.T) {
	for _, c := range loadReference(t).Cases {
		tok := c.open(t)
		require.Positive(t, tok.Vocab())
		for id := range int32(tok.Vocab()) {
			if tok.Token(id) == "" {
				continue
			}
			back, ok := tok.ID(tok.Token(id))
			require.True(t, ok)
			require.Equal(t, tok.Token(id), tok.Token(back))
		}
		require.Empty(t, tok.Token(-1))
		require.Empty(t, tok.Token(int32(tok.Vocab())))
		_, ok := tok.ID("no such token \x00")
		require.False(t, ok)
		require.Equal(t, tok.Decode(nil), tok.Decode([]int32{-1, int32(tok.Vocab()), 1 << 30}), c.Name)
	}
}

// TestInvalidUTF8 reads every maximal invalid part as U+FFFD.
func TestInvalidUTF8(t *testing.T) {
	tok := loadReference(t).Cases[0].open(t)
	for in, want := range map[string]string{
		"a\xffb":                 "a\uFFFDb",
		"\xe2\x82":               "\uFFFD",
		"\xe2\x82\xe2\x82\xac":   "\uFFFD€",
		"\xf0\x9f\x98x":          "\uFFFDx",
		"\xf0\x80\x80":           "\uFFFD\uFFFD\uFFFD",
		"\xed\xa0\x80":           "\uFFFD\uFFFD\uFFFD",
		"\xc0\xaf\xf5\xf4\x90":   "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD",
		"ok \xe0\xa0 \xef\xbf y": "ok \uFFFD \uFFFD y",
	} {
		require.Equal(t, want, validUTF8(in), "%q", in)
		require.Equal(t, tok.Encode(want, false), tok.Encode(in, false), "%q", in)
	}
}
