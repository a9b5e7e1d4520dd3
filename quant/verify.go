package quant

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// VerifyResult is the outcome of Verify; its JSON form is the contract of `quantize verify --json`.
type VerifyResult struct {
	Schema  string         `json:"schema"` // "quantize-verify/1"
	Tensors []VerifyTensor `json:"tensors"`
	OK      bool           `json:"ok"`
}

// VerifyTensor compares one tensor of an artifact with the model it was made from.
type VerifyTensor struct {
	Name        string  `json:"name"`
	Status      string  `json:"status"` // exact, quantized, kept (dense, values differ: folded or converted), missing, extra
	RelError    float64 `json:"rel_error"`
	MaxAbsError float64 `json:"max_abs_error"`
}

// Verify compares an artifact, read through its own reader, with the model it was made from. Scales that a transform
// folded from one tensor into another are recognised by comparing producers, and taken out again. Both sources must
// read dense tensors; scheme tells how out stores a tensor that is quantized (formats.StoredScheme), which decides how
// far it may be off.
func Verify(ctx context.Context, out, base tensor.Source, m *arch.Model, scheme func(name string) (packing.Scheme, bool)) (*VerifyResult, error) {
	v := &verifier{out: out, base: base, scheme: scheme, scales: map[string][]float32{}, norms: map[string]*arch.Pair{}, noise: map[string]float64{}}
	if err := v.findFolds(m); err != nil {
		return nil, err
	}
	res := &VerifyResult{Schema: "quantize-verify/1", OK: true}
	for _, info := range base.Tensors() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		row, ok, err := v.compare(info, info)
		if err != nil {
			return nil, err
		}
		res.Tensors = append(res.Tensors, row)
		res.OK = res.OK && ok
	}
	for _, info := range out.Tensors() {
		if _, ok := base.Lookup(info.Name); ok {
			continue
		}
		row, ok, err := v.extra(info, m)
		if err != nil {
			return nil, err
		}
		res.Tensors = append(res.Tensors, row)
		res.OK = res.OK && ok
	}
	for _, t := range res.Tensors {
		if t.Status == "missing" || t.Status == "extra" {
			res.OK = false
		}
	}
	return res, nil
}

// verifier holds, per tensor, the factors that a transform folded in: columns of a reader, rows of a producer.
type verifier struct {
	out, base tensor.Source
	scheme    func(string) (packing.Scheme, bool)
	scales    map[string][]float32  // columns of this weight were multiplied by these
	rows      map[string][]float32  // rows of this tensor were divided by these
	norms     map[string]*arch.Pair // norms that changed, with their readers
	noise     map[string]float64    // how far the rows' factors may be from the truth, by bias
}

// findFolds recovers the scales of every pair from its producer.
func (v *verifier) findFolds(m *arch.Model) error {
	v.rows = map[string][]float32{}
	for i := range m.Blocks {
		pairs := m.Blocks[i].AWQPairs()
		for j := range pairs {
			if err := v.findFold(&pairs[j]); err != nil {
				return err
			}
		}
	}
	head := m.Head
	if head == m.Embed {
		head = headName + ".weight" // where the artifact has one
	}
	if _, ok := v.out.Lookup(head); !ok {
		return nil
	}
	lin := &arch.Linear{Name: strings.TrimSuffix(head, ".weight"), Role: arch.RoleHead, Out: m.Vocab, In: m.Hidden, Expert: -1}
	return v.findFold(&arch.Pair{Norm: m.FinalNorm, Linears: []*arch.Linear{lin}, Shared: 1})
}

func (v *verifier) findFold(p *arch.Pair) error {
	s := make([]float32, p.Width())
	if p.Norm != "" {
		was, is, ok, err := v.both(p.Norm)
		if err != nil || !ok || len(was) != len(s) {
			return err
		}
		for k := range s {
			if (is[k] == 0) != (was[k] == 0) {
				return nil // no scale does that: the norm's own row tells
			}
		}
		for k := range s {
			if s[k] = was[k] / is[k]; is[k] == 0 {
				s[k] = 1
			}
			if is[k] != was[k] {
				v.norms[p.Norm] = p
			}
		}
		v.rows[p.Norm] = s
	} else {
		was, is, ok, err := v.both(p.Prev.Weight())
		if err != nil || !ok || len(was) != len(is) {
			return err
		}
		// The producer is rounded itself, so its rows give the scale only up to its own error: least squares per row,
		// against its columns' own scales when it is a reader of another pair.
		columns, row := v.scales[p.Prev.Weight()], make([]float32, p.Prev.Out)
		rounding := &slopes{cross: make([]float64, p.Prev.Out), was: make([]float64, p.Prev.Out), is: make([]float64, p.Prev.Out), rows: p.Prev.In}
		for n := range row {
			row[n] = 1 / rounding.row(n, was[n*p.Prev.In:(n+1)*p.Prev.In], is[n*p.Prev.In:(n+1)*p.Prev.In], columns)
		}
		for k := range s {
			s[k] = row[p.PrevRow(k)]
		}
		v.rows[p.Prev.Weight()] = row
		if p.Prev.Bias {
			v.rows[p.Prev.Name+".bias"], v.noise[p.Prev.Name+".bias"] = row, rounding.noise()
		}
	}
	for _, lin := range p.Linears {
		v.scales[lin.Weight()] = s
	}
	if p.Router != nil {
		v.scales[p.Router.Weight()] = s
	}
	return nil
}

