package gguf

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/llmquant/quantize/formats/container"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// A plan is complete before any tensor exists: sizes follow from types and shapes, offsets from sizes. That is what lets a
// job preallocate its files, fill tensors in any order from many goroutines and resume after a crash at any byte.

// PlanOptions say where the tensors go.
type PlanOptions struct {
	Name      string // base name of the output, "model.gguf"; a split set replaces ".gguf" by "-00001-of-0000N.gguf"
	MaxBytes  int64  // of the padded tensors of one file, metadata not counted; 0: no limit. A larger tensor stands alone
	MaxCount  int    // tensors of one file; 0: no limit
	BareFirst bool   // the first file of a split set holds the metadata only
	KeepSplit bool   // one file per Tensor.Shard, as the source had them
}

// Plan lays out h: the exact header bytes and the final offset of every tensor, in one file or a split set. Everything
// fits one file unless a limit says otherwise; then the files follow llama-gguf-split: metadata in the first file only,
// split.* keys in all.
func Plan(h *Header, o PlanOptions) (*container.Plan, error) {
	align, err := h.Alignment()
	if err != nil {
		return nil, err
	}
	if err := checkNames(h); err != nil {
		return nil, err
	}
	groups := group(h.Tensors, o, align)
	name := filepath.Base(o.Name)
	p := &container.Plan{}
	if len(groups) == 1 {
		kv := h.KV.Clone()
		deleteSplit(&kv)
		return p, addFile(p, name, &kv, groups[0], align)
	}
	if len(groups) > maxShards {
		return nil, safeio.Limitf("%d files, a split set has at most %d; raise the size of a file", len(groups), maxShards)
	}
	prefix := strings.TrimSuffix(name, ".gguf")
	for i, g := range groups {
		kv := Metadata{}
		if i == 0 {
			kv = h.KV.Clone()
			deleteSplit(&kv)
		} else if v, ok := h.KV.Get("general.alignment"); ok { // every file is read on its own
			kv.Set("general.alignment", v)
		}
		setSplit(&kv, i, len(groups), len(h.Tensors), o.KeepSplit)
		if err := addFile(p, SplitName(prefix, i, len(groups)), &kv, g, align); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// deleteSplit removes what a file said about its place in a split set it no longer belongs to.
func deleteSplit(kv *Metadata) {
	for _, key := range []string{keySplitNo, keySplitTensors, keySplitCount} {
		kv.Delete(key)
	}
}

// setSplit appends the three keys in the order of the tool that is followed: llama-gguf-split puts the count last,
// llama-quantize --keep-split the number of tensors.
func setSplit(kv *Metadata, no, count, tensors int, keep bool) {
	kv.Set(keySplitNo, Uint16(uint16(no)))
	if keep {
		kv.Set(keySplitCount, Uint16(uint16(count)))
	}
	kv.Set(keySplitTensors, Int32(int32(tensors)))
	if !keep {
		kv.Set(keySplitCount, Uint16(uint16(count)))
	}
}

// group cuts the tensor list into files.
func group(ts []Tensor, o PlanOptions, align int64) [][]Tensor {
	if o.KeepSplit {
		return byShard(ts)
	}
	groups := [][]Tensor{nil}
	size := int64(0)
	for i := range ts {
		padded := padded(&ts[i], align)
		last := len(groups) - 1
		full := o.MaxCount > 0 && len(groups[last]) == o.MaxCount ||
			o.MaxBytes > 0 && len(groups[last]) > 0 && size+padded > o.MaxBytes
		if full {
			groups, size = append(groups, nil), 0
			last++
		}
		groups[last] = append(groups[last], ts[i])
		size += padded
	}
	if o.BareFirst && len(ts) > 0 {
		groups = append([][]Tensor{nil}, groups...)
	}
	return groups
}

// byShard groups the tensors by the file of the source they came from.
func byShard(ts []Tensor) [][]Tensor {
	n := 1
	for i := range ts {
		n = max(n, ts[i].Shard+1)
	}
	groups := make([][]Tensor, n)
	for i := range ts {
		groups[ts[i].Shard] = append(groups[ts[i].Shard], ts[i])
	}
	return groups
}

// padded returns the space of a tensor, 0 for one that setOffsets will refuse.
func padded(t *Tensor, align int64) int64 {
	c := *t
	if !c.measure() {
		return 0
	}
	n, _ := tensor.Align(c.Bytes, align)
	return n
}

// addFile lays out one file and appends it to the plan.
func addFile(p *container.Plan, name string, kv *Metadata, ts []Tensor, align int64) error {
	ts = append([]Tensor(nil), ts...)
	size, err := setOffsets(ts, align)
	if err != nil {
		return err
	}
	header := encode(kv, ts, align)
	total, ok := tensor.Add(int64(len(header)), size)
	if !ok {
		return safeio.Limitf("the size of %s overflows", name)
	}
	for i := range ts {
		p.Tensors = append(p.Tensors, container.Tensor{Name: ts[i].Name, File: len(p.Files),
			Offset: int64(len(header)) + ts[i].Offset, Bytes: ts[i].Bytes})
	}
	p.Files = append(p.Files, container.File{Name: name, Header: header, Size: total})
	return nil
}

// checkNames refuses what no reader would accept.
func checkNames(h *Header) error {
	seen := make(map[string]struct{}, len(h.Tensors))
	most := safeio.DefaultLimits().GGUFTensorName
	for i := range h.Tensors {
		t := &h.Tensors[i]
		err := checkName(t.Name, seen)
		if err == nil && len(t.Name) > most {
			err = safeio.Limitf("the tensor name is longer than the %d bytes GGUF allows", most)
		}
		if err != nil {
			return &safeio.Error{Op: "plan", Tensor: t.Name, Err: err}
		}
	}
	for key, v := range h.KV.All() {
		if v.kind == KindArray && v.elem == KindArray || !v.kind.valid() {
			return fmt.Errorf("gguf: key %q has a value that cannot be written", key)
		}
	}
	return nil
}
