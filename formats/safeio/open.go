package safeio

import (
	"io/fs"
	"os"
	"path/filepath"
)

// OpenRegular opens a file for reading and makes sure that it is a regular file. Opening a FIFO or a device would block
// or have effects, so the kind is looked at first, the open does not block, and the opened file is looked at again.
func OpenRegular(path string) (*os.File, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if err := regular(info, path); err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	return checkOpened(f, err, path)
}

// Root is a directory out of which no name can lead: OpenRegular for files that a checkpoint names. Dir is below the
// root; links inside the root are followed, links out of it are refused by os.Root.
type Root struct {
	root *os.Root
	path string // of the root, for messages
	dir  string // inside the root, "." or "snapshots/<revision>"
}

// OpenRoot opens dir inside the directory root (dir "." is root itself).
func OpenRoot(root, dir string) (*Root, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	return &Root{root: r, path: root, dir: dir}, nil
}

// Close releases the directory; opened files stay usable.
func (r *Root) Close() error { return r.root.Close() }

// Path returns the path of a file of the directory, for messages.
func (r *Root) Path(name string) string { return filepath.Join(r.path, r.dir, name) }

// Open opens the regular file name, a plain base name.
func (r *Root) Open(name string) (*os.File, fs.FileInfo, error) {
	if err := CheckName(name); err != nil {
		return nil, nil, &Error{Op: "open", Path: r.Path("."), Off: -1, Err: err}
	}
	inner := filepath.Join(r.dir, name)
	info, err := r.root.Stat(inner)
	if err != nil {
		return nil, nil, r.explain(name, err)
	}
	if err := regular(info, r.Path(name)); err != nil {
		return nil, nil, err
	}
	f, err := r.root.OpenFile(inner, os.O_RDONLY|nonblock, 0)
	return checkOpened(f, err, r.Path(name))
}

// Stat describes the file name without opening it; links are followed inside the root.
func (r *Root) Stat(name string) (fs.FileInfo, error) {
	if err := CheckName(name); err != nil {
		return nil, &Error{Op: "open", Path: r.Path("."), Off: -1, Err: err}
	}
	info, err := r.root.Stat(filepath.Join(r.dir, name))
	if err != nil {
		return nil, r.explain(name, err)
	}
	return info, nil
}

// explain keeps plain I/O errors and gives escaping links a class: os.Root's own error for them has none.
func (r *Root) explain(name string, err error) error {
	if link, lerr := r.root.Lstat(filepath.Join(r.dir, name)); lerr == nil && link.Mode()&fs.ModeSymlink != 0 {
		if _, serr := os.Stat(r.Path(name)); serr == nil {
			return &Error{Op: "open", Path: r.Path(name), Off: -1, Err: Corruptf("the link leads out of %s and is not followed", r.path)}
		}
	}
	return err
}

// Names lists the entries of the directory in order of name.
func (r *Root) Names() ([]string, error) {
	entries, err := fs.ReadDir(r.root.FS(), filepath.ToSlash(r.dir))
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// ReadFile reads the file name of at most limit bytes.
func (r *Root) ReadFile(name string, limit int64) ([]byte, error) {
	f, info, err := r.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, info, r.Path(name), limit)
}

func checkOpened(f *os.File, err error, path string) (*os.File, fs.FileInfo, error) {
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = regular(info, path)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// Unchanged compares two looks at a file: the same file, the same size, not written to since.
func Unchanged(path string, was, now fs.FileInfo) error {
	if os.SameFile(was, now) && was.Size() == now.Size() && was.ModTime().Equal(now.ModTime()) {
		return nil
	}
	return &Error{Op: "read", Path: path, Off: -1, Hint: "start again when nothing writes to the input",
		Err: Corruptf("the file was changed or replaced while it was in use")}
}

func regular(info fs.FileInfo, path string) error {
	if info.Mode().IsRegular() {
		return nil
	}
	what := "a device"
	switch {
	case info.IsDir():
		what = "a directory"
	case info.Mode()&fs.ModeNamedPipe != 0:
		what = "a pipe"
	case info.Mode()&fs.ModeSocket != 0:
		what = "a socket"
	}
	return &Error{Op: "open", Path: path, Off: -1, Err: Corruptf("%s, not a regular file", what)}
}
