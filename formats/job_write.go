package formats

import (
	"context"
	"encoding/base64"
	"slices"
	"sync"

	"github.com/llmquant/quantize/formats/safeio"
)

// tensorState is what the job knows about one tensor of the plan.
type tensorState struct {
	mu      sync.Mutex
	written []interval // bytes written, merged and in order
	prefix  int64      // bytes that check has seen: writes in order are summed up on the way
	check   checksum
	sum     string // of all bytes, once its unit is finished
}

// interval is a half-open range of bytes.
type interval struct{ from, to int64 }

// Write fills bytes of a tensor from byte offset off. Every byte is written exactly once; a second write of a byte, or
// one outside the tensor, is an error. Writes in order of offset are summed up as they come, others are read back.
func (j *Job) Write(tensor string, off int64, p []byte) error {
	if err := j.broken(); err != nil {
		return err
	}
	i, ok := j.layout.byName[tensor]
	if !ok {
		return j.misuse(tensor, "the plan has no such tensor")
	}
	t := j.layout.Tensors[i]
	if off < 0 || off > t.Bytes || int64(len(p)) > t.Bytes-off {
		return j.misuse(tensor, "bytes %d to %d were written, the plan has %d", off, off+int64(len(p)), t.Bytes)
	}
	s := &j.tensors[i]
	s.mu.Lock()
	inOrder := off == s.prefix
	taken := s.sum == "" && s.take(interval{off, off + int64(len(p))})
	if taken && inOrder {
		s.check.Write(p)
		s.prefix += int64(len(p))
	}
	s.mu.Unlock()
	if !taken {
		return j.misuse(tensor, "bytes %d to %d were written twice", off, off+int64(len(p)))
	}
	return j.write(j.files[t.File], p, t.Offset+off)
}

// take claims a range; false when part of it was claimed before.
func (s *tensorState) take(r interval) bool {
	if r.from == r.to {
		return true
	}
	at, _ := slices.BinarySearchFunc(s.written, r.from, func(w interval, from int64) int {
		if w.to <= from {
			return -1
		}
		return 1
	})
	if at < len(s.written) && s.written[at].from < r.to {
		return false
	}
	// Ranges that touch become one, so that writing in order keeps a single interval.
	joinsLeft := at > 0 && s.written[at-1].to == r.from
	joinsRight := at < len(s.written) && s.written[at].from == r.to
	switch {
	case joinsLeft && joinsRight:
		s.written[at-1].to = s.written[at].to
		s.written = slices.Delete(s.written, at, at+1)
	case joinsLeft:
		s.written[at-1].to = r.to
	case joinsRight:
		s.written[at].from = r.from
	default:
		s.written = slices.Insert(s.written, at, r)
	}
	return true
}

// complete reports whether all n bytes are claimed.
func (s *tensorState) complete(n int64) bool {
	return n == 0 || len(s.written) == 1 && s.written[0] == interval{0, n}
}

// misuse is an error of the caller, which would publish a wrong model.
func (j *Job) misuse(tensor, format string, args ...any) error {
	return &safeio.Error{Op: "write", Path: j.out, Tensor: tensor, Off: -1, Err: classedVerify(format, args...)}
}

// Finish makes a unit durable: the tensors' bytes first, then a journal line with their checksums and a small state.
// All of the tensors must be written completely. When Finish returns, a later run will not do the unit again.
func (j *Job) Finish(unit string, tensors []string, state []byte) error {
	j.appendMu.Lock()
	defer j.appendMu.Unlock()
	if err := j.broken(); err != nil {
		return err
	}
	if unit == "" || j.Done(unit) {
		return j.misuse("", "the unit %q is finished twice or has no name", unit)
	}
	u := unitRecord{Name: unit, State: base64.StdEncoding.EncodeToString(state)}
	touched := map[int]bool{}
	for _, name := range tensors {
		sum, file, err := j.seal(name)
		if err != nil {
			return err
		}
		touched[file] = true
		u.Tensors = append(u.Tensors, tensorSum{name, sum})
	}
	for i, f := range j.files { // in order of the plan
		if touched[i] {
			if err := j.sync(f); err != nil {
				return err
			}
		}
	}
	if err := j.append(record{Unit: &u}); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.record(u)
	return nil
}

// seal checks that a tensor is complete and returns its checksum and file.
func (j *Job) seal(name string) (sum string, file int, err error) {
	i, ok := j.layout.byName[name]
	if !ok {
		return "", 0, j.misuse(name, "the plan has no such tensor")
	}
	t, s := j.layout.Tensors[i], &j.tensors[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.sum != "":
		return "", 0, j.misuse(name, "it belongs to a unit that was finished before")
	case !s.complete(t.Bytes):
		return "", 0, j.misuse(name, "its unit is to be finished, but not all of its %d bytes are written", t.Bytes)
	}
	if err := j.readBack(context.Background(), &s.check, t.File, t.Offset+s.prefix, t.Bytes-s.prefix); err != nil {
		return "", 0, err
	}
	sum = s.check.String()
	s.written, s.sum = nil, sum
	return sum, t.File, nil
}

// Read fills p with bytes of a tensor that belongs to a finished unit, from byte offset off.
func (j *Job) Read(tensor string, off int64, p []byte) error {
	i, ok := j.layout.byName[tensor]
	if !ok {
		return j.misuse(tensor, "the plan has no such tensor")
	}
	t, s := j.layout.Tensors[i], &j.tensors[i]
	s.mu.Lock()
	finished := s.sum != ""
	s.mu.Unlock()
	if !finished || off < 0 || off > t.Bytes || int64(len(p)) > t.Bytes-off {
		return j.misuse(tensor, "bytes %d to %d are not finished or not there", off, off+int64(len(p)))
	}
	if err := j.broken(); err != nil {
		return err
	}
	if err := safeio.ReadFullAt(j.files[t.File], p, t.Offset+off); err != nil {
		return j.fail("read", j.files[t.File].Name(), err)
	}
	return nil
}

// append adds a durable line to the journal. Callers hold appendMu, or own the job alone.
func (j *Job) append(r record) error {
	line, sum, err := encodeLine(r, j.sum)
	if err != nil {
		return err
	}
	if err := j.write(j.journal, line, j.tail); err != nil {
		return err
	}
	if err := j.sync(j.journal); err != nil {
		return err
	}
	j.tail, j.sum = j.tail+int64(len(line)), sum
	return nil
}

// state decodes the caller's bytes; the journal's parser has checked that they decode.
func (u *unitRecord) state() []byte {
	b, err := base64.StdEncoding.DecodeString(u.State)
	if err != nil {
		return nil
	}
	return b
}
