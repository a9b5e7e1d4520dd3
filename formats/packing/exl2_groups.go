package packing

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
)

// A mix spells the groups of one linear for Scheme.Mix: runs of equal groups as bits:rows or bits:rows*count, parted by
// spaces. "8:32 4:128*31" is one group of 32 rows at 8 bits and 31 groups of 128 rows at 4 bits.

// EXL2Mix spells groups in the one way that ParseEXL2Mix accepts.
func EXL2Mix(groups []EXL2Group) string {
	var b strings.Builder
	for i := 0; i < len(groups); {
		j := i + 1
		for j < len(groups) && groups[j] == groups[i] {
			j++
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d:%d", groups[i].Bits, groups[i].Rows)
		if j-i > 1 {
			fmt.Fprintf(&b, "*%d", j-i)
		}
		i = j
	}
	return b.String()
}

// ParseEXL2Mix reads a mix. Every list of groups has one spelling, so that schemes can be compared as they are.
func ParseEXL2Mix(mix string) ([]EXL2Group, error) {
	if mix == "" {
		return nil, safeio.Unsupportedf("the scheme does not say which groups of rows get how many bits")
	}
	var groups []EXL2Group
	for _, run := range strings.Split(mix, " ") {
		bits, rest, ok := strings.Cut(run, ":")
		rows, count, repeated := strings.Cut(rest, "*")
		if !repeated {
			count = "1"
		}
		b, err1 := strconv.ParseUint(bits, 10, 8)
		r, err2 := strconv.ParseUint(rows, 10, 16)
		n, err3 := strconv.ParseUint(count, 10, 16)
		if !ok || firstError(err1, err2, err3) != nil || len(groups)+int(n) > exl2MaxIn/exl2Unit {
			return nil, safeio.Unsupportedf("%q is no run of groups (bits:rows or bits:rows*count)", run)
		}
		for range n {
			groups = append(groups, EXL2Group{int(b), int(r)})
		}
	}
	if EXL2Mix(groups) != mix {
		return nil, safeio.Unsupportedf("groups %q are to be written as %q", mix, EXL2Mix(groups))
	}
	return groups, nil
}

// checkEXL2Groups holds groups against the rules that kernels rely on without checking. Breaking the order of widths
// decodes to garbage, a group of another size reads beyond its scales.
func checkEXL2Groups(groups []EXL2Group, in int) error {
	rows := 0
	for i, g := range groups {
		switch {
		case !slices.Contains(exl2Wide, g.Bits):
			return safeio.Unsupportedf("group %d has %d bits (exl2 has %s)", i, g.Bits, list(exl2Wide))
		case i > 0 && g.Bits > groups[i-1].Bits:
			return safeio.Unsupportedf("group %d has %d bits after one of %d: kernels want the widths in falling order", i, g.Bits, groups[i-1].Bits)
		case g.Rows < 1 || g.Rows%exl2Unit != 0:
			return safeio.Unsupportedf("group %d has %d rows, no multiple of %d; %d would do", i, g.Rows, exl2Unit, max(1, (g.Rows+exl2Unit/2)/exl2Unit)*exl2Unit)
		}
		if rows += g.Rows; rows > in {
			return safeio.Unsupportedf("the groups cover more than the %d input columns", in)
		}
	}
	if rows != in {
		return safeio.Unsupportedf("the groups cover %d rows of %d input columns", rows, in)
	}
	return nil
}

// readEXL2Groups reads q_groups, given the number of word rows of q_weight. Each group ends where the next begins.
func readEXL2Groups(q []int16, words, in int) ([]EXL2Group, error) {
	if len(q) < 2 || len(q)%2 != 0 || len(q)/2 > exl2MaxIn/exl2Unit {
		return nil, safeio.Corruptf("q_groups has %d numbers", len(q))
	}
	groups := make([]EXL2Group, len(q)/2)
	for i := range groups {
		bits, start, end := int(q[2*i]), int(q[2*i+1]), words
		if i+1 < len(groups) {
			end = int(q[2*i+3])
		}
		if i == 0 && start != 0 {
			return nil, safeio.Corruptf("the first group begins at word row %d of q_weight", start)
		}
		if !slices.Contains(exl2Wide, bits) || end <= start || (end-start)*32%bits != 0 {
			return nil, safeio.Corruptf("group %d of %d bits spans word rows %d … %d of q_weight", i, bits, start, end)
		}
		groups[i] = EXL2Group{bits, (end - start) * 32 / bits}
	}
	if err := checkEXL2Groups(groups, in); err != nil {
		return nil, safeio.Corruptf("%v", err)
	}
	return groups, nil
}
