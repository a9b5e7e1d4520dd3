package gguf

import (
	"encoding/binary"
	"io"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// reader reads the header of a file front to back. The first error sticks and every later read returns zeros, so that
// parsing code checks once per record. No length from the file reaches make before it was compared with the bytes left.
type reader struct {
	r    io.ReaderAt
	size int64
	pos  int64 // of the next byte to hand out
	buf  []byte
	at   int64 // file offset of buf[0]
	err  error
}

const bufferSize = 64 << 10

// newReader starts at the first byte of a file of that size.
func newReader(r io.ReaderAt, size int64) *reader { return &reader{r: r, size: size} }

// left returns the bytes that have not been read.
func (r *reader) left() int64 { return r.size - r.pos }

// fail records the first error.
func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// need reports whether n more bytes exist, failing with the name of what is cut off otherwise.
func (r *reader) need(n int64, what string) bool {
	if r.err != nil {
		return false
	}
	if n < 0 || n > r.left() {
		r.fail(safeio.Corruptf("the file ends inside %s: %d bytes needed, %d left", what, n, r.left()))
		return false
	}
	return true
}

// window returns the next n bytes (n at most bufferSize), valid until the next call.
func (r *reader) window(n int64, what string) []byte {
	if !r.need(n, what) {
		return nil
	}
	if r.pos < r.at || r.pos+n > r.at+int64(len(r.buf)) {
		if r.fill(); r.err != nil {
			return nil
		}
	}
	b := r.buf[r.pos-r.at:][:n]
	r.pos += n
	return b
}

// fixed returns n bytes (n at most 8), zeros after an error.
func (r *reader) fixed(n int64, what string) []byte {
	if b := r.window(n, what); b != nil {
		return b
	}
	return make([]byte, n)
}

// fill loads the buffer at the current position.
func (r *reader) fill() {
	if r.buf == nil {
		r.buf = make([]byte, 0, bufferSize)
	}
	n := min(int64(bufferSize), r.left())
	r.at, r.buf = r.pos, r.buf[:n]
	r.read(r.buf, r.at)
}

// read fills dst or fails; a file that shrank since it was opened is an error, never zeros.
func (r *reader) read(dst []byte, off int64) {
	if err := safeio.ReadFullAt(r.r, dst, off); err != nil {
		r.fail(err)
	}
}

// bytes returns the next n bytes as a string of its own memory.
func (r *reader) bytes(n int64, what string) string {
	if n <= bufferSize {
		return string(r.window(n, what))
	}
	if !r.need(n, what) {
		return ""
	}
	b := make([]byte, n)
	r.read(b, r.pos)
	r.pos += n
	return string(b)
}

// u32 reads four bytes.
func (r *reader) u32(what string) uint32 { return binary.LittleEndian.Uint32(r.fixed(4, what)) }

// u64 reads eight bytes.
func (r *reader) u64(what string) uint64 { return binary.LittleEndian.Uint64(r.fixed(8, what)) }

// count reads a length and checks it against a cap and the least size of that many records.
func (r *reader) count(max, recordSize int64, what string) int64 {
	n := r.u64(what)
	if r.err != nil {
		return 0
	}
	need, ok := tensor.Mul(int64(n&(1<<63-1)), recordSize)
	switch {
	case n>>63 != 0 || !ok || need > r.left():
		r.fail(safeio.Corruptf("%s claims %d entries, more than the %d bytes left can hold", what, n, r.left()))
	case int64(n) > max:
		r.fail(safeio.Limitf("%s claims %d entries, more than the limit of %d", what, n, max))
	default:
		return int64(n)
	}
	return 0
}

// text reads a length and that many bytes.
func (r *reader) text(max int64, what string) string {
	n := r.count(max, 1, what)
	if r.err != nil || n == 0 {
		return ""
	}
	return r.bytes(n, what)
}
