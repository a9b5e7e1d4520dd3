package formats

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
)

// resume continues an interrupted run: the longest run of journal lines whose bytes are intact counts, everything
// behind it is forgotten and done again.
func (j *Job) resume(ctx context.Context, lines []parsedLine) error {
	j.reset()
	ok, err := j.reopenFiles()
	if err != nil {
		return err
	}
	if !ok { // a crash before anything was promised, or somebody removed files
		j.closeFiles()
		return j.fresh()
	}
	keep := 1
	for _, l := range lines[1:] {
		intact, err := j.replay(ctx, l.record)
		if err != nil {
			return err
		}
		if !intact {
			break
		}
		keep++
	}
	if err := j.reopenJournal(lines[keep-1]); err != nil {
		return err
	}
	j.removeOrphans()
	return nil
}

// Restart forgets every finished unit and prepares the files anew: for a caller that cannot continue because a blob it
// needs is gone, which takes a damaged disk. It costs the work, never the result.
func (j *Job) Restart() error {
	j.appendMu.Lock()
	defer j.appendMu.Unlock()
	if err := j.broken(); err != nil {
		return err
	}
	if err := j.closeFiles(); err != nil {
		return j.fail("restart", j.work, err)
	}
	return j.fresh()
}

// reopenFiles opens the plan's files for writing; false when one is missing, has another size or another header.
func (j *Job) reopenFiles() (ok bool, err error) {
	for _, p := range j.layout.Files {
		path := filepath.Join(j.work, newName, p.Name)
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && (!info.Mode().IsRegular() || info.Size() != p.Size) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return false, err
		}
		j.files = append(j.files, f)
		head := make([]byte, len(p.Header))
		if err := safeio.ReadFullAt(f, head, 0); err != nil {
			return false, j.fail("read", path, err)
		}
		if !bytes.Equal(head, p.Header) {
			return false, nil
		}
	}
	return true, nil
}

// errDamaged marks a tensor whose bytes are not those that the journal promises.
var errDamaged = errors.New("damaged")

// replay enters one journal line into the tables after comparing the bytes it promises.
func (j *Job) replay(ctx context.Context, r record) (intact bool, err error) {
	switch {
	case r.Blob != nil:
		j.blobs[r.Blob.Name] = *r.Blob // compared when it is loaded: most are never needed
	case r.Unit != nil:
		if _, twice := j.done[r.Unit.Name]; twice {
			return false, nil
		}
		for _, t := range r.Unit.Tensors {
			if i, known := j.layout.byName[t.Name]; !known || j.tensors[i].sum != "" {
				return false, nil
			}
		}
		err := parallel(len(r.Unit.Tensors), func(k int) error {
			sum, err := j.sumTensor(ctx, j.layout.byName[r.Unit.Tensors[k].Name])
			if err == nil && sum != r.Unit.Tensors[k].Sum {
				err = errDamaged
			}
			return err
		})
		if err != nil {
			if errors.Is(err, errDamaged) {
				err = nil
			}
			return false, err
		}
		for _, t := range r.Unit.Tensors {
			j.tensors[j.layout.byName[t.Name]].sum = t.Sum
		}
		j.record(*r.Unit)
	}
	// A publish line whose renames have not begun promises nothing more than the units before it.
	return true, nil
}

// reopenJournal continues the journal behind a line and cuts off what follows.
func (j *Job) reopenJournal(last parsedLine) error {
	path := filepath.Join(j.work, journalName)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	j.journal, j.tail, j.sum = f, last.end, last.sum
	if err := f.Truncate(last.end); err != nil {
		return j.fail("write", path, err)
	}
	return j.sync(f)
}

// removeOrphans removes blobs that no line of the journal lists.
func (j *Job) removeOrphans() {
	listed := map[string]bool{}
	for _, b := range j.blobs {
		listed[b.File] = true
	}
	entries, err := os.ReadDir(j.work)
	if err != nil {
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), blobPrefix) && !listed[e.Name()] {
			os.Remove(filepath.Join(j.work, e.Name())) // it only takes space
		}
	}
}
