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
	"github.com/llmquant/quantize/internal/kernel"
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

// rows reads up to n whole rows of a tensor from row first on; fewer where an expert ends. They lie in the memory of into,
// what was read before.
func (s *ggufSource) rows(t *gguf.Tensor, into rawRows, first, n int64) (r rawRows, err error) {
	r = rawRows{cols: t.NE[0], data: into.data}
	if s.file == nil {
		m := s.maps[t.Name]
		r.data, r.dtype, err = m.ReadRaw(s.src, r.data, first, n)
		r.rowBytes = r.cols * r.dtype.Size()
		return r, err
	}
	stored, _ := s.file.Lookup(t.Name)
	var ok bool
	if r.rowBytes, ok = stored.Type.RowBytes(r.cols); !ok {
		return r, safeio.Corruptf("tensor %s has rows of no whole number of blocks", t.Name)
	}
	if r.dtype = stored.Type.DType(); r.dtype == tensor.Invalid {
		if r.grid, ok = ggml.ByID(uint32(stored.Type)); !ok {
			return r, safeio.Unsupportedf("there is no decoder for %s", stored.Type)
		}
	}
	if size := n * r.rowBytes; int64(cap(r.data)) < size {
		r.data = make([]byte, size)
	} else {
		r.data = r.data[:size]
	}
	return r, s.file.ReadAt(stored, r.data, first*r.rowBytes)
}

// rawRows are rows as they lie in a file.
type rawRows struct {
	data           []byte
	cols, rowBytes int64
	dtype          tensor.DType
	grid           *ggml.Type // when dtype is Invalid
}

func (r *rawRows) count() int64 { return int64(len(r.data)) / r.rowBytes }

// decode widens rows from row lo on, as many as dst takes.
func (r *rawRows) decode(dst []float32, lo int64) error {
	n := int64(len(dst)) / r.cols
	raw := r.data[lo*r.rowBytes : (lo+n)*r.rowBytes]
	if r.grid != nil {
		for i := range n {
			r.grid.DecodeRow(dst[i*r.cols:(i+1)*r.cols], raw[i*r.rowBytes:(i+1)*r.rowBytes])
		}
		return nil
	}
	if kind, ok := halves[r.dtype]; ok {
		kernel.WidenBytes(dst, raw, kind)
		return nil
	}
	return tensor.ToFloat32(dst, r.dtype, raw)
}

// halves are the element types that kernels widen.
var halves = map[tensor.DType]kernel.Kind{tensor.BF16: kernel.BF16, tensor.F16: kernel.F16}

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
	var over *ggml.OverflowError
	if errors.As(err, &over) {
		where := *over
		where.Row += int(first)
		err = &where
	}
	if errors.As(err, &bad) && !strings.HasPrefix(bad.What, "importance") {
		at := first*t.NE[0] + int64(bad.Index)
		err = safeio.Corruptf("the weight at row %d, column %d is %v", at/t.NE[0], at%t.NE[0], bad.Value)
	}
	return &safeio.Error{Op: "quantize", Tensor: t.Name, Off: -1, Err: err}
}
