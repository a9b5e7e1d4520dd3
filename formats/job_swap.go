package formats

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/llmquant/quantize/formats/safeio"
)

// move is one rename of a publication.
type move struct {
	from, to string
	replace  bool // may take the place of an existing file even without Force: a report beside a GGUF file
}

// moves lists the renames that publish these names; nil: the directory as a whole.
func (j *Job) moves(names []string) []move {
	dir := filepath.Join(j.work, newName)
	if names == nil {
		return []move{{dir, j.out, false}}
	}
	var all []move
	for i, name := range names {
		all = append(all, move{filepath.Join(dir, name), filepath.Join(filepath.Dir(j.out), name), i >= len(j.layout.Files)})
	}
	return all
}

// swap renames the new output into place, moving what it replaces aside first. It may be called again after any
// interruption: a rename that has happened is recognised by its source being gone.
func (j *Job) swap(names []string) error {
	parent, old := filepath.Dir(j.out), filepath.Join(j.work, oldName)
	for _, m := range j.moves(names) {
		if !exists(m.from) {
			continue
		}
		if exists(m.to) {
			if !j.o.Force && !m.replace {
				return j.fail("publish", m.to, fmt.Errorf("the output %w", safeio.ErrExists))
			}
			if err := os.Mkdir(old, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return j.fail("publish", old, err)
			}
			if err := j.rename(m.to, filepath.Join(old, filepath.Base(m.to)), old, parent); err != nil {
				return err
			}
		}
		if err := j.rename(m.from, m.to, parent, filepath.Dir(m.from)); err != nil {
			return err
		}
	}
	return j.syncDir(parent)
}

// rename moves a file and makes both directories durable before anything else may happen.
func (j *Job) rename(from, to string, dirs ...string) error {
	if err := j.fs.Rename(from, to); err != nil {
		return j.fail("publish", to, err)
	}
	for _, d := range dirs {
		if err := j.syncDir(d); err != nil {
			return err
		}
	}
	return nil
}

// finishSwap completes a publication that was interrupted between its renames. It has begun when the new output or part
// of it is gone from the work directory, or something was moved aside.
func (j *Job) finishSwap(lines []parsedLine) (finished bool, err error) {
	if len(lines) == 0 || lines[len(lines)-1].Publish == nil {
		return false, nil
	}
	names := lines[len(lines)-1].Publish.Files
	begun := exists(filepath.Join(j.work, oldName))
	for _, m := range j.moves(names) {
		begun = begun || !exists(m.from)
	}
	if !begun {
		return false, nil
	}
	if names == nil && !exists(filepath.Join(j.work, newName)) && !exists(j.out) {
		return false, nil // somebody removed the published output: start over
	}
	force := j.o.Force
	j.o.Force = true // the run that began the swap had the permission
	err = j.swap(names)
	j.o.Force = force
	if err != nil {
		return false, err
	}
	j.finished()
	return true, nil
}

// finished cleans up behind a published output. The output is durable by now: nothing that fails here can harm it, and
// what cannot be removed is found and removed when the same output is opened again.
func (j *Job) finished() {
	_ = j.closeFiles()
	j.removeWork()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.published = true
}
