package formats

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync"

	"github.com/llmquant/quantize/formats/container"
	"github.com/llmquant/quantize/formats/safeio"
)

// JobOptions describes an output to be made.
type JobOptions struct {
	Out      string            // the directory, or with SingleFile the file, to appear
	Key      string            // identifies inputs, recipe and program version: equal keys give equal bytes
	Describe map[string]string // what went into Key, to explain a mismatch to a human
	Plan     *container.Plan   // every weight file, every tensor
	Force    bool              // replace an existing output, and drop unfinished work of another key
	// SingleFile: Out is a file (GGUF). The plan's files and the documents given to Publish appear beside each other in its
	// directory. Without files in the plan, Out is one of the documents.
	SingleFile bool
	Inputs     []string   // paths the job reads: the output may neither contain nor be one of them, nor lie inside one
	Scratch    int64      // the most bytes that blobs take at any time, for the space check
	FS         *safeio.FS // nil: the real one
}

// The work directory OUT.partial holds the output under construction and everything needed to continue it. No loader
// accepts it: it has no config.json, and "new" gets its config.json last.
const (
	partialSuffix = ".partial"
	lockName      = "lock"
	journalName   = "journal"
	newName       = "new"  // what will become OUT
	oldName       = "old"  // the output that is being replaced
	blobPrefix    = "blob" // blob-000001, …
)

// Job fills a planned output and publishes it. It is held by one process at a time; its methods may be called
// concurrently. After an I/O error every later call returns that error: a write or sync that failed once is never
// retried (its pages may be gone), the next run starts from the last durable unit.
type Job struct {
	o      JobOptions
	fs     *safeio.FS
	out    string // absolute
	work   string // out + partialSuffix
	layout *layoutOf
	files  []*os.File // of the plan, in work/new
	unlock func() error

	mu        sync.Mutex
	failed    error
	tensors   []tensorState
	done      map[string]int // unit name to index in units
	units     []unitRecord
	blobs     map[string]blobRecord
	published bool
	warnings  []string

	appendMu sync.Mutex // serialises sync + journal append
	journal  *os.File
	tail     int64  // offset behind the last line
	sum      uint32 // its checksum
	blobSeq  int
}

// OpenJob takes the lock of the output and prepares its files: new ones, or those of an interrupted run with the same
// key, whose finished units are read back and compared with their checksums. Errors: ErrExists (the output is there, or
// unfinished work with another key), ErrLocked, ErrCorrupt (bad plan or paths), or an I/O error, no space among them.
func OpenJob(ctx context.Context, o JobOptions) (*Job, error) {
	layout, err := checkPlan(o.Plan)
	if err != nil {
		return nil, err
	}
	j := &Job{o: o, fs: o.FS, layout: layout}
	if j.fs == nil {
		j.fs = safeio.OS()
	}
	if err := j.locate(); err != nil {
		return nil, err
	}
	if !exists(j.work) { // a refusal should leave nothing behind
		if err := j.refuseExisting(); err != nil {
			return nil, err
		}
	}
	if err := j.lock(); err != nil {
		return nil, err
	}
	if err := j.open(ctx); err != nil {
		j.abandon()
		return nil, err
	}
	return j, nil
}

// locate finds the absolute paths and refuses an output that touches an input.
func (j *Job) locate() error {
	if j.o.Out == "" {
		return &safeio.Error{Op: "create", Off: -1, Err: safeio.Corruptf("the output has no path")}
	}
	out, err := filepath.Abs(j.o.Out)
	if err != nil {
		return err
	}
	if base := filepath.Base(out); len(base) > safeio.MaxName || filepath.Dir(out) == out {
		return &safeio.Error{Op: "create", Path: out, Off: -1, Err: safeio.Limitf("an output needs a name of 1 to %d bytes", safeio.MaxName)}
	}
	if j.o.SingleFile && len(j.layout.Files) > 0 && j.layout.Files[0].Name != filepath.Base(out) {
		return &safeio.Error{Op: "create", Path: out, Off: -1, Err: safeio.Corruptf("the plan's first file must have the output's name")}
	}
	j.out, j.work = out, out+partialSuffix
	return apart(out, j.o.Inputs)
}

// lock makes the work directory and takes its lock. The directory may vanish in between when its owner finishes.
func (j *Job) lock() error {
	const attempts = 16
	for try := 0; ; try++ {
		if err := os.MkdirAll(filepath.Dir(j.out), 0o755); err != nil {
			return err
		}
		if err := os.Mkdir(j.work, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if info, err := os.Lstat(j.work); err == nil && !info.IsDir() {
			return &safeio.Error{Op: "create", Path: j.work, Off: -1, Hint: "move it away", Err: safeio.Corruptf("it is not a directory")}
		}
		unlock, err := j.fs.Lock(filepath.Join(j.work, lockName))
		if errors.Is(err, fs.ErrNotExist) && try < attempts {
			continue
		}
		if err != nil && !errors.Is(err, safeio.ErrLocked) {
			os.Remove(j.work) // succeeds only while it is empty
		}
		j.unlock = unlock
		return err
	}
}

// abandon gives up after a failed OpenJob. A work directory without a journal holds nothing worth keeping.
func (j *Job) abandon() {
	if !exists(filepath.Join(j.work, journalName)) && !exists(filepath.Join(j.work, oldName)) {
		j.closeFiles()
		j.removeWork()
	}
	j.Close()
}

// Close releases the lock and keeps the work directory, so that the same command continues where this run stopped.
func (j *Job) Close() error {
	j.mu.Lock()
	if j.failed == nil {
		j.failed = &safeio.Error{Op: "write", Path: j.out, Off: -1, Err: fs.ErrClosed}
	}
	j.mu.Unlock()
	return j.release()
}

// release closes all files, then lets the next process in.
func (j *Job) release() error {
	err := j.closeFiles()
	if j.unlock != nil {
		err = errors.Join(err, j.unlock())
		j.unlock = nil
	}
	return err
}

func (j *Job) closeFiles() error {
	var errs []error
	for _, f := range append(j.files, j.journal) {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	j.files, j.journal = nil, nil
	return errors.Join(errs...)
}

// Done reports whether a unit was finished: in this run, or in an earlier one and its bytes are still intact.
func (j *Job) Done(unit string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, ok := j.done[unit]
	return ok
}

// States yields the name and state of every finished unit in the order in which they were finished.
func (j *Job) States() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		j.mu.Lock()
		units := j.units[:len(j.units):len(j.units)]
		j.mu.Unlock()
		for _, u := range units {
			if !yield(u.Name, u.state()) {
				return
			}
		}
	}
}

// Published reports whether the output is in place. That can be so right after OpenJob, when an earlier run with the
// same key was interrupted during its last renames: every unit is then Done and Publish has nothing left to do.
func (j *Job) Published() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.published
}

// Warnings lists what the file system could not do (sync, lock), each once: the output is complete but may not
// survive a power loss.
func (j *Job) Warnings() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.warnings...)
}

// WorkDir returns the directory of unfinished work, for messages.
func (j *Job) WorkDir() string { return j.work }
