package safetensors

import (
	"encoding/binary"
	"io"
	"os"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// File is one opened, fully checked safetensors file. It is safe for concurrent use.
type File struct {
	path     string
	r        io.ReaderAt
	close    func() error
	data     int64 // offset of the first tensor byte
	size     int64
	infos    []tensor.Info // in order of offset
	offsets  []int64       // of each tensor from the start of the file
	index    map[string]int32
	metadata safeio.Value
}

var _ tensor.Source = (*File)(nil)

// Open opens and checks the regular file at path.
func Open(path string, limits safeio.Limits) (*File, error) {
	f, info, err := safeio.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	return OpenFile(f, info.Size(), path, limits)
}

// OpenFile checks an opened file of size bytes and takes it over: it is closed with the File, or at once on an error.
// The path is for messages.
func OpenFile(f *os.File, size int64, path string, limits safeio.Limits) (*File, error) {
	opened, err := New(f, size, path, limits)
	if err != nil {
		f.Close()
		return nil, err
	}
	opened.close = f.Close
	return opened, nil
}

// New checks a file of size bytes behind r. The path is for messages.
func New(r io.ReaderAt, size int64, path string, limits safeio.Limits) (*File, error) {
	header, err := readHeader(r, size, limits)
	if err != nil {
		return nil, wrap("open", path, "", err)
	}
	f := &File{path: path, r: r, size: size, data: lengthBytes + int64(len(header)), close: func() error { return nil }}
	if err := f.parse(header, limits); err != nil {
		return nil, wrap("open", path, "", err)
	}
	return f, nil
}

// Close closes the file.
func (f *File) Close() error { return f.close() }

// Path returns the path the file was opened under.
func (f *File) Path() string { return f.path }

// Size returns the size of the file in bytes.
func (f *File) Size() int64 { return f.size }

// Metadata returns the "__metadata__" object, whose values are strings; the zero Value when there is none.
func (f *File) Metadata() safeio.Value { return f.metadata }

// Tensors lists the tensors in order of their offsets.
func (f *File) Tensors() []tensor.Info { return f.infos }

// Lookup finds a tensor by name.
func (f *File) Lookup(name string) (tensor.Info, bool) {
	i, ok := f.index[name]
	if !ok {
		return tensor.Info{}, false
	}
	return f.infos[i], true
}

// Place returns where the bytes of a tensor lie in the file.
func (f *File) Place(name string) (offset, bytes int64, ok bool) {
	i, ok := f.index[name]
	if !ok {
		return 0, 0, false
	}
	return f.offsets[i], f.end(int(i)) - f.offsets[i], true
}

// ReadTensor fills dst with bytes of the tensor from byte offset off.
func (f *File) ReadTensor(name string, dst []byte, off int64) error {
	start, bytes, ok := f.Place(name)
	if !ok {
		return wrap("read", f.path, name, safeio.Corruptf("no such tensor"))
	}
	end, ok := tensor.Add(off, int64(len(dst)))
	if !ok || end > bytes {
		return wrap("read", f.path, name, safeio.Corruptf("bytes %d to %d were asked for, the tensor has %d", off, off+int64(len(dst)), bytes))
	}
	if err := safeio.ReadFullAt(f.r, dst, start+off); err != nil {
		return &safeio.Error{Op: "read", Path: f.path, Tensor: name, Off: start + off, Err: err}
	}
	return nil
}

// end returns the offset behind tensor i: tensors are contiguous, so the next one's start or the end of the file.
func (f *File) end(i int) int64 {
	if i+1 < len(f.offsets) {
		return f.offsets[i+1]
	}
	return f.size
}

// lengthBytes is the size of the length in front of the header.
const lengthBytes = 8

// readHeader returns the JSON text. The length is compared with the file and the cap before anything is read or allocated.
func readHeader(r io.ReaderAt, size int64, limits safeio.Limits) ([]byte, error) {
	if size < lengthBytes {
		return nil, safeio.Corruptf("a file of %d bytes has no safetensors header", size)
	}
	var prefix [lengthBytes]byte
	if err := safeio.ReadFullAt(r, prefix[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(prefix[:])
	if n > uint64(size-lengthBytes) {
		return nil, safeio.Corruptf("the header claims %d bytes, the file has %d left", n, size-lengthBytes)
	}
	if n > uint64(limits.SafetensorsHeader) {
		return nil, safeio.Limitf("the header has %d bytes, over the limit of %d", n, limits.SafetensorsHeader)
	}
	header := make([]byte, n)
	if err := safeio.ReadFullAt(r, header, lengthBytes); err != nil {
		return nil, err
	}
	return header, nil
}

func wrap(op, path, name string, err error) error {
	if e, ok := err.(*safeio.Error); ok {
		located := *e
		if located.Path == "" {
			located.Path = path
		}
		if located.Tensor == "" {
			located.Tensor = name
		}
		return &located
	}
	return &safeio.Error{Op: op, Path: path, Tensor: name, Off: -1, Err: err}
}
