package calib

import (
	"github.com/llmquant/quantize/calib/chat"
	"github.com/llmquant/quantize/formats/safeio"
)

// Document is one row, line or file of the data. Exactly one of Text, IDs and Messages is set.
type Document struct {
	Text     string
	IDs      []int32
	Messages []chat.Message
	File     string // as named in FileStat
	Row      int64  // line or row, from 1; 0 when the file is the document
}

// Encoder is what this package needs of a tokenizer. It must be safe for concurrent use.
type Encoder interface {
	// EncodeAppend appends the ids of text to dst; with special, also the tokenizer's own tokens around a text.
	EncodeAppend(dst []int32, text string, special bool) []int32
}

// Options say what to read and how to cut it.
type Options struct {
	Column  string // "": the first of Columns that a file has
	Samples int    // windows wanted, 0: all there are
	SeqLen  int    // tokens per window

	// Conversations are laid out by Chat, or by the template that Template names ("": the model's own, "chatml",
	// "plain", or a file) with the special tokens of the model. Its files are those of ModelDir, unless ModelFiles reads
	// them from elsewhere.
	Chat       *chat.Template
	Template   string
	ModelDir   string
	ModelFiles chat.Files

	KeepEmpty bool // yield documents without content as well, to keep step with the rows of a file
	NoSpecial bool // tokenize texts without the tokenizer's own special tokens
	Threads   int  // goroutines that tokenize; 0: GOMAXPROCS. Results do not depend on it
	Limits    Limits
}

// Columns are the names looked for when Options.Column is empty, in order.
var Columns = [...]string{"input_ids", "text", "content", "prompt", "messages", "conversations", "conversation"}

// Limits bound what is read. Zero fields take their values from DefaultLimits.
type Limits struct {
	Total    int64 // bytes that all compressed inputs together may decompress to
	Ratio    int64 // bytes of text per byte of file, beyond the first RatioFree
	Free     int64 // bytes of text that are never too many for a file
	Line     int   // bytes of a line or of an element of a JSON array
	Document int64 // bytes of a text file or a single JSON value
	Tail     int64 // bytes of text that are still tokenized, to be counted, when there are enough windows
}

// DefaultLimits returns the limits of reliability.md section 4.
func DefaultLimits() Limits {
	return Limits{Total: 4 << 30, Ratio: 1000, Free: 16 << 20, Line: 16 << 20, Document: 256 << 20, Tail: 32 << 20}
}

// withDefaults fills in what a caller left at zero.
func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	for _, f := range []struct{ v, def *int64 }{{&l.Total, &d.Total}, {&l.Ratio, &d.Ratio}, {&l.Free, &d.Free}, {&l.Document, &d.Document}, {&l.Tail, &d.Tail}} {
		if *f.v <= 0 {
			*f.v = *f.def
		}
	}
	if l.Line <= 0 {
		l.Line = d.Line
	}
	return l
}

// FileStat describes an input that has been read to its end.
type FileStat struct {
	Name      string `json:"name"`
	SHA256    string `json:"sha256"`
	Bytes     int64  `json:"bytes"`
	Documents int64  `json:"documents"`
	Skipped   int64  `json:"skipped,omitempty"` // rows that are null, empty or lack the column
}

// template returns how conversations are laid out; it is resolved when the first one turns up.
func (o Options) template() (*chat.Template, error) {
	if o.Chat != nil && o.Template == "" {
		return o.Chat, nil
	}
	if o.Template == "" && o.ModelDir == "" {
		return nil, &safeio.Error{Op: "read calibration data", Off: -1, Hint: chat.Hint,
			Err: safeio.Unsupportedf("the data holds conversations and there is no chat template")}
	}
	files := o.ModelFiles
	if files == nil {
		files = chat.Dir(o.ModelDir)
	}
	return chat.Select(o.Template, o.ModelDir, files)
}
