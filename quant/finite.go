package quant

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// exponents are the bits that are all set in NaN and in the infinities, by element type, and nowhere else.
var exponents = map[tensor.DType]uint64{tensor.F16: 0x7c00, tensor.BF16: 0x7f80, tensor.F32: 0x7f800000, tensor.F64: 0x7ff << 52}

// census counts the non-finite values of a tensor that passes by in pieces.
type census struct {
	count int64
	first int64 // index of the first one
}

// look counts in raw, whose first element has index at. With zero it replaces what it finds.
func (c *census) look(d tensor.DType, raw []byte, at int64, zero bool) {
	mask, size := exponents[d], int(d.Size())
	if size == 2 && finiteHalves(raw, mask) {
		return
	}
	for i := 0; mask != 0 && i+size <= len(raw); i += size {
		var bits uint64
		switch size {
		case 2:
			bits = uint64(binary.LittleEndian.Uint16(raw[i:]))
		case 4:
			bits = uint64(binary.LittleEndian.Uint32(raw[i:]))
		default:
			bits = binary.LittleEndian.Uint64(raw[i:])
		}
		if bits&mask != mask {
			continue
		}
		if c.count == 0 {
			c.first = at + int64(i/size)
		}
		c.count++
		if zero {
			clear(raw[i : i+size])
		}
	}
}

// lookFloats is look for values in float32.
func (c *census) lookFloats(values []float32, at int64, zero bool) {
	if allFinite(values) {
		return
	}
	for i, v := range values {
		if v-v == 0 {
			continue
		}
		if c.count == 0 {
			c.first = at + int64(i)
		}
		c.count++
		if zero {
			values[i] = 0
		}
	}
}

// add takes over what was counted behind.
func (c *census) add(d census) {
	if c.count == 0 {
		c.first = d.first
	}
	c.count += d.count
}

// finiteHalves does for 16-bit elements, four at a time, what allFinite does for 32-bit ones.
func finiteHalves(raw []byte, mask uint64) bool {
	const signs, ones = 0x8000_8000_8000_8000, 0x0001_0001_0001_0001
	one := mask & -mask // the exponent's lowest bit
	var carry uint64
	for ; len(raw) >= 8; raw = raw[8:] {
		carry |= binary.LittleEndian.Uint64(raw)&^signs + one*ones
	}
	for ; len(raw) >= 2; raw = raw[2:] {
		carry |= uint64(binary.LittleEndian.Uint16(raw)&0x7fff) + one
	}
	return carry&signs == 0
}

// allFinite adds 1 to the exponent of every value, without its sign: only a full one carries into the sign's place.
func allFinite(values []float32) bool {
	var carry uint32
	for len(values) >= 4 {
		v := values[:4:4]
		carry |= (math.Float32bits(v[0])&math.MaxInt32 + 1<<23) | (math.Float32bits(v[1])&math.MaxInt32 + 1<<23) |
			(math.Float32bits(v[2])&math.MaxInt32 + 1<<23) | (math.Float32bits(v[3])&math.MaxInt32 + 1<<23)
		values = values[4:]
	}
	for _, v := range values {
		carry |= math.Float32bits(v)&math.MaxInt32 + 1<<23
	}
	return carry>>31 == 0
}

// place is the first one's index, one number per dimension.
func (c *census) place(shape []int64) string {
	at, rest := make([]int64, len(shape)), c.first
	for d := len(shape) - 1; d >= 0; d-- {
		n := max(shape[d], 1)
		at[d], rest = rest%n, rest/n
	}
	return fmt.Sprint(at)
}

// admit decides about a tensor with non-finite values: an error, or, where the user wants zeros, a finding.
func (j *job) admit(c census, name string, shape []int64, layer int) error {
	if c.count == 0 {
		return nil
	}
	text := fmt.Sprintf("%d NaN or infinite values, the first at %s", c.count, c.place(shape))
	if !j.opts.NaNZero {
		return &safeio.Error{Op: "read", Path: j.src.Meta().Path, Tensor: name, Off: -1, Err: safeio.Corruptf("%s", text)}
	}
	j.event(Event{Kind: EventFinding, Layer: layer, Tensor: name, Count: c.count, First: c.first, Message: text + ", replaced by 0"})
	return nil
}

// outOfRange is the error for finite values that the stored type turned into infinities, nil when there are none.
func (j *job) outOfRange(lost census, t *PlannedTensor, to tensor.DType) error {
	if j.plan.isEXL2() {
		return beyondHalf(lost, t.Info.Name, t.Info.Shape)
	}
	return outOfRange(lost, t.Info.Name, to.String(), t.Info.Shape)
}

// outOfRange is the error for finite values that the stored type turned into infinities, nil when there are none.
func outOfRange(lost census, name, to string, shape []int64) error {
	if lost.count == 0 {
		return nil
	}
	return &safeio.Error{Op: "convert", Tensor: name, Off: -1, Hint: "keep the tensor's type, or use bf16 or f32",
		Err: safeio.Unsupportedf("%d values are beyond the range of %s, the first at %s", lost.count, to, lost.place(shape))}
}
