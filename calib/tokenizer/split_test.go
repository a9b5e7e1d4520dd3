package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// splitAll returns the pieces of s.
func splitAll(p *splitter, s string) []string {
	out := []string{}
	p.split(s, func(a, b int) { out = append(out, s[a:b]) })
	return out
}

// TestBehaviors is the table of the library's documentation: "the-final--countdown" split at "-".
func TestBehaviors(t *testing.T) {
	for name, want := range map[string][]string{
		"Isolated":           {"the", "-", "final", "-", "-", "countdown"},
		"Removed":            {"the", "final", "countdown"},
		"Contiguous":         {"the", "-", "final", "--", "countdown"},
		"MergedWithPrevious": {"the-", "final-", "-", "countdown"},
		"MergedWithNext":     {"the", "-final", "-", "-countdown"},
	} {
		p := &splitter{find: findLiteral("-"), how: behaviors[name]}
		require.Equal(t, want, splitAll(p, "the-final--countdown"), name)
	}
	inverted := &splitter{find: findLiteral("-"), how: removed, invert: true}
	require.Equal(t, []string{"-", "-", "-"}, splitAll(inverted, "the-final--countdown"))
	for _, how := range behaviors {
		for _, invert := range []bool{false, true} {
			require.Empty(t, splitAll(&splitter{find: findLiteral("-"), how: how, invert: invert}, ""))
		}
	}
}

// stretch is a part of a text that matches or does not.
type stretch struct {
	text  string
	match bool
}

// joined applies a behavior to whole lists, looking both ways.
func joined(list []stretch, how behavior) []string {
	out := []string{}
	if how == mergedWithNext {
		slices.Reverse(list)
	}
	before := false
	for _, s := range list {
		merge := len(out) > 0
		switch how {
		case isolated:
			merge = false
		case removed:
			if s.match {
				continue
			}
			merge = false
		case contiguous:
			merge = merge && s.match == before
		case mergedWithPrevious, mergedWithNext:
			merge = merge && s.match && !before
		}
		switch {
		case merge && how == mergedWithNext:
			out[len(out)-1] = s.text + out[len(out)-1]
		case merge:
			out[len(out)-1] += s.text
		default:
			out = append(out, s.text)
		}
		before = s.match
	}
	if how == mergedWithNext {
		slices.Reverse(out)
	}
	return out
}

// TestBehaviorsAgainstLists compares the one-pass merger with the definition on lists.
func TestBehaviorsAgainstLists(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	for range 2000 {
		var s strings.Builder
		for range rng.IntN(12) {
			s.WriteString([]string{"-", "a", "bc"}[rng.IntN(3)])
		}
		var list []stretch
		plain := ""
		for _, c := range s.String() {
			if c != '-' {
				plain += string(c)
				continue
			}
			if plain != "" {
				list = append(list, stretch{plain, false})
			}
			plain = ""
			list = append(list, stretch{"-", true})
		}
		if plain != "" {
			list = append(list, stretch{plain, false})
		}
		for _, how := range behaviors {
			for _, invert := range []bool{false, true} {
				in := slices.Clone(list)
				for i := range in {
					in[i].match = in[i].match != invert
				}
				p := &splitter{find: findLiteral("-"), how: how, invert: invert}
				require.Equal(t, joined(in, how), splitAll(p, s.String()), "%q %d %t", s.String(), how, invert)
			}
		}
	}
}

func TestAlphabet(t *testing.T) {
	a := loadAlphabet()
	require.Len(t, a.bytes, 256)
	require.Equal(t, "ĠaĊÿ", a.show(" a\n\xff"))
	for b := range 256 {
		raw, ok := a.raw(a.visible[b])
		require.True(t, ok)
		require.Equal(t, string([]byte{byte(b)}), raw)
	}
	_, ok := a.raw("a b")
	require.False(t, ok)
}

func TestMetaspace(t *testing.T) {
	run := func(m *metaspaceStep, s string, first bool) (out []string) {
		m.apply(s, first, func(piece string, _ bool) { out = append(out, piece) })
		return out
	}
	require.Equal(t, []string{"▁a", "▁b", "▁", "▁c"}, run(newMetaspace("▁", prependAlways, true), "a b  c", false))
	require.Equal(t, []string{"▁a▁b"}, run(newMetaspace("▁", prependAlways, false), " a b", false))
	require.Equal(t, []string{"a▁b"}, run(newMetaspace("▁", prependFirst, false), "a b", false))
	require.Equal(t, []string{"▁a▁b"}, run(newMetaspace("▁", prependFirst, false), "a b", true))
	require.Equal(t, []string{"a", "_b"}, run(newMetaspace("_", prependNever, true), "a b", true))
}

func TestCharacterTests(t *testing.T) {
	tab := loadCategories()
	for _, r := range "aéß_1٣Ⅷ\u0301ⓐ\u200d中" {
		require.True(t, tab.isWord(r), "%q", r)
	}
	for _, r := range " -½²①😀\u00a0€" {
		require.False(t, tab.isWord(r), "%q", r)
	}
	digit, punct := isNumeric(tab), isPunctuation(tab)
	for _, r := range "1²½Ⅷ٣①\U00011de5" {
		require.True(t, digit(r), "%q", r)
	}
	for _, r := range "!$+<^`~—。\u166d" {
		require.True(t, punct(r), "%q", r)
	}
	for _, r := range "a1 €\u2e43\u061d" {
		require.False(t, punct(r), "%q", r)
	}
	require.Equal(t, []string{"x_1", "+", "é"}, splitAll(&splitter{find: findWordRuns(tab), how: removed, invert: true}, " x_1+ é\n"))
}
