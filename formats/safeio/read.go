package safeio

import (
	"errors"
	"io"
	"io/fs"
)

// chunk is the most that is allocated on the word of a file alone; beyond it memory grows as bytes really arrive.
const chunk = 1 << 20

// ReadFullAt fills dst from offset off. A file that ends early is corrupt (it was truncated after its size was
// checked, or declares more than it has); the rest of dst is then undefined and must not be used.
func ReadFullAt(r io.ReaderAt, dst []byte, off int64) error {
	n, err := r.ReadAt(dst, off)
	if n == len(dst) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return Corruptf("the file ends at byte %d, %d bytes are missing", off+int64(n), len(dst)-n)
	}
	return err
}

// ReadBytes reads exactly n bytes from r without trusting n: a short stream costs memory for what it had, not for
// what it claimed.
func ReadBytes(r io.Reader, n int64) ([]byte, error) {
	if n < 0 || n != int64(int(n)) {
		return nil, Corruptf("a length of %d bytes is impossible", n)
	}
	buf := make([]byte, 0, min(n, chunk))
	for int64(len(buf)) < n {
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), min(n, 2*int64(cap(buf))))
			copy(grown, buf)
			buf = grown
		}
		m, err := io.ReadFull(r, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+m]
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, Corruptf("%d bytes were declared, %d are there", n, len(buf))
		}
		if err != nil {
			return nil, err
		}
	}
	return buf, nil
}

// ReadFile reads a whole regular file of at most limit bytes.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, info, err := OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, info, path, limit)
}

// readAll reads an opened file by the size it had when opened; growth meanwhile is not followed.
func readAll(f io.ReaderAt, info fs.FileInfo, path string, limit int64) ([]byte, error) {
	size := info.Size()
	if size > limit {
		return nil, &Error{Op: "read", Path: path, Off: -1, Err: Limitf("%d bytes are over the limit of %d for this file", size, limit)}
	}
	data, err := ReadBytes(io.NewSectionReader(f, 0, size), size)
	if err != nil {
		return nil, &Error{Op: "read", Path: path, Off: -1, Err: err}
	}
	return data, nil
}

// ParseFile reads and parses a JSON file of at most limit bytes.
func ParseFile(path string, limit int64) (Value, error) {
	data, err := ReadFile(path, limit)
	if err != nil {
		return Value{}, err
	}
	v, err := ParseJSON(data)
	if err != nil {
		return Value{}, WithPath(err, path)
	}
	return v, nil
}

// WithPath names the file in an error of a parser that works on bytes.
func WithPath(err error, path string) error {
	var e *Error
	if errors.As(err, &e) && e.Path == "" {
		named := *e
		named.Path = path
		return &named
	}
	return &Error{Op: "read", Path: path, Off: -1, Err: err}
}
