package gguf

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/llmquant/quantize/formats/safeio"
)

// File is an open GGUF file, or a whole split set opened through its first file. It is safe for concurrent use.
type File struct {
	Header
	path   string
	shards []shard
	byName map[string]int
}

// shard is one file of the set.
type shard struct {
	f       *os.File
	info    fs.FileInfo // as it was opened
	name    string
	size    int64
	data    int64 // offset of the data section
	version uint32
	count   int // tensors
}

// Open opens a file or split set and checks it completely: see the package comment. The path of a split set is that of
// its first file ("…-00001-of-00003.gguf"); the others must lie beside it.
func Open(path string) (*File, error) { return OpenLimits(path, safeio.DefaultLimits()) }

// OpenLimits is Open with limits of the caller's choice.
func OpenLimits(path string, lim safeio.Limits) (*File, error) {
	f := &File{path: path, byName: make(map[string]int)}
	if err := f.open(lim); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// open reads the given file and, when it starts a split set, the others.
func (f *File) open(lim safeio.Limits) error {
	first, err := f.add(f.path, lim)
	if err != nil {
		return err
	}
	f.KV = first.KV
	set, err := splitOf(&first.KV)
	if err != nil {
		return &safeio.Error{Op: "open", Path: f.path, Err: err}
	}
	if set.count <= 1 {
		return nil
	}
	if set.no != 0 {
		return &safeio.Error{Op: "open", Path: f.path, Hint: "Give the first file of the set, the others are found beside it.",
			Err: safeio.Unsupportedf("this is file %d of a split set of %d", set.no+1, set.count)}
	}
	return f.openRest(set, lim)
}

// openRest opens the other files of a split set and checks that they belong together.
func (f *File) openRest(set split, lim safeio.Limits) error {
	prefix, no, count, ok := ParseSplitName(filepath.Base(f.path))
	if !ok || no != 0 || count != set.count {
		return &safeio.Error{Op: "open", Path: f.path, Hint: "Rename the files to the form NAME-00001-of-00003.gguf.",
			Err: safeio.Corruptf("the file says it is the first of %d, its name does not", set.count)}
	}
	for i := 1; i < set.count; i++ {
		path := filepath.Join(filepath.Dir(f.path), SplitName(prefix, i, set.count))
		p, err := f.add(path, lim)
		if err != nil {
			return err
		}
		s, err := splitOf(&p.KV)
		if err == nil && (s.no != i || s.count != set.count) {
			err = safeio.Corruptf("the file says it is number %d of %d, its name says %d of %d", s.no+1, s.count, i+1, set.count)
		}
		if err != nil {
			return &safeio.Error{Op: "open", Path: path, Err: err}
		}
	}
	if set.tensors != int64(len(f.Tensors)) {
		return &safeio.Error{Op: "open", Path: f.path,
			Err: safeio.Corruptf("the split set holds %d tensors, its first file announces %d", len(f.Tensors), set.tensors)}
	}
	return nil
}

// add opens one file and appends its tensors.
func (f *File) add(path string, lim safeio.Limits) (*parsed, error) {
	file, info, err := safeio.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	size := info.Size()
	n := len(f.shards)
	f.shards = append(f.shards, shard{f: file, info: info, name: filepath.Base(path), size: size})
	p, err := parse(file, size, lim)
	if err != nil {
		return nil, safeio.WithPath(err, path)
	}
	f.shards[n].data, f.shards[n].version, f.shards[n].count = p.data, p.version, len(p.Tensors)
	for _, t := range p.Tensors {
		if _, twice := f.byName[t.Name]; twice {
			return nil, &safeio.Error{Op: "open", Path: path, Tensor: t.Name, Err: safeio.Corruptf("the tensor also stands in another file of the split set")}
		}
		f.byName[t.Name] = len(f.Tensors)
		t.Shard = n
		f.Tensors = append(f.Tensors, t)
	}
	return p, nil
}

// Close closes every file of the set.
func (f *File) Close() error {
	var errs []error
	for i := range f.shards {
		if f.shards[i].f != nil {
			errs = append(errs, f.shards[i].f.Close())
			f.shards[i].f = nil
		}
	}
	return errors.Join(errs...)
}

// Path returns the path given to Open.
func (f *File) Path() string { return f.path }

// Lookup finds a tensor by its stored name.
func (f *File) Lookup(name string) (*Tensor, bool) {
	if i, ok := f.byName[name]; ok {
		return &f.Tensors[i], true
	}
	return nil, false
}

// ReadAt fills dst with the stored bytes of a tensor from byte off of its data. A short read is an error.
func (f *File) ReadAt(t *Tensor, dst []byte, off int64) error {
	if off < 0 || off > t.Bytes || int64(len(dst)) > t.Bytes-off {
		return &safeio.Error{Op: "read", Path: f.path, Tensor: t.Name,
			Err: fmt.Errorf("bytes %d … %d lie outside the tensor's %d", off, off+int64(len(dst)), t.Bytes)}
	}
	s := &f.shards[t.Shard]
	at := s.data + t.Offset + off
	if err := safeio.ReadFullAt(s.f, dst, at); err != nil {
		return &safeio.Error{Op: "read", Path: filepath.Join(filepath.Dir(f.path), s.name), Tensor: t.Name, Off: at, Err: err}
	}
	return nil
}

// Shard describes one file of the set.
type Shard struct {
	Name    string // base name
	Size    int64
	Data    int64 // offset of the data section
	Version uint32
	Tensors int
}

// Shards lists the files in order. A single file is a set of one.
func (f *File) Shards() []Shard {
	out := make([]Shard, len(f.shards))
	for i, s := range f.shards {
		out[i] = Shard{s.name, s.size, s.data, s.version, s.count}
	}
	return out
}

// OpenShard returns the raw bytes of file i, for hashing. They end with File.Close.
func (f *File) OpenShard(i int) io.ReadCloser {
	return io.NopCloser(io.NewSectionReader(f.shards[i].f, 0, f.shards[i].size))
}

// Unchanged fails when a file of the set was changed or replaced since it was opened.
func (f *File) Unchanged() error {
	for i := range f.shards {
		path := filepath.Join(filepath.Dir(f.path), f.shards[i].name)
		now, err := os.Stat(path)
		if err != nil {
			return err
		}
		was := f.shards[i].info
		if !os.SameFile(was, now) || was.Size() != now.Size() || !was.ModTime().Equal(now.ModTime()) {
			return &safeio.Error{Op: "read", Path: path, Off: -1, Err: safeio.Corruptf("the file was changed while it was in use")}
		}
	}
	return nil
}
