package calib

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/llmquant/quantize/formats/safeio"
)

// Set is a calibration set: Windows windows of SeqLen tokens, one behind the other.
type Set struct {
	IDs       []int32 // Windows × SeqLen
	SeqLen    int
	Windows   int
	Requested int // windows asked for, 0: all. Fewer windows than that mean there was not more data

	DocStart  []int // offsets in IDs at which a document begins
	Documents int   // documents with tokens, used or not

	TokensUsed    int64
	TokensDropped int64 // of documents behind the last window and of the rest that fills none
	// Documents behind the last window whose text is too much to tokenize merely for counting are counted in bytes.
	DocumentsUntokenized int
	BytesUntokenized     int64

	Refused      int    // conversations the chat template refused
	FirstRefusal string // why it refused the first

	Files []FileStat
}

// Window returns the i-th window.
func (s *Set) Window(i int) []int32 { return s.IDs[i*s.SeqLen : (i+1)*s.SeqLen] }

// Hash identifies the windows, for the key of a job: their ids and their length, not where they came from.
func (s *Set) Hash() string {
	h := sha256.New()
	fmt.Fprintf(h, "quantize-calibration/1 %d %d\n", s.SeqLen, s.Windows)
	buf := make([]byte, 0, 4<<10)
	for i, id := range s.IDs {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(id))
		if len(buf) == cap(buf) || i == len(s.IDs)-1 {
			h.Write(buf)
			buf = buf[:0]
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// cutter joins documents and cuts windows. A document of ids that fills a window exactly is a window as it is: such
// data was cut by somebody, and stays so. Everything else is joined in order around it.
type cutter struct {
	set     *Set
	pending []int32
	starts  []int // document starts in pending
}

// full tells whether there are as many windows as were asked for.
func (c *cutter) full() bool { return c.set.Requested > 0 && c.set.Windows == c.set.Requested }

// window appends a finished window; starts are the document starts inside of it.
func (c *cutter) window(ids []int32, starts []int) {
	base := len(c.set.IDs)
	for _, s := range starts {
		c.set.DocStart = append(c.set.DocStart, base+s)
	}
	c.set.IDs = append(c.set.IDs, ids...)
	c.set.Windows++
	c.set.TokensUsed += int64(len(ids))
}

// add takes the ids of a document and accounts for every one of them.
func (c *cutter) add(ids []int32, given bool) {
	n := c.set.SeqLen
	switch {
	case c.full():
		c.set.TokensDropped += int64(len(ids))
		return
	case given && len(ids) == n:
		c.window(ids, []int{0})
		return
	}
	c.starts = append(c.starts, len(c.pending))
	c.pending = append(c.pending, ids...)
	done := 0
	for len(c.pending)-done >= n && !c.full() {
		k := 0
		for k < len(c.starts) && c.starts[k] < done+n {
			k++
		}
		inside := make([]int, k)
		for i, s := range c.starts[:k] {
			inside[i] = s - done
		}
		c.window(c.pending[done:done+n], inside)
		c.starts = c.starts[k:]
		done += n
	}
	c.pending = append(c.pending[:0], c.pending[done:]...)
	for i := range c.starts {
		c.starts[i] -= done
	}
	if c.full() {
		c.finish()
	}
}

// finish drops what fills no window.
func (c *cutter) finish() {
	c.set.TokensDropped += int64(len(c.pending))
	c.pending, c.starts = nil, nil
}

// Load reads the inputs and cuts the first Samples windows of SeqLen tokens. enc may be nil (the interface, not a nil
// pointer in it) when the data holds token ids; vocab bounds them, 0 for no bound. Less than one window is an error.
func Load(ctx context.Context, paths []string, o Options, enc Encoder, vocab int) (*Set, error) {
	if o.SeqLen < 1 || o.Samples < 0 {
		return nil, fmt.Errorf("calibration windows of %d tokens, %d of them, are impossible", o.SeqLen, o.Samples)
	}
	src, err := OpenSource(paths, o)
	if err != nil {
		return nil, err
	}
	set := &Set{SeqLen: o.SeqLen, Requested: o.Samples}
	c := &cutter{set: set}
	if err := src.fill(ctx, c, enc, vocab); err != nil {
		return nil, err
	}
	c.finish()
	set.Files = src.Files()
	if set.Windows == 0 {
		return nil, set.tooLittle()
	}
	return set, nil
}

// fill tokenizes documents until there are enough windows, then goes on to count: exactly for as much text as takes a
// moment, by its bytes for the rest.
func (s *Source) fill(ctx context.Context, c *cutter, enc Encoder, vocab int) error {
	t := &tokenizing{opts: s.opts, enc: enc, vocab: vocab}
	tail := s.opts.Limits.Tail
	return s.batches(ctx, t, func(d Document) bool {
		if !c.full() || d.IDs != nil {
			return true
		}
		if tail -= int64(d.size()); tail >= 0 {
			return true
		}
		c.set.DocumentsUntokenized++
		c.set.BytesUntokenized += int64(d.size())
		return false
	}, func(tok Tokens) error {
		if tok.Why != "" {
			if c.set.Refused++; c.set.Refused == 1 {
				c.set.FirstRefusal = tok.Why
			}
			return nil
		}
		if len(tok.IDs) > 0 {
			c.set.Documents++
			c.add(tok.IDs, tok.Given)
		}
		return nil
	})
}

// tooLittle says how much there is and how much it takes, so that a user can tell a wrong column from a small file.
func (s *Set) tooLittle() error {
	have := s.TokensDropped
	err := safeio.Corruptf("too little data: %d tokens in %d documents, and one window takes %d", have, s.Documents, s.SeqLen)
	if s.Requested > 1 {
		err = safeio.Corruptf("too little data: %d tokens in %d documents, one window takes %d and %d windows take %d",
			have, s.Documents, s.SeqLen, s.Requested, int64(s.Requested)*int64(s.SeqLen))
	}
	if s.Refused > 0 {
		err = fmt.Errorf("%w; the chat template refused %d conversations (%s)", err, s.Refused, s.FirstRefusal)
	}
	return &safeio.Error{Op: "cut calibration windows", Off: -1, Hint: "give more data or a smaller --seq-len", Err: err}
}
