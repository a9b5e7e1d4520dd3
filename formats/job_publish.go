package formats

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/llmquant/quantize/formats/hf"
	"github.com/llmquant/quantize/formats/safeio"
)

// Publish makes the output appear. Every byte is read back and compared with what was written, then side files are
// copied, then the documents of last are written (config.json after all others; a document wins over a side file of its
// name), everything is made durable, and the output takes its final name. An error leaves the final name as it was.
func (j *Job) Publish(ctx context.Context, side []SideFile, last map[string][]byte) error {
	j.appendMu.Lock()
	defer j.appendMu.Unlock()
	if j.Published() {
		return nil
	}
	if err := j.broken(); err != nil {
		return err
	}
	side = slices.DeleteFunc(slices.Clone(side), func(f SideFile) bool { _, wins := last[f.Name]; return wins })
	names, err := j.outputNames(side, last)
	if err != nil {
		return err
	}
	if err := j.verify(ctx); err != nil {
		return err
	}
	dir := filepath.Join(j.work, newName)
	for _, f := range side {
		if err := j.copySide(ctx, filepath.Join(dir, f.Name), f); err != nil {
			return err
		}
	}
	for _, name := range lastOrder(last) {
		if err := j.writeFile(filepath.Join(dir, name), last[name]); err != nil {
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
func (j *Job) outputNames(side []SideFile, last map[string][]byte) ([]string, error) {
	var names []string
	for _, f := range j.layout.Files {
		names = append(names, f.Name)
	}
	for _, f := range side {
		names = append(names, f.Name)
	}
	names = append(names, lastOrder(last)...)
	if err := safeio.CheckNames(names); err != nil {
		return nil, &safeio.Error{Op: "publish", Path: j.out, Off: -1, Err: err}
	}
	return names, nil
}

// lastOrder sorts the documents by name, config.json behind all others: it makes a directory a model.
func lastOrder(last map[string][]byte) []string {
	names := slices.Sorted(maps.Keys(last))
	if i := slices.Index(names, hf.ConfigName); i >= 0 {
		names = append(slices.Delete(names, i, i+1), hf.ConfigName)
	}
	return names
}

// verify reads every file back: headers, tensors against their checksums, zeros in between.
func (j *Job) verify(ctx context.Context) error {
	for i, t := range j.layout.Tensors {
		if j.tensors[i].sum == "" && t.Bytes > 0 {
			return j.misuse(t.Name, "it belongs to no finished unit")
		}
	}
	for i, p := range j.layout.Files {
		info, err := j.files[i].Stat()
		if err != nil {
			return j.fail("verify", j.files[i].Name(), err)
		}
		if info.Size() != p.Size {
			return j.differs(i, "", "the file has %d bytes instead of %d", info.Size(), p.Size)
		}
		head := make([]byte, len(p.Header))
		if err := safeio.ReadFullAt(j.files[i], head, 0); err != nil {
			return j.fail("verify", j.files[i].Name(), err)
		}
		if !bytes.Equal(head, p.Header) {
			return j.differs(i, "", "the header is not what was written")
		}
		if err := j.verifyTensors(ctx, i, int64(len(p.Header)), p.Size); err != nil {
			return err
		}
	}
	return nil
}

// verifyTensors compares the part of a file behind its header.
func (j *Job) verifyTensors(ctx context.Context, file int, at, size int64) error {
	for _, k := range j.layout.byFile[file] {
		t := j.layout.Tensors[k]
		if err := j.verifyZeros(ctx, file, at, t.Offset); err != nil {
			return err
		}
		sum, err := j.hashTensor(ctx, k)
		if err != nil {
			return err
		}
		if t.Bytes > 0 && sum != j.tensors[k].sum {
			return j.differs(file, t.Name, "its bytes on disk are not those that were written")
		}
		at = t.Offset + t.Bytes
	}
	return j.verifyZeros(ctx, file, at, size)
}

// verifyZeros compares what lies between tensors: a stray write would show here.
func (j *Job) verifyZeros(ctx context.Context, file int, from, to int64) error {
	err := j.readBack(ctx, zeros{}, file, from, to-from)
	if errors.Is(err, errNotZero) {
		return j.differs(file, "", "padding between bytes %d and %d is not zero", from, to)
	}
	return err
}

func (j *Job) differs(file int, name, format string, args ...any) error {
	return &safeio.Error{Op: "verify", Path: j.files[file].Name(), Tensor: name, Off: -1,
		Hint: "check the disk; run the same command again to redo what is damaged", Err: classedVerify(format, args...)}
}

// zeros accepts nothing but zero bytes.
type zeros struct{}

var errNotZero = errors.New("not zero")

func (zeros) Write(p []byte) (int, error) {
	for _, b := range p {
		if b != 0 {
			return 0, errNotZero
		}
	}
	return len(p), nil
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
		if at+int64(n) > side.Size || n < len(buf) && at+int64(n) != side.Size {
			return &safeio.Error{Op: "copy", Path: side.Name, Off: -1, Err: safeio.Corruptf("the file changed while it was read: it had %d bytes", side.Size)}
		}
		if n > 0 {
			if err := j.write(out, buf[:n], at); err != nil {
				return err
			}
			at += int64(n)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return j.sync(out)
		}
		if err != nil {
			return &safeio.Error{Op: "copy", Path: side.Name, Off: -1, Err: err}
		}
	}
}