// both reads a tensor of both models.
func (v *verifier) both(name string) (was, is []float32, ok bool, err error) {
	b, inBase := v.base.Lookup(name)
	o, inOut := v.out.Lookup(name)
	if !inBase || !inOut || !b.DType.IsFloat() || !o.DType.IsFloat() {
		return nil, nil, false, nil
	}
	if was, err = floats(v.base, b); err == nil {
		is, err = floats(v.out, o)
	}
	return was, is, err == nil, err
}

func floats(src tensor.Source, info tensor.Info) ([]float32, error) {
	raw, err := bytesOf(src, info)
	if err != nil {
		return nil, err
	}
	values := make([]float32, int64(len(raw))/info.DType.Size())
	return values, tensor.ToFloat32(values, info.DType, raw)
}

// extra judges a tensor that the base does not have: a head of its own beside a tied embedding stands for the embedding,
// everything else should not be there.
func (v *verifier) extra(info tensor.Info, m *arch.Model) (row VerifyTensor, ok bool, err error) {
	embed, tied := v.base.Lookup(m.Embed)
	if info.Name != headName+".weight" || m.Head != m.Embed || !tied {
		return VerifyTensor{Name: info.Name, Status: "extra"}, false, nil
	}
	head := embed
	head.Name = info.Name
	return v.compare(head, embed)
}

// compare judges one tensor of the artifact, which should be info, against one of the base.
func (v *verifier) compare(info, base tensor.Info) (row VerifyTensor, ok bool, err error) {
	row.Name = info.Name
	got, found := v.out.Lookup(info.Name)
	if !found {
		row.Status = "missing"
		return row, false, nil
	}
	if !got.SameShape(info.Shape...) {
		return row, false, &safeio.Error{Op: "verify", Tensor: info.Name, Off: -1, Err: &wrongShape{info.Shape, got.Shape}}
	}
	if !info.DType.IsFloat() {
		row, err = v.compareBytes(row, base, got)
		return row, row.RelError == 0, err
	}
	was, err := floats(v.base, base)
	if err != nil {
		return row, false, err
	}
	is, err := floats(v.out, got)
	if err != nil {
		return row, false, err
	}
	row.Status = "exact"
	s, quantized := v.scheme(info.Name)
	ok = true
	if quantized {
		row.Status = "quantized"
		ok = v.foldedOK(info, s, was, is)
	}
	v.fold(info, is, true)
	row.RelError = relError(is, was)
	for i, w := range was {
		row.MaxAbsError = math.Max(row.MaxAbsError, math.Abs(float64(is[i])-float64(w)))
	}
	limit := floatLimit + v.noise[info.Name]
	if pair := v.norms[info.Name]; pair != nil {
		var off float64
		if off, limit, err = v.unexplained(pair); err != nil {
			return row, false, err
		}
		row.RelError = max(row.RelError, off) // a channel that was lost is not one that was folded
	}
	if !quantized {
		ok = row.RelError <= limit
	}
	if row.Status == "exact" && (row.MaxAbsError > 0 || row.RelError > 0 || got.DType != info.DType) {
		row.Status = "kept"
	}
	return row, ok, nil
}

// fold multiplies the folded scales into a tensor's values, or with out takes them out.
func (v *verifier) fold(info tensor.Info, values []float32, out bool) {
	columns, rows := v.scales[info.Name], v.rows[info.Name]
	width := int(info.Shape[len(info.Shape)-1])
	if len(info.Shape) == 1 {
		width = 1
	}
	if len(columns) != width {
		columns = nil
	}
	if len(rows)*width != len(values) {
		rows = nil
	}
	for i := range values {
		f := float32(1)
		if columns != nil {
			f = columns[i%width]
		}
		if rows != nil {
			f /= rows[i/width]
		}
		if out {
			f = 1 / f
		}
		values[i] *= f
	}
}

func (v *verifier) compareBytes(row VerifyTensor, info, got tensor.Info) (VerifyTensor, error) {
	was, err := bytesOf(v.base, info)
	if err != nil {
		return row, err
	}
	is, err := bytesOf(v.out, got)
	if err != nil {
		return row, err
	}
	row.Status = "exact"
	if string(was) != string(is) || got.DType != info.DType {
		row.Status, row.RelError = "kept", 1
	}
	return row, nil
}

// wrongShape is a tensor of another shape than the base's, of the class of failed verifications.
type wrongShape struct{ want, got []int64 }

func (w *wrongShape) Error() string { return fmt.Sprintf("has shape %v, the base %v", w.got, w.want) }
func (w *wrongShape) Unwrap() error { return safeio.ErrVerify }
