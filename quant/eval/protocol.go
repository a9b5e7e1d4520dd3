package eval

import (
	"fmt"
	"slices"
)

// Protocol says which tokens of a window are scored and what precedes them.
type Protocol string

// The protocols of `quantize eval`.
const (
	// GPTQ is what papers quote: windows without overlap, each scored from its second token on, the tail dropped.
	GPTQ Protocol = "gptq"
	// All scores every token but the very first: each window also predicts the first token of the next one, and a
	// shorter last window counts.
	All Protocol = "all"
	// LlamaCpp scores the second half of every window, as llama-perplexity does.
	LlamaCpp Protocol = "llama.cpp"
)

// window is one run of the model: ids in, and what each position has to predict.
type window struct {
	start   int // index of ids[0] in the joined stream
	ids     []int32
	targets []int32 // targets[i] is the token that position i has to predict; -1: not scored
}

// Protocols lists them, the default first.
func Protocols() []Protocol { return []Protocol{GPTQ, All, LlamaCpp} }

// Validate checks the protocol and the sizes of windows against each other.
func (o *Options) Validate() error {
	switch {
	case !slices.Contains(Protocols(), o.Protocol):
		return fmt.Errorf("unknown protocol %q; known: gptq, all, llama.cpp", o.Protocol)
	case o.Stride != 0 && o.Protocol != GPTQ:
		return fmt.Errorf("--stride overlaps windows and needs --protocol gptq, not %s", o.Protocol)
	case o.SeqLen < 2 || o.Stride < 0 || o.Stride > o.SeqLen:
		return fmt.Errorf("windows of %d tokens with stride %d are not possible", o.SeqLen, o.Stride)
	}
	return nil
}

// windows cuts the joined stream. With the llama.cpp protocol and a tokenizer that adds BOS (bos ≥ 0) the first token of
// every window is overwritten by it, as llama-perplexity does; the other protocols' originals put none inside the text.
func windows(o *Options) ([]window, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	ids, p, seqLen, stride, bos := o.IDs, o.Protocol, o.SeqLen, o.Stride, o.BOS
	if stride > 0 {
		return strided(ids, seqLen, stride), nil
	}
	var out []window
	for start := 0; start < len(ids); start += seqLen {
		end := min(start+seqLen, len(ids))
		if full := end-start == seqLen; !full && p != All {
			break
		}
		w := window{start: start, ids: ids[start:end], targets: targets(ids, start, end, p)}
		if p == LlamaCpp && bos >= 0 {
			w.ids = append([]int32{bos}, w.ids[1:]...)
		}
		if anyScored(w.targets) {
			out = append(out, w)
		}
	}
	return out, nil
}

// targets lists what each position of ids[start:end] predicts, -1 where it is not scored.
func targets(ids []int32, start, end int, p Protocol) []int32 {
	t := make([]int32, end-start)
	for i := range t {
		t[i] = -1
		next := start + i + 1
		switch {
		case p == All && next < len(ids),
			p == GPTQ && next < end,
			p == LlamaCpp && next < end && i >= len(t)/2:
			t[i] = ids[next]
		}
	}
	return t
}

// strided overlaps windows and scores only the tokens that no earlier window scored.
func strided(ids []int32, seqLen, stride int) []window {
	var out []window
	scored := 1 // the stream's first token has no context
	for start := 0; start < len(ids) && scored < len(ids); start += stride {
		end := min(start+seqLen, len(ids))
		t := make([]int32, end-start)
		for i := range t {
			t[i] = -1
			if next := start + i + 1; next >= scored && next < end {
				t[i] = ids[next]
			}
		}
		scored = end
		if anyScored(t) { // a last window of one token predicts nothing
			out = append(out, window{start: start, ids: ids[start:end], targets: t})
		}
	}
	return out
}

func anyScored(targets []int32) bool {
	for _, t := range targets {
		if t >= 0 {
			return true
		}
	}
	return false
}
