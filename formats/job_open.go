package formats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/llmquant/quantize/formats/safeio"
)

// maxJournal bounds a journal that is read back; a unit takes about 100 bytes a tensor.
const maxJournal = 1 << 30

// open decides, under the lock, between finishing an interrupted publication, resuming and starting afresh.
func (j *Job) open(ctx context.Context) error {
	lines, err := j.readJournal()
	if err != nil {
		return err
	}
	finished, err := j.finishSwap(lines)
	if err != nil {
		return err
	}
	if finished {
		if j.sameKey(lines) == nil {
			j.adopt(lines)
			return nil
		}
		return j.reopen(ctx)
	}
	if err := j.refuseExisting(); err != nil {
		return err
	}
	if len(lines) == 0 {
		return j.fresh()
	}
	if err := j.sameKey(lines); err != nil {
		if j.o.Force {
			return j.fresh()
		}
		return err
	}
	return j.resume(ctx, lines)
}

// reopen starts again after another run's publication was completed; its work directory and lock file are gone with it.
func (j *Job) reopen(ctx context.Context) error {
	j.published = false
	if err := j.release(); err != nil {
		return err
	}
	if err := j.refuseExisting(); err != nil {
		return err
	}
	if err := j.lock(); err != nil {
		return err
	}
	return j.open(ctx)
}

// readJournal returns the promised part of an earlier run's journal, nothing when there is none.
func (j *Job) readJournal() ([]parsedLine, error) {
	path := filepath.Join(j.work, journalName)
	data, err := safeio.ReadFile(path, maxJournal)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lines, err := parseJournal(data)
	if err != nil {
		e := safeio.WithPath(err, path).(*safeio.Error)
		e.Hint = "remove " + j.work + " to start over"
		return nil, e
	}
	return lines, nil
}

// refuseExisting fails when a file of the output is there and may not be replaced.
func (j *Job) refuseExisting() error {
	if j.o.Force {
		return nil
	}
	for _, target := range j.targets() {
		if exists(target) {
			return &safeio.Error{Op: "create", Path: target, Off: -1, Hint: "use --force to replace it, or choose another output path",
				Err: fmt.Errorf("the output %w", safeio.ErrExists)}
		}
	}
	return nil
}

// targets lists the paths that the plan makes appear.
func (j *Job) targets() []string {
	if !j.o.SingleFile || len(j.layout.Files) == 0 {
		return []string{j.out}
	}
	var paths []string
	for _, f := range j.layout.Files {
		paths = append(paths, filepath.Join(filepath.Dir(j.out), f.Name))
	}
	return paths
}

// sameKey explains what an earlier run had different.
func (j *Job) sameKey(lines []parsedLine) error {
	start := lines[0].Start
	if start.Key == j.o.Key && start.Plan == j.layout.digest() {
		return nil
	}
	var diffs []string
	names := slices.Collect(maps.Keys(start.Describe))
	for name := range j.o.Describe {
		if _, ok := start.Describe[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		was, had := start.Describe[name]
		now, has := j.o.Describe[name]
		switch {
		case !had:
			diffs = append(diffs, fmt.Sprintf("%s is now %q", name, now))
		case !has:
			diffs = append(diffs, fmt.Sprintf("%s was %q", name, was))
		case was != now:
			diffs = append(diffs, fmt.Sprintf("%s was %q, is now %q", name, was, now))
		}
	}
	if len(diffs) == 0 {
		diffs = []string{"its inputs or its layout differ"}
	}
	return &safeio.Error{Op: "resume", Path: j.work, Off: -1,
		Hint: "repeat the earlier command to continue it, or remove " + j.work + " (or use --force) to start over",
		Err:  fmt.Errorf("unfinished work of another run %w: %s", safeio.ErrExists, strings.Join(diffs, "; "))}
}

// fresh starts from nothing. The journal comes last: until its first line is durable, nothing is.
func (j *Job) fresh() error {
	if old := filepath.Join(j.work, oldName); exists(old) && !exists(j.out) {
		return &safeio.Error{Op: "create", Path: old, Off: -1, Hint: "move it back to " + j.out + " or remove it",
			Err: safeio.Corruptf("it holds an output that was being replaced, and the journal that tells more is gone")}
	}
	if err := j.clearWork(); err != nil {
		return err
	}
	if err := j.checkSpace(); err != nil {
		return err
	}
	dir := filepath.Join(j.work, newName)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, p := range j.layout.Files {
		f, err := j.create(filepath.Join(dir, p.Name), p.Size)
		if err != nil {
			return err
		}
		j.files = append(j.files, f)
		if err := j.write(f, p.Header, 0); err != nil {
			return err
		}
		if err := j.sync(f); err != nil {
			return err
		}
	}
	for _, d := range []string{dir, j.work, filepath.Dir(j.out)} {
		if err := j.syncDir(d); err != nil {
			return err
		}
	}
	j.reset()
	var err error
	if j.journal, err = j.create(filepath.Join(j.work, journalName), 0); err != nil {
		return err
	}
	if err := j.syncDir(j.work); err != nil {
		return err
	}
	return j.append(record{Start: &startRecord{journalVersion, j.o.Key, j.o.Describe, j.layout.digest()}})
}

// checkSpace compares what the output needs with what is free, before anything is written.
func (j *Job) checkSpace() error {
	need := j.layout.bytes() + j.o.Scratch
	dir := filepath.Dir(j.out)
	free, err := j.fs.Free(dir)
	if err != nil && !safeio.NotSupported(err) {
		return j.fail("create", dir, err)
	}
	if err == nil && free < need {
		return &safeio.Error{Op: "create", Path: dir, Off: -1, Hint: fmt.Sprintf("free %d bytes or choose another output path", need-free),
			Err: fmt.Errorf("%w: %d bytes are needed, %d are free", syscall.ENOSPC, need, free)}
	}
	return nil
}

// reset prepares the tables of a job without finished units.
func (j *Job) reset() {
	j.tensors = make([]tensorState, len(j.layout.Tensors))
	j.done = map[string]int{}
	j.blobs = map[string]blobRecord{}
	j.units = nil
}

// adopt makes a job whose output an earlier run has published look finished.
func (j *Job) adopt(lines []parsedLine) {
	j.reset()
	for _, l := range lines {
		if l.Unit != nil {
			j.record(*l.Unit)
		}
	}
	j.published = true
}

// record enters a finished unit into the tables.
func (j *Job) record(u unitRecord) {
	j.done[u.Name] = len(j.units)
	j.units = append(j.units, u)
}

// clearWork empties the work directory except for the lock.
func (j *Job) clearWork() error {
	entries, err := os.ReadDir(j.work)
	if err != nil {
		return err
	}
	// The journal goes last: it explains the rest if this is interrupted.
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return journalRank(a) - journalRank(b) })
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), lockName) {
			if err := os.RemoveAll(filepath.Join(j.work, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func journalRank(e fs.DirEntry) int {
	if e.Name() == journalName {
		return 1
	}
	return 0
}

// removeWork removes the work directory while the lock is still held. Only names of ours are removed: a successor that
// is already waiting may create a lock file of its own in the same directory, which must survive.
func (j *Job) removeWork() {
	if j.clearWork() != nil {
		return
	}
	os.Remove(filepath.Join(j.work, lockName))
	os.Remove(j.work)
}
