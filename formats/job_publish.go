package formats

import (
	"context"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/llmquant/quantize/formats/hf"
	"github.com/llmquant/quantize/formats/safeio"
)

// FileSum is the identity of a finished weight file.
type FileSum struct {
	Name   string // base name
	Bytes  int64
	SHA256 string // hex
}

// Publish makes the output appear. Every byte is read back and compared with what was written, then side files are
// copied, then the documents that last returns are written (config.json after all others; a document wins over a side
// file of its name), everything is made durable, and the output takes its final name. last is told the checksums of the
// weight files, for a report. An error leaves the final name as it was.
func (j *Job) Publish(ctx context.Context, side []SideFile, last func([]FileSum) (map[string][]byte, error)) error {
	j.appendMu.Lock()
	defer j.appendMu.Unlock()
	if j.Published() {
		return nil
	}
	if err := j.broken(); err != nil {
		return err
	}
	sums, err := j.verify(ctx)
	if err != nil {
		return err
	}
	documents, err := last(sums)
	if err != nil {
		return err
	}
	side = slices.DeleteFunc(slices.Clone(side), func(f SideFile) bool { _, wins := documents[f.Name]; return wins })
	names, err := j.outputNames(side, documents)
	if err != nil {
		return err
	}
	dir := filepath.Join(j.work, newName)
	for _, f := range side {
		if err := j.copySide(ctx, filepath.Join(dir, f.Name), f); err != nil {
			return err
		}
	}
	for _, name := range lastOrder(documents) {
		if err := j.writeFile(filepath.Join(dir, name), documents[name]); err != nil {
			return err
		}
	}
	if err := j.syncDir(dir); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if !j.o.SingleFile {
		names = nil // the directory moves as a whole
	}
	if err := j.refuseExisting(); err != nil { // it may have appeared during the run
		return err
	}
	if err := j.append(record{Publish: &publishRecord{Files: names}}); err != nil {
		return err
	}
	if err := j.closeFiles(); err != nil { // some systems rename no directory with open files
		return j.fail("publish", j.out, err)
	}
	if err := j.swap(names); err != nil {
		return err
	}
	j.finished()
	return nil
}

// outputNames lists every file of the output, the plan's first, and checks that the names can live in one directory.
func (j *Job) outputNames(side []SideFile, documents map[string][]byte) ([]string, error) {
	var names []string
	for _, f := range j.layout.Files {
		names = append(names, f.Name)
	}
	for _, f := range side {
		names = append(names, f.Name)
	}
	names = append(names, lastOrder(documents)...)
	if err := safeio.CheckNames(names); err != nil {
		return nil, &safeio.Error{Op: "publish", Path: j.out, Off: -1, Err: err}
	}
	return names, nil
}

// lastOrder sorts the documents by name, config.json behind all others: it makes a directory a model.
func lastOrder(documents map[string][]byte) []string {
	names := slices.Sorted(maps.Keys(documents))
	if i := slices.Index(names, hf.ConfigName); i >= 0 {
		names = append(slices.Delete(names, i, i+1), hf.ConfigName)
	}
	return names
}

// copySide copies one file and makes it durable.
func (j *Job) copySide(ctx context.Context, path string, side SideFile) error {
	in, err := side.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := j.create(path, side.Size)
	if err != nil {
		return err
	}
	defer out.Close()
	buf := make([]byte, min(max(side.Size, 1), hashChunk))
	var at int64
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(in, buf)
		end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !end {
			return &safeio.Error{Op: "copy", Path: side.Name, Off: -1, Err: err}
		}
		if at+int64(n) > side.Size || end && at+int64(n) < side.Size {
			return &safeio.Error{Op: "copy", Path: side.Name, Off: -1, Err: safeio.Corruptf("the file changed while it was read: it had %d bytes", side.Size)}
		}
		if n > 0 {
			if err := j.write(out, buf[:n], at); err != nil {
				return err
			}
			at += int64(n)
		}
		if end {
			return j.sync(out)
		}
	}
}
