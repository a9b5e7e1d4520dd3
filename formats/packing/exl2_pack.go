package packing

import (
	"encoding/binary"
	"fmt"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// exl2Tile is the number of outputs packed together: their codes for all inputs stay in the second-level cache while
// packed rows jump between columns.
const exl2Tile = 64

func exl2Pack(l *Linear, dst func(string) []byte) error {
	if err := exl2Valid(l); err != nil {
		return err
	}
	e := l.EXL2
	t, err := exl2Tensors(len(e.Groups), exl2Words(e.Groups), l.Out, l.In, dst)
	if err != nil {
		return err
	}
	start := 0
	for g, group := range e.Groups {
		binary.LittleEndian.PutUint16(t.groups[4*g:], uint16(group.Bits))
		binary.LittleEndian.PutUint16(t.groups[4*g+2:], uint16(start))
		binary.LittleEndian.PutUint16(t.max[2*g:], e.Max[g])
		start += group.Rows * group.Bits / 32
	}
	for k, r := range e.Row {
		binary.LittleEndian.PutUint32(t.invperm[4*k:], uint32(r))
	}
	l.packEXL2Scales(t.scale)
	for n := 0; n < exl2Pad(l.Out); n += exl2Tile {
		l.packEXL2Codes(t.weight, n, min(n+exl2Tile, exl2Pad(l.Out)))
	}
	return nil
}

// packEXL2Scales writes the nibbles, those of padding outputs as zero.
func (l *Linear) packEXL2Scales(dst []byte) {
	clear(dst)
	perGroup := exl2Pad(l.Out) / 2
	for g := range l.EXL2.Groups {
		for n, s := range l.EXL2.Scale[g*l.Out : (g+1)*l.Out] {
			dst[g*perGroup+n/2] |= s << (n % 2 * 4)
		}
	}
}

// packEXL2Codes writes columns [n0, n1) of q_weight, 32 packed rows at a time. Padding outputs hold the zero code.
func (l *Linear) packEXL2Codes(dst []byte, n0, n1 int) {
	e, width := l.EXL2, exl2Pad(l.Out)
	perm := make([]int32, l.In)
	for k, r := range e.Row {
		perm[r] = int32(k)
	}
	row, word := 0, 0
	for _, group := range e.Groups {
		bits := group.Bits
		for end := row + group.Rows; row < end; row += exl2Unit {
			for n := n0; n < n1; n++ {
				var unit [exl2Unit]uint8
				for i, k := range perm[row : row+exl2Unit] {
					if n < l.Out {
						unit[i] = l.Codes[n*l.In+int(k)]
					} else {
						unit[i] = 1 << (bits - 1)
					}
				}
				putStream(strided{dst, word*width + n, width}, exl2Unit, bits, func(i int) uint8 { return unit[i] })
			}
			word += bits // 32 codes of b bits fill b words
		}
	}
}

func exl2Unpack(s Scheme, out, in int, src func(string) []byte) (*Linear, error) {
	if err := exl2Check(s, out, in); err != nil {
		return nil, err
	}
	planned, err := ParseEXL2Mix(s.Mix)
	if err != nil {
		return nil, err
	}
	t, err := exl2Tensors(len(planned), exl2Words(planned), out, in, src)
	if err != nil {
		return nil, err
	}
	groups, err := readEXL2Groups(int16s(t.groups), exl2Words(planned), in)
	if err != nil {
		return nil, err
	}
	if mix := EXL2Mix(groups); mix != s.Mix {
		return nil, safeio.Corruptf("q_groups says %q, the scheme %q", mix, s.Mix)
	}
	e := &EXL2{Groups: groups, Row: make([]int32, in), Max: make([]uint16, len(groups)), Scale: make([]uint8, len(groups)*out)}
	for k := range e.Row {
		e.Row[k] = int32(binary.LittleEndian.Uint32(t.invperm[4*k:]))
	}
	perGroup := exl2Pad(out) / 2
	for g := range e.Max {
		if e.Max[g] = binary.LittleEndian.Uint16(t.max[2*g:]); e.Max[g]>>10&31 == 31 {
			return nil, safeio.Corruptf("q_scale_max of group %d is %v", g, tensor.F16ToF32(e.Max[g]))
		}
		for n := range out {
			e.Scale[g*out+n] = t.scale[g*perGroup+n/2] >> (n % 2 * 4) & 15
		}
	}
	l := &Linear{Scheme: s, Out: out, In: in, Codes: make([]uint8, out*in), EXL2: e}
	if err := l.checkEXL2Sizes(); err != nil { // the permutation, before it is used
		return nil, err
	}
	for n := 0; n < out; n += exl2Tile {
		l.unpackEXL2Codes(t.weight, n, min(n+exl2Tile, out))
	}
	l.noteEXL2Padding(t.weight)
	return l, nil
}

// unpackEXL2Codes reads columns [n0, n1) of q_weight.
func (l *Linear) unpackEXL2Codes(src []byte, n0, n1 int) {
	e, width := l.EXL2, exl2Pad(l.Out)
	perm := make([]int32, l.In)
	for k, r := range e.Row {
		perm[r] = int32(k)
	}
	row, word := 0, 0
	for _, group := range e.Groups {
		for end := row + group.Rows; row < end; row += exl2Unit {
			unit := perm[row : row+exl2Unit]
			for n := n0; n < n1; n++ {
				codes := l.Codes[n*l.In : (n+1)*l.In]
				getStream(strided{src, word*width + n, width}, exl2Unit, group.Bits, func(i int, q uint8) { codes[unit[i]] = q })
			}
			word += group.Bits
		}
	}
}

// noteEXL2Padding says when outputs beyond the last are not zero: then the caller's number of outputs is wrong, or the
// writer left something there.
func (l *Linear) noteEXL2Padding(src []byte) {
	width, word, odd := exl2Pad(l.Out), 0, 0
	for _, group := range l.EXL2.Groups {
		for range group.Rows / exl2Unit {
			for n := l.Out; n < width; n++ {
				getStream(strided{src, word*width + n, width}, exl2Unit, group.Bits, func(_ int, q uint8) {
					if int(q) != 1<<(group.Bits-1) {
						odd++
					}
				})
			}
			word += group.Bits
		}
	}
	if odd > 0 {
		l.Notes = append(l.Notes, fmt.Sprintf("%d weights of the outputs %d … %d, which pad the matrix, are not zero", odd, l.Out, width-1))
	}
}

type exl2Stored struct{ weight, scale, max, groups, invperm []byte }

// exl2Tensors fetches the tensors and insists on their sizes.
func exl2Tensors(groups, words, out, in int, get func(string) []byte) (t exl2Stored, err error) {
	n := exl2Pad(out)
	for _, want := range []struct {
		to       *[]byte
		suffix   string
		elements int64
		dtype    tensor.DType
	}{
		{&t.groups, "q_groups", elements(2, groups), tensor.I16},
		{&t.max, "q_scale_max", elements(groups), tensor.F16},
		{&t.invperm, "q_invperm", elements(in), tensor.I32},
		{&t.scale, "q_scale", elements(groups, n/8), tensor.I32},
		{&t.weight, "q_weight", elements(words, n), tensor.I32},
	} {
		if *want.to, err = sized(get, want.suffix, want.elements, want.dtype); err != nil {
			return t, err
		}
	}
	return t, nil
}

func int16s(b []byte) []int16 {
	v := make([]int16, len(b)/2)
	for i := range v {
		v[i] = int16(binary.LittleEndian.Uint16(b[2*i:]))
	}
	return v
}
