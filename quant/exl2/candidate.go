package exl2

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
)

// maxBands is the number of different widths.
const maxBands = 6

// Candidate is one way to spend bits on a linear: bands of packed rows, each with a width and a group size. The text form
// is that of the format's tables, widths / shares in percent / group sizes: "4 g128", "4/3 10/90 g128",
// "8/4/3 5/10/85 g32/128/128". Candidates compare with ==.
type Candidate struct {
	n     int
	bands [maxBands]Band
}

// Band is a run of groups of one width.
type Band struct {
	Bits    int
	Percent int // of the rows, rounded up to whole groups; the last band takes what is left
	Group   int // rows per group; the linear's last group may be shorter
}

// NewCandidate returns the candidate of the given bands: widths falling, group sizes multiples of 32.
func NewCandidate(bands ...Band) (Candidate, error) {
	c := Candidate{n: len(bands)}
	if c.n < 1 || c.n > maxBands {
		return c, safeio.Unsupportedf("%d bands (1 … %d are possible)", c.n, maxBands)
	}
	copy(c.bands[:], bands)
	left := 100
	for i, b := range bands {
		switch {
		case b.Bits < 2 || b.Bits == 7 || b.Bits > 8:
			return c, safeio.Unsupportedf("%d bits (8, 6, 5, 4, 3 and 2 are possible)", b.Bits)
		case i > 0 && b.Bits >= bands[i-1].Bits:
			return c, safeio.Unsupportedf("%d bits after %d: widths have to fall", b.Bits, bands[i-1].Bits)
		case b.Group < 32 || b.Group%32 != 0 || b.Group > 32768:
			return c, safeio.Unsupportedf("groups of %d rows (multiples of 32 are possible)", b.Group)
		case b.Percent < 1 || b.Percent > left:
			return c, safeio.Unsupportedf("a band of %d %% where %d %% are left", b.Percent, left)
		}
		left -= b.Percent
	}
	if left != 0 {
		return c, safeio.Unsupportedf("the bands cover %d %% of the rows", 100-left)
	}
	return c, nil
}

// denseText is the text form of the candidate that leaves a linear as it is.
const denseText = "dense"

// Dense reports whether the candidate leaves the linear dense. It is the zero Candidate, legal in choices alone.
func (c Candidate) Dense() bool { return c.n == 0 }

// ParseCandidate reads the text form.
func ParseCandidate(s string) (Candidate, error) {
	if s == denseText {
		return Candidate{}, nil
	}
	fields := strings.Split(s, " ")
	if len(fields) == 2 {
		fields = []string{fields[0], "100", fields[1]}
	}
	if len(fields) != 3 || !strings.HasPrefix(fields[2], "g") {
		return Candidate{}, safeio.Unsupportedf("%q is no candidate; write for example 4 g128, or 5/4 10/90 g64", s)
	}
	bits, err1 := numbers(fields[0])
	percent, err2 := numbers(fields[1])
	group, err3 := numbers(fields[2][1:])
	if err1 != nil || err2 != nil || err3 != nil || len(bits) != len(percent) || len(group) != 1 && len(group) != len(bits) {
		return Candidate{}, safeio.Unsupportedf("%q is no candidate; write for example 4 g128, or 8/4 5/95 g32/128", s)
	}
	bands := make([]Band, len(bits))
	for i := range bands {
		bands[i] = Band{bits[i], percent[i], group[min(i, len(group)-1)]}
	}
	c, err := NewCandidate(bands...)
	if err != nil {
		return c, fmt.Errorf("%q: %w", s, err)
	}
	return c, nil
}

func numbers(s string) ([]int, error) {
	var ns []int
	for _, f := range strings.Split(s, "/") {
		n, err := strconv.ParseUint(f, 10, 16)
		if err != nil {
			return nil, err
		}
		ns = append(ns, int(n))
	}
	return ns, nil
}

// Bands returns the bands.
func (c Candidate) Bands() []Band { return append([]Band(nil), c.bands[:c.n]...) }

// String is the text form.
func (c Candidate) String() string {
	if c.Dense() {
		return denseText
	}
	var bits, percent, group []string
	same := true
	for _, b := range c.bands[:c.n] {
		bits, percent, group = append(bits, strconv.Itoa(b.Bits)), append(percent, strconv.Itoa(b.Percent)), append(group, strconv.Itoa(b.Group))
		same = same && b.Group == c.bands[0].Group
	}
	if same {
		group = group[:min(1, len(group))]
	}
	text := strings.Join(bits, "/")
	if c.n > 1 {
		text += " " + strings.Join(percent, "/")
	}
	return text + " g" + strings.Join(group, "/")
}

// MarshalText and UnmarshalText make candidates strings in JSON.
func (c Candidate) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the text form.
func (c *Candidate) UnmarshalText(b []byte) (err error) {
	*c, err = ParseCandidate(string(b))
	return err
}

// Groups lists the groups of a linear of k inputs, a multiple of 32. Bands are rounded up to whole groups in turn, so
// on small matrices the last ones may vanish.
func (c Candidate) Groups(k int) []packing.EXL2Group {
	var groups []packing.EXL2Group
	left := k
	for i, b := range c.bands[:c.n] {
		rows := (k*b.Percent + 99) / 100
		if i == c.n-1 {
			rows = left
		}
		for ; rows > 0 && left > 0; rows -= b.Group {
			n := min(b.Group, left)
			groups = append(groups, packing.EXL2Group{Bits: b.Bits, Rows: n})
			left -= n
		}
	}
	return groups
}

// Scheme returns the scheme of a linear of k inputs.
func (c Candidate) Scheme(k int) packing.Scheme {
	return packing.Scheme{Grid: "exl2", Mix: packing.EXL2Mix(c.Groups(k))}
}

// Bits returns the bits that a linear without bias occupies: codes, scales, maxima, group table and permutation, or 16 a
// weight when it stays dense.
func (c Candidate) Bits(out, k int) int64 {
	if c.Dense() {
		return 16 * int64(out) * int64(k)
	}
	return packing.EXL2Bits(c.Groups(k), out, k)
}
