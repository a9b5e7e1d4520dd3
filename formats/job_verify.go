package formats

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/llmquant/quantize/formats/safeio"
)

// verify reads every file back, several at a time: headers, padding, tensors against their checksums. It returns the
// identities of the files as a whole, taken from the same bytes.
func (j *Job) verify(ctx context.Context) ([]FileSum, error) {
	for i, t := range j.layout.Tensors {
		if j.tensors[i].sum == "" && t.Bytes > 0 {
			return nil, j.misuse(t.Name, "it belongs to no finished unit")
		}
	}
	sums := make([]FileSum, len(j.layout.Files))
	err := parallel(len(sums), func(i int) (err error) {
		sums[i], err = j.verifyFile(ctx, i)
		return err
	})
	return sums, err
}

// verifyFile reads one file from its first byte to its last.
func (j *Job) verifyFile(ctx context.Context, i int) (FileSum, error) {
	p, f := j.layout.Files[i], j.files[i]
	info, err := f.Stat()
	if err != nil {
		return FileSum{}, j.fail("verify", f.Name(), err)
	}
	if info.Size() != p.Size {
		return FileSum{}, j.differs(i, "", "the file has %d bytes instead of %d", info.Size(), p.Size)
	}
	head := make([]byte, len(p.Header))
	if err := safeio.ReadFullAt(f, head, 0); err != nil {
		return FileSum{}, j.fail("verify", f.Name(), err)
	}
	if !bytes.Equal(head, p.Header) {
		return FileSum{}, j.differs(i, "", "the header is not what was written")
	}
	whole := sha256.New()
	whole.Write(head)
	at := int64(len(head))
	for _, k := range j.layout.byFile[i] {
		t := j.layout.Tensors[k]
		if err := j.verifyZeros(ctx, whole, i, at, t.Offset); err != nil {
			return FileSum{}, err
		}
		var check checksum
		if err := j.readBack(ctx, io.MultiWriter(whole, &check), i, t.Offset, t.Bytes); err != nil {
			return FileSum{}, err
		}
		if t.Bytes > 0 && check.String() != j.tensors[k].sum {
			return FileSum{}, j.differs(i, t.Name, "its bytes on disk are not those that were written")
		}
		at = t.Offset + t.Bytes
	}
	err = j.verifyZeros(ctx, whole, i, at, p.Size)
	return FileSum{Name: p.Name, Bytes: p.Size, SHA256: hex.EncodeToString(whole.Sum(nil))}, err
}

// verifyZeros compares what lies between tensors: a stray write would show here.
func (j *Job) verifyZeros(ctx context.Context, whole io.Writer, file int, from, to int64) error {
	err := j.readBack(ctx, io.MultiWriter(zeros{}, whole), file, from, to-from)
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

// hashChunk is the unit of reading back.
const hashChunk = 256 << 10

// sumTensor reads a tensor's bytes back and returns their checksum.
func (j *Job) sumTensor(ctx context.Context, i int) (string, error) {
	t := j.layout.Tensors[i]
	var check checksum
	err := j.readBack(ctx, &check, t.File, t.Offset, t.Bytes)
	return check.String(), err
}

// readBack feeds n bytes of an output file to w.
func (j *Job) readBack(ctx context.Context, w io.Writer, file int, off, n int64) error {
	buf := make([]byte, min(n, hashChunk))
	for n > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		buf = buf[:min(n, hashChunk)]
		if err := safeio.ReadFullAt(j.files[file], buf, off); err != nil {
			return j.fail("read", j.files[file].Name(), err)
		}
		if _, err := w.Write(buf); err != nil {
			return err
		}
		off, n = off+int64(len(buf)), n-int64(len(buf))
	}
	return nil
}

// parallel runs f(0) … f(n-1) on all processors and returns the error of the smallest index that failed. Work that has
// not begun when a failure is seen is left undone.
func parallel(n int, f func(i int) error) error {
	errs := make([]error, n)
	var next atomic.Int64
	var failed atomic.Bool
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || failed.Load() {
					return
				}
				if errs[i] = f(i); errs[i] != nil {
					failed.Store(true)
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
