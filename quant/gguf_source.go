package quant

import (
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/gguf"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/quant/grid/ggml"
)

// ggufSource is a model seen as the GGUF file it is or would be: a header, and rows of numbers for every tensor.
type ggufSource struct {
	header *gguf.Header
	file   *gguf.File                // a GGUF file; nil for a checkpoint
	maps   map[string]gguf.TensorMap // a checkpoint's tensors by GGUF name
	src    tensor.Source
	model  *arch.Model // nil when the family is unknown (GGUF files only)
}

// openGGUFSource describes src as GGUF. plain is the type of matrices of a converted checkpoint.
func openGGUFSource(src formats.Checkpoint, plain gguf.Type) (*ggufSource, error) {
	if f, ok := formats.GGUF(src); ok {
		return &ggufSource{header: &f.Header, file: f}, nil
	}
	meta := src.Meta()
	model, err := arch.Resolve(meta.Config, src)
	if err != nil {
		return nil, safeio.WithPath(err, meta.Path)
	}
	side, err := smallFiles(meta, gguf.SideFiles())
	if err != nil {
		return nil, err
	}
	path, err := filepath.Abs(meta.Path)
	if err != nil {
		return nil, err
	}
	header, maps, err := gguf.FromHF(model, src, gguf.ConvertOptions{Type: plain, Config: meta.Config, Side: side, Name: filepath.Base(path),
		File: func(name string) string { file, _, _, _ := meta.Place(name); return file }})
	if err != nil {
		return nil, safeio.WithPath(err, meta.Path)
	}
	s := &ggufSource{header: header, maps: make(map[string]gguf.TensorMap, len(maps)), src: src, model: model}
	for _, m := range maps {
		s.maps[m.Name] = m
	}
	return s, nil
}

// smallFiles reads those side files whose names are listed.
func smallFiles(meta *formats.Meta, names []string) (map[string][]byte, error) {
	const most = 256 << 20
	files := map[string][]byte{}
	for _, f := range meta.Side {
		if !slices.Contains(names, f.Name) {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(io.LimitReader(r, most+1))
		r.Close()
		if err == nil && len(text) > most {
			err = safeio.Limitf("the file has more than %d bytes", most)
		}
		if err != nil {
			return nil, &safeio.Error{Op: "read", Path: f.Name, Off: -1, Err: err}
		}
		files[f.Name] = text
	}
	return files, nil
}

// rows fills dst with whole rows of a tensor, decoded, from row first on.
func (s *ggufSource) rows(t *gguf.Tensor, dst []float32, first int64) error {
	if s.file == nil {
		m := s.maps[t.Name]
		return m.ReadRows(s.src, dst, first)
	}
	stored, _ := s.file.Lookup(t.Name)
	cols := stored.NE[0]
	rowBytes, ok := stored.Type.RowBytes(cols)
	if !ok {
		return safeio.Corruptf("tensor %s has rows of no whole number of blocks", t.Name)
	}
	n := int64(len(dst)) / cols
	raw := make([]byte, n*rowBytes)
	if err := s.file.ReadAt(stored, raw, first*rowBytes); err != nil {
		return err
	}
	if d := stored.Type.DType(); d != tensor.Invalid {
		return tensor.ToFloat32(dst, d, raw)
	}
	grid, ok := ggml.ByID(uint32(stored.Type))
	if !ok {
		return safeio.Unsupportedf("there is no decoder for %s", stored.Type)
	}
	for r := range n {
		grid.DecodeRow(dst[r*cols:(r+1)*cols], raw[r*rowBytes:(r+1)*rowBytes])
	}
	return nil
}

// raw reports the stored type of a tensor when its bytes can be copied as they are.
func (s *ggufSource) raw(t *gguf.Tensor) (gguf.Type, bool) {
	if s.file == nil {
		return 0, false
	}
	stored, ok := s.file.Lookup(t.Name)
	return stored.Type, ok
}

// refuseRequantize stops a second rounding that nobody asked for.
func (s *ggufSource) refuseRequantize(path string) error {
	var names []string
	for i := range s.header.Tensors {
		if t := &s.header.Tensors[i]; t.Type.DType() == tensor.Invalid {
			names = append(names, t.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return &safeio.Error{Op: "quantize", Path: path, Off: -1, Hint: "start from the F16 or BF16 file, or accept a second rounding with --allow-requantize",
		Err: safeio.Unsupportedf("%d tensors are quantized already (%s first)", len(names), names[0])}
}

// encodeError puts an encoder's error into the user's terms: tensor, row and column.
func encodeError(t *gguf.Tensor, first int64, err error) error {
	var bad *ggml.NonFiniteError
	if errors.As(err, &bad) && !strings.HasPrefix(bad.What, "importance") {
		at := first*t.NE[0] + int64(bad.Index)
		err = safeio.Corruptf("the weight at row %d, column %d is %v", at/t.NE[0], at%t.NE[0], bad.Value)
	}
	return &safeio.Error{Op: "quantize", Tensor: t.Name, Off: -1, Err: err}
}
