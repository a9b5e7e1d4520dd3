package safeio

import (
	"errors"
	"os"
)

// ScratchFile is a temporary file for reading and writing anywhere. On systems that can, it has no name: its space is
// given back when the process ends, however it ends.
type ScratchFile struct {
	*os.File
	named bool
}

// Scratch makes a temporary file of size bytes in a directory and reserves its space, so that a full disk shows at once.
func Scratch(dir string, size int64) (*ScratchFile, error) {
	f, err := os.CreateTemp(dir, ".quantize-scratch-*")
	if err != nil {
		return nil, err
	}
	s := &ScratchFile{f, os.Remove(f.Name()) != nil}
	if err := reserve(f, size); err != nil {
		s.Close()
		return nil, &os.PathError{Op: "allocate", Path: f.Name(), Err: err}
	}
	return s, nil
}

// Close gives the space back.
func (s *ScratchFile) Close() error {
	err := s.File.Close()
	if s.named {
		err = errors.Join(err, os.Remove(s.Name()))
	}
	return err
}
