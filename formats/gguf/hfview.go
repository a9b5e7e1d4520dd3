package gguf

import (
	"encoding/binary"
	"math"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/quant/grid/ggml"
)

// The view computes nothing when it is opened: it maps every Hugging Face name to a tensor, a matrix within it and a row
// order. Reading then goes through three cases, from cheap to dear: plain floats in order are the file's own bytes;
// plain floats of permuted heads are picked row by row; block formats are decoded row by row. No case holds more than one
// head or one buffer in memory.

// view is a file in Hugging Face names and row order. Plain float tensors keep their type; block formats read as F32.
type view struct {
	f      *File
	places []place
	infos  []tensor.Info
	index  map[string]int
}

// newView indexes the places. Two tensors for one name would let a reader choose, so they are refused.
func newView(f *File, places []place) (*view, error) {
	v := &view{f: f, places: places, index: make(map[string]int, len(places))}
	for i, p := range places {
		if _, twice := v.index[p.info.Name]; twice {
			return nil, &safeio.Error{Op: "read", Path: f.path, Tensor: p.t.Name, Off: -1, Err: safeio.Corruptf("two tensors stand for %q", p.info.Name)}
		}
		v.index[p.info.Name] = i
		v.infos = append(v.infos, p.info)
	}
	return v, nil
}

// Tensors lists the tensors in file order.
func (v *view) Tensors() []tensor.Info { return v.infos }

// Lookup finds a tensor by its Hugging Face name.
func (v *view) Lookup(name string) (tensor.Info, bool) {
	if i, ok := v.index[name]; ok {
		return v.infos[i], true
	}
	return tensor.Info{}, false
}

// Place returns the base name of the file that stores a tensor, and where its stored bytes lie: those of one matrix for
// an expert.
func (v *view) Place(name string) (file string, offset, bytes int64, ok bool) {
	i, ok := v.index[name]
	if !ok {
		return "", 0, 0, false
	}
	p := &v.places[i]
	s := &v.f.shards[p.t.Shard]
	bytes = p.t.Bytes
	if n := p.t.NE[2]; p.t.Dims == 3 && n > 0 {
		bytes /= n
	}
	return s.name, s.data + p.t.Offset + p.matrix*bytes, bytes, true
}

// StoredType returns the type in which the file stores a tensor.
func (v *view) StoredType(name string) (Type, bool) {
	i, ok := v.index[name]
	if !ok {
		return 0, false
	}
	return v.places[i].t.Type, true
}

// ReadTensor fills dst from byte off of the tensor as the view shows it: decoded, in Hugging Face row order.
func (v *view) ReadTensor(name string, dst []byte, off int64) error {
	i, ok := v.index[name]
	if !ok {
		return &safeio.Error{Op: "read", Path: v.f.path, Tensor: name, Off: -1, Err: safeio.Corruptf("the model has no such tensor")}
	}
	p := &v.places[i]
	total, ok := v.infos[i].Bytes()
	if !ok || off < 0 || off > total || int64(len(dst)) > total-off {
		return &safeio.Error{Op: "read", Path: v.f.path, Tensor: name, Off: -1, Err: safeio.Corruptf("bytes %d … %d lie outside the tensor's %d", off, off+int64(len(dst)), total)}
	}
	if err := v.read(p, dst, off); err != nil {
		return safeio.WithPath(err, v.f.path)
	}
	return nil
}

// rows describes a tensor as units that move as a whole: rows of a matrix, elements of a permuted vector.
type rows struct {
	count  int64 // units
	stored int64 // bytes of a unit in the file
	shown  int64 // bytes of a unit in the view
	group  int64 // units that are read together: those of a head, or as many as fit the buffer
	start  int64 // of unit 0 within the tensor's data
}

// viewBuffer is about how much is read at once.
const viewBuffer = 256 << 10

// rows lays out the units of a tensor. A permuted tensor is read head by head: its rows leave a head in no other order than
// they entered it, so a head is the least that must be in memory.
func (p *place) rows() rows {
	t := p.t
	r := rows{count: t.NE[1], shown: t.NE[0] * p.info.DType.Size()}
	r.stored, _ = t.Type.RowBytes(t.NE[0]) // checked when the file was opened
	r.start = p.matrix * t.NE[1] * r.stored
	if p.heads > 0 {
		if t.Dims == 1 {
			r = rows{count: t.NE[0], stored: t.Type.BlockBytes(), shown: p.info.DType.Size()}
		}
		r.group = r.count / int64(p.heads)
		return r
	}
	r.group = max(1, viewBuffer/max(1, r.stored))
	return r
}

// read serves a range of the shown bytes. Ranges need not start at rows: safetensors writers copy in fixed chunks.
func (v *view) read(p *place, dst []byte, off int64) error {
	r := p.rows()
	plain := p.t.Type.DType() != tensor.Invalid
	if plain && p.heads == 0 && !p.narrow {
		return v.f.ReadAt(p.t, dst, r.start+off)
	}
	if r.shown == 0 {
		return nil
	}
	d := decoder{to: p.info.DType, plain: plain && !p.narrow, shown: make([]byte, r.shown), row: make([]float32, r.shown/p.info.DType.Size())}
	if !d.plain {
		var ok bool
		if d.grid, ok = ggml.ByID(uint32(p.t.Type)); !ok {
			return &safeio.Error{Op: "read", Tensor: p.t.Name, Off: -1, Err: safeio.Unsupportedf("there is no decoder for %s", p.t.Type)}
		}
	}
	var buf []byte
	for len(dst) > 0 {
		unit := off / r.shown
		low := unit / r.group * r.group
		high := min(low+r.group, r.count)
		if p.heads == 0 { // only what is asked for
			low = unit
			high = min(high, (off+int64(len(dst))+r.shown-1)/r.shown)
		}
		if need := (high - low) * r.stored; int64(cap(buf)) < need {
			buf = make([]byte, need)
		}
		buf = buf[:(high-low)*r.stored]
		if err := v.f.ReadAt(p.t, buf, r.start+low*r.stored); err != nil {
			return err
		}
		for ; unit < high && len(dst) > 0; unit++ {
			at := unit - low
			if p.heads > 0 {
				at = deinterleave(unit%r.group, r.group)
			}
			n := copy(dst, d.unit(buf[at*r.stored:][:r.stored])[off-unit*r.shown:])
			dst, off = dst[n:], off+int64(n)
		}
	}
	return nil
}

// decoder turns stored units into what the view shows.
type decoder struct {
	plain bool // shown as stored
	grid  *ggml.Type
	to    tensor.DType
	row   []float32
	shown []byte
}

// unit returns the shown bytes of one stored unit, valid until the next call.
func (d *decoder) unit(stored []byte) []byte {
	if d.plain {
		return stored
	}
	d.grid.DecodeRow(d.row, stored)
	if d.to == tensor.F32 {
		for i, x := range d.row {
			binary.LittleEndian.PutUint32(d.shown[4*i:], math.Float32bits(x))
		}
		return d.shown
	}
	narrow := tensor.F32ToBF16
	if d.to == tensor.F16 {
		narrow = tensor.F32ToF16
	}
	for i, x := range d.row {
		binary.LittleEndian.PutUint16(d.shown[2*i:], narrow(x))
	}
	return d.shown
}
