package calib

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/llmquant/quantize/calib/chat"
	"github.com/llmquant/quantize/formats/safeio"
)

// Tokens are the ids of one document.
type Tokens struct {
	IDs   []int32
	File  string
	Row   int64
	Given bool   // the ids stood in the data; they were not made by the tokenizer
	Bytes int    // of the text they were made from
	Why   string // the chat template's reason for refusing the conversation; IDs is then empty
}

// Work is handed out in batches: enough documents to keep all goroutines busy, few enough to bound memory.
const (
	batchDocs  = 512
	batchBytes = 8 << 20
)

// Tokens yields the ids of every document in order. Texts and conversations are tokenized in parallel; that changes
// nothing about the result. vocab bounds the ids, 0 for no bound; enc may be nil when the data holds ids alone.
func (s *Source) Tokens(ctx context.Context, enc Encoder, vocab int) iter.Seq2[Tokens, error] {
	t := &tokenizing{opts: s.opts, enc: enc, vocab: vocab}
	return func(yield func(Tokens, error) bool) {
		err := s.batches(ctx, t, func(Document) bool { return true }, func(tok Tokens) error {
			if !yield(tok, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(Tokens{}, err)
		}
	}
}

// batches runs all documents that want accepts through t, batch by batch, and passes the results on in order. What a
// batch holds depends on the documents alone, never on the number of goroutines.
func (s *Source) batches(ctx context.Context, t *tokenizing, want func(Document) bool, use func(Tokens) error) error {
	var docs []Document
	size := 0
	flush := func() error {
		for _, r := range t.run(ctx, docs) {
			if r.err != nil {
				return r.err
			}
			if err := use(r.tokens); err != nil {
				return err
			}
		}
		clear(docs)
		docs, size = docs[:0], 0
		return nil
	}
	for d, err := range s.Documents(ctx) {
		if err != nil {
			if first := flush(); first != nil { // of an earlier document, so it comes first
				return first
			}
			return err
		}
		if !want(d) {
			continue
		}
		docs = append(docs, d)
		if size += d.size(); len(docs) == batchDocs || size >= batchBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// size is what a document weighs in batches and budgets, in bytes of text.
func (d Document) size() int {
	n := len(d.Text) + 4*len(d.IDs)
	for _, m := range d.Messages {
		n += len(m.Content)
	}
	return n
}

type tokenizing struct {
	opts  Options
	enc   Encoder
	vocab int

	once     sync.Once
	template *chat.Template
	err      error
}

type result struct {
	tokens Tokens
	err    error
}

// run tokenizes a batch; results stand in the order of the documents.
func (t *tokenizing) run(ctx context.Context, docs []Document) []result {
	out := make([]result, len(docs))
	threads := t.opts.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(threads, len(docs)) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(docs) {
					return
				}
				out[i].tokens, out[i].err = t.document(ctx, docs[i])
			}
		})
	}
	wg.Wait()
	return out
}

// document lays out and tokenizes one document. A conversation that the template refuses is a result, not an error: data
// sets of thousands of rows have a few, and they must not end the run.
func (t *tokenizing) document(ctx context.Context, d Document) (Tokens, error) {
	out := Tokens{File: d.File, Row: d.Row, Bytes: d.size()}
	if err := ctx.Err(); err != nil {
		return out, err
	}
	if d.IDs != nil {
		out.IDs, out.Given = d.IDs, true
		return out, t.check(out)
	}
	if t.enc == nil {
		return out, atDocument(out, safeio.Unsupportedf("the data is text and there is no tokenizer; give token ids in a column input_ids"))
	}
	text, special := d.Text, !t.opts.NoSpecial
	if len(d.Messages) > 0 {
		t.once.Do(func() { t.template, t.err = t.opts.template() })
		if t.err != nil {
			return out, t.err
		}
		var err error
		text, err = t.template.Render(ctx, d.Messages)
		var refused *chat.RefusedError
		switch {
		case errors.As(err, &refused):
			out.Why = refused.Reason
			return out, nil
		case err != nil:
			return out, err
		}
		special = special && t.template.AddsSpecial()
	}
	out.IDs = t.enc.EncodeAppend(make([]int32, 0, len(text)/3+8), text, special)
	return out, t.check(out)
}

// check keeps ids inside of the vocabulary: they index the embedding.
func (t *tokenizing) check(out Tokens) error {
	if t.vocab <= 0 {
		return nil
	}
	for i, id := range out.IDs {
		if id >= 0 && int(id) < t.vocab {
			continue
		}
		err := safeio.Corruptf("token %d is %d, the model's vocabulary has %d entries", i, id, t.vocab)
		if !out.Given {
			err = safeio.Corruptf("the tokenizer gives the id %d, the model's vocabulary has %d entries: they do not belong together", id, t.vocab)
		}
		return atDocument(out, err)
	}
	return nil
}

// atDocument names file and row.
func atDocument(out Tokens, err error) error {
	if out.Row > 0 {
		err = inRow("row", out.Row, err)
	}
	return readError(out.File, err)
}
