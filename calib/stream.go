package calib

import (
	"context"

	"github.com/llmquant/quantize/formats/safeio"
)

// Stream is everything the inputs hold, joined in order: what evaluation scores.
type Stream struct {
	IDs          []int32
	DocStart     []int // offset in IDs of every document that has tokens
	Refused      int   // conversations the chat template refused
	FirstRefusal string
	Files        []FileStat
}

// ReadStream reads and joins all documents. Options.Samples and SeqLen are not used.
func ReadStream(ctx context.Context, paths []string, o Options, enc Encoder, vocab int) (*Stream, error) {
	src, err := OpenSource(paths, o)
	if err != nil {
		return nil, err
	}
	s := &Stream{}
	for tok, err := range src.Tokens(ctx, enc, vocab) {
		switch {
		case err != nil:
			return nil, err
		case tok.Why != "":
			if s.Refused++; s.Refused == 1 {
				s.FirstRefusal = tok.Why
			}
		case len(tok.IDs) > 0:
			s.DocStart = append(s.DocStart, len(s.IDs))
			s.IDs = append(s.IDs, tok.IDs...)
		}
	}
	s.Files = src.Files()
	if len(s.IDs) == 0 {
		cause := safeio.Corruptf("the data holds no tokens")
		if s.Refused > 0 {
			cause = safeio.Unsupportedf("the chat template refused all %d conversations: %s", s.Refused, s.FirstRefusal)
		}
		return nil, readError("", cause)
	}
	return s, nil
}
