package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// marks and bases of the random texts; none is inert, and runs stay short of where x/text inserts U+034F.
var (
	normMarks = []string{"\u0301", "\u0300", "\u0315", "\u0316", "\u0334", "\u0327", "\u05b0", "\u3099", "\u0345", "\u0338", "\u09be", "\u0dca"}
	normBases = []string{"a", "e", "o", "s", "A", "é", "ṩ", "Ω", "Ω", "가", "각", "ᄀ", "ᅡ", "ᆨ", "か", "が", "क", "क़", "ḍ̇", "ﬁ", "①", "Ⅷ", "ｱ", "㍿",
		"½", "豈", "ẛ̣", "ǖ", "Ấ", "\u2adc", "\ufb1d", "\u0344", "\u0374", "\u212b", "\U0001d15e", "\U00011099\U000110ba", "\u09c7", "\u0dd9\u0dcf", " ", "x"}
)

// TestForms compares with x/text where both agree on the tables.
func TestForms(t *testing.T) {
	rng := rand.New(rand.NewPCG(19, 20))
	for range 20_000 {
		var b strings.Builder
		for range 1 + rng.IntN(14) {
			list := normBases
			if rng.IntN(2) == 0 {
				list = normMarks
			}
			b.WriteString(list[rng.IntN(len(list))])
		}
		s := b.String()
		for name, f := range forms {
			require.Equal(t, f.norm.String(s), f.apply(s), "%s %+q", name, s)
		}
	}
	for r := rune(0); r < 0x30000; r++ {
		if !utf8.ValidRune(r) || inert.has(r) {
			continue
		}
		s := "a" + string(r) + "\u0316\u0301"
		for name, f := range forms {
			if want := f.norm.String(s); want != f.apply(s) {
				t.Fatalf("%s %+q: %+q, want %+q", name, s, f.apply(s), want)
			}
		}
	}
}

// TestInert: characters the reference does not know pass through, and nothing moves or composes across them.
func TestInert(t *testing.T) {
	for s, want := range map[string]string{
		"a\u0315\u07fd\u0316": "a\u0315\u07fd\u0316",
		"a\u07fd\u0301":       "a\u07fd\u0301",
		"\U00011938":          "\U00011938",
		"é\u0316\u0897":       "e\u0316\u0301\u0897",
	} {
		require.Equal(t, want, forms["NFD"].apply(s), "%+q", s)
	}
	require.Equal(t, "\u32ff", forms["NFKC"].apply("\u32ff"))
	require.Equal(t, "e\u07fd\u0301", forms["NFC"].apply("e\u07fd\u0301"))
	require.Equal(t, "\U00011935\U00011930é", forms["NFC"].apply("\U00011935\U00011930e\u0301"))
}

// TestLongRunsOfMarks keeps runs whole where x/text would break them up, and sorts them in one piece.
func TestLongRunsOfMarks(t *testing.T) {
	got := forms["NFC"].apply("e" + strings.Repeat("\u0315\u0316", 500) + "\u0301b")
	require.Equal(t, "é"+strings.Repeat("\u0316", 500)+strings.Repeat("\u0315", 500)+"b", got)
	got = forms["NFC"].apply("e" + strings.Repeat("\u0316", 500) + "\u0301b")
	require.Equal(t, "é"+strings.Repeat("\u0316", 500)+"b", got)
}

func TestStrip(t *testing.T) {
	require.Equal(t, "a b ", stripSpace(true, false)("\u3000\n a b "))
	require.Equal(t, " a b", stripSpace(false, true)(" a b\u2028\t"))
	require.Equal(t, "", stripSpace(true, true)(" \u00a0 "))
}

func FuzzForms(f *testing.F) {
	f.Add("a\u0315\u0316é가")
	f.Add(strings.Repeat("\u0301", 40))
	f.Fuzz(func(t *testing.T, s string) {
		s = validUTF8(s)
		for name, form := range forms {
			once := form.apply(s)
			require.Equal(t, once, form.apply(once), "%s is not stable on %+q", name, s)
			require.True(t, utf8.ValidString(once))
		}
	})
}
