package gguf

import "strconv"

// Format spells the value for listings: numbers and strings as they are, arrays cut after max elements.
func (v Value) Format(max int) string {
	switch {
	case v.kind == KindArray:
		return v.formatArray(max)
	case v.kind == KindString:
		return v.str
	}
	return formatScalar(v.kind, v.num)
}

// formatScalar spells a number or bool.
func formatScalar(k Kind, num uint64) string {
	switch kinds[k].class {
	case unsigned:
		return strconv.FormatUint(num, 10)
	case signed:
		return strconv.FormatInt(int64(num), 10)
	case boolean:
		return strconv.FormatBool(num != 0)
	}
	bits := 64
	if k == KindFloat32 {
		bits = 32
	}
	return strconv.FormatFloat(floatOf(k, num), 'g', -1, bits)
}

// formatArray spells the first elements and the length.
func (v Value) formatArray(max int) string {
	b := []byte("[")
	for i := range v.Len() {
		if i > 0 {
			b = append(b, ", "...)
		}
		if i == max {
			b = append(b, "… "...)
			b = strconv.AppendInt(b, int64(v.Len()), 10)
			break
		}
		if v.elem == KindString {
			b = strconv.AppendQuote(b, v.strs[i])
		} else {
			b = append(b, formatScalar(v.elem, v.bits(i))...)
		}
	}
	return string(append(b, ']'))
}
