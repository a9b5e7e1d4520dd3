package exl2

import "github.com/llmquant/quantize/formats/safeio"

// measured lists the candidates that a measurement tries. Plain widths and even splits lie on the curve of error against
// bits of ordinary inputs, groups of 32 paying for their scales from three bits on; a narrow band of 6 or 8 bits is for
// inputs with a few channels of great power, such as those of down projections.
var measured = []string{
	"2 g128", "3/2 12/88 g64", "3/2 25/75 g64", "3/2 50/50 g64", "3/2 75/25 g64", "6/3/2 5/20/75 g32/64/64",
	"3 g128", "3 g32", "4/3 12/88 g32", "4/3 25/75 g32", "4/3 50/50 g32", "4/3 75/25 g32", "6/3 5/95 g32",
	"4 g128", "4 g32", "5/4 12/88 g32", "5/4 25/75 g32", "5/4 50/50 g32", "8/4 5/95 g32",
	"5 g128", "5 g32", "6/5 50/50 g32", "8/5 5/95 g32",
	"6 g128", "6 g32", "8/6 50/50 g32", "8 g32",
}

// heads lists the candidates of the output head by what ExLlamaV2 calls head bits.
var heads = map[int]string{
	2: "4/2 30/70 g32", 3: "4/3 15/85 g32", 4: "6/4 15/85 g32", 5: "6/5 15/85 g128", 6: "8/6 15/85 g128", 8: "8 g128",
}

// DefaultHeadBits is the width of the head unless the user asks for another.
const DefaultHeadBits = 6

// Candidates lists what a measurement tries on a linear of k inputs, cheapest first; candidates that come out the same
// on so many rows are listed once.
func Candidates(k int) ([]Candidate, error) {
	var list []Candidate
	at := map[string]int{} // by mix
	for _, text := range measured {
		c, err := ParseCandidate(text)
		if err != nil {
			return nil, err
		}
		switch i, seen := at[c.Scheme(k).Mix]; {
		case !seen:
			at[c.Scheme(k).Mix] = len(list)
			list = append(list, c)
		case c.n < list[i].n:
			list[i] = c // the simpler name
		}
	}
	return list, nil
}

// HeadCandidate returns the candidate of an output head of the given bits: 2, 3, 4, 5, 6 or 8.
func HeadCandidate(bits int) (Candidate, error) {
	text, ok := heads[bits]
	if !ok {
		return Candidate{}, safeio.Unsupportedf("a head of %d bits (2, 3, 4, 5, 6 and 8 are possible, 16 leaves it dense)", bits)
	}
	return ParseCandidate(text)
}
