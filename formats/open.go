package formats

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/llmquant/quantize/formats/hf"
	"github.com/llmquant/quantize/formats/safeio"
)

// opener is one row of the table of input kinds.
type opener struct {
	kind  string
	match func(head []byte, dir bool) bool // head: the first bytes of a file, nil for a directory
	open  func(path string, limits Limits) (Checkpoint, error)
}

// openers is tried in order.
func openers() []opener {
	return []opener{
		{"hf", isDirectory, openHF},
		{"gguf", isGGUF, openGGUF},
		{"hf", isSafetensors, openHF},
		{"pickle", isPickle, refusePickle},
	}
}

// headBytes is what openers see of a file.
const headBytes = 16

// Open opens a model: a Hugging Face directory, a Hub cache directory, a safetensors or GGUF file (the first of a split
// set), or any artifact the project writes. Errors are *safeio.Error of class corrupt, unsupported or limit, or plain
// I/O errors.
func Open(ctx context.Context, path string) (Checkpoint, error) {
	return OpenLimits(ctx, path, DefaultLimits())
}

// OpenLimits is Open with limits of the caller's choice.
func OpenLimits(ctx context.Context, path string, limits Limits) (Checkpoint, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	head, dir, err := sniff(path)
	if err != nil {
		return nil, err
	}
	for _, o := range openers() {
		if !o.match(head, dir) {
			continue
		}
		c, err := o.open(path, limits)
		if err != nil {
			return nil, located(err, path)
		}
		return c, nil
	}
	return nil, &safeio.Error{Op: "open", Path: path, Off: -1, Hint: "name a model directory, a .safetensors or a .gguf file",
		Err: safeio.Unsupportedf("the file begins like none of the formats that are read")}
}

// sniff returns the first bytes of a regular file, or says that path is a directory.
func sniff(path string) (head []byte, dir bool, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, false, err
	}
	if info.IsDir() {
		return nil, true, nil
	}
	f, _, err := safeio.OpenRegular(path)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	head = make([]byte, headBytes)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, false, err
	}
	return head[:n], false, nil
}

func isDirectory(_ []byte, dir bool) bool { return dir }

// isSafetensors: a header length that fits the format's cap, then a JSON object.
func isSafetensors(head []byte, dir bool) bool {
	return !dir && len(head) > 8 && head[8] == '{' && binary.LittleEndian.Uint64(head) < 1<<32
}

// isPickle recognises PyTorch's zip archives and bare pickle streams (protocol 2 and up).
func isPickle(head []byte, dir bool) bool {
	return !dir && len(head) > 4 && (string(head[:4]) == "PK\x03\x04" || head[0] == 0x80 && head[1] >= 2 && head[1] <= 5)
}

func refusePickle(path string, _ Limits) (Checkpoint, error) {
	return nil, &safeio.Error{Op: "open", Path: path, Off: -1,
		Hint: "convert it once in a sandbox: transformers' save_pretrained(..., safe_serialization=True)",
		Err:  safeio.Unsupportedf("this is a pickle or zip archive; loading it executes code, so it is never opened")}
}

// located makes sure that an error names a path.
func located(err error, path string) error {
	var typed *safeio.Error
	var plain *fs.PathError
	if errors.As(err, &typed) && typed.Path != "" || errors.As(err, &plain) {
		return err
	}
	return safeio.WithPath(err, path)
}

// hfCheckpoint adapts a Hugging Face checkpoint.
type hfCheckpoint struct {
	*hf.Checkpoint
	meta Meta
}

// Meta describes the checkpoint.
func (c *hfCheckpoint) Meta() *Meta { return &c.meta }

func openHF(path string, limits Limits) (Checkpoint, error) {
	h, err := hf.Open(path, limits)
	if err != nil {
		return nil, err
	}
	c := &hfCheckpoint{Checkpoint: h, meta: Meta{Path: path, Kind: "hf", Config: []byte(h.Config().Text()),
		Skipped: h.Skipped(), place: h.Place, unchanged: h.Unchanged}}
	if q := h.Quantization(); q != nil {
		c.meta.Quant = &QuantConfig{Method: q.Method, Raw: q.Raw, Source: q.Source}
	} else {
		c.meta.Quant = exl2Quantization(h)
	}
	for _, f := range h.Weights() {
		c.meta.Files = append(c.meta.Files, FileInfo(f))
	}
	for _, f := range h.Side() {
		c.meta.Side = append(c.meta.Side, SideFile(f))
	}
	return c, nil
}
