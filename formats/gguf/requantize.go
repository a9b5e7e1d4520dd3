package gguf

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// The metadata of a requantized file, in llama-quantize's order: the source's pairs without split keys; quantization
// version and file type, moved to the end because ggml's setters remove and append; overrides as given; the facts about the
// importance matrix. Tensors are sorted anew. Both orders matter: equal input must give equal bytes, also to those of
// the reference, so that a file can be checked by its hash alone.

// BlockNumber returns N of a name that starts with "blk.N.".
func BlockNumber(name string) (n int, ok bool) {
	rest, ok := strings.CutPrefix(name, "blk.")
	if !ok {
		return 0, false
	}
	digits, _, ok := strings.Cut(rest, ".")
	if !ok || digits == "" || len(digits) > 9 || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil
}

// QuantizeOrder returns the indexes of tensors in the order in which llama-quantize processes and writes them: by block,
// tensors outside blocks first, then by name; with keepSplit as they lie in their files.
func QuantizeOrder(tensors []Tensor, keepSplit bool) []int {
	order := make([]int, len(tensors))
	for i := range order {
		order[i] = i
	}
	if keepSplit {
		slices.SortStableFunc(order, func(a, b int) int {
			return cmp.Or(cmp.Compare(tensors[a].Shard, tensors[b].Shard), cmp.Compare(tensors[a].Offset, tensors[b].Offset))
		})
		return order
	}
	block := func(i int) int {
		if n, ok := BlockNumber(tensors[i].Name); ok {
			return n
		}
		return -1
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(block(a), block(b)), cmp.Compare(tensors[a].Name, tensors[b].Name))
	})
	return order
}

// ImatrixFacts are what a quantized file records about the importance matrix it was made with.
type ImatrixFacts struct {
	File    string // path as given by the user
	Dataset string // name of the first calibration text, "" when unknown
	Entries int    // after any filter
	Chunks  int    // 0 when unknown
}

// RequantizeOptions describe the metadata of a file whose tensors change type.
type RequantizeOptions struct {
	FileType  uint32 // general.file_type
	KeepType  bool   // tensors are copied: the source's general.file_type stays
	Imatrix   *ImatrixFacts
	Overrides []KV // set last but for the facts about the importance matrix
	KeepSplit bool
}

// Requantize returns the header of the file that llama-quantize would write from h, before types are chosen: tensors in
// the order of QuantizeOrder with their source types, trailing sizes of 1 dropped, metadata in its order. The caller
// sets the tensors' types and plans.
//
// Differs from the reference: general.alignment is honoured; the reference copies the key and lays the file out with 32.
func Requantize(h *Header, o RequantizeOptions) *Header {
	out := &Header{KV: h.KV.Clone()}
	for _, i := range QuantizeOrder(h.Tensors, o.KeepSplit) {
		t := h.Tensors[i]
		for t.Dims > 1 && t.NE[t.Dims-1] == 1 {
			t.Dims--
		}
		out.Tensors = append(out.Tensors, t)
	}
	kv := &out.KV
	kv.Move("general.quantization_version", Uint32(quantizeVersion))
	kv.Move("general.file_type", Uint32(fileTypeOf(h, o)))
	deleteSplit(kv)
	for _, p := range o.Overrides {
		kv.Move(p.Key, p.Value)
	}
	if im := o.Imatrix; im != nil {
		kv.Move("quantize.imatrix.file", String(cut(im.File)))
		if im.Dataset != "" {
			kv.Move("quantize.imatrix.dataset", String(cut(im.Dataset)))
		}
		kv.Move("quantize.imatrix.entries_count", Uint32(uint32(im.Entries)))
		if im.Chunks > 0 {
			kv.Move("quantize.imatrix.chunks_count", Uint32(uint32(im.Chunks)))
		}
	}
	return out
}

// cut shortens a string to what llama.cpp's override buffer holds.
func cut(s string) string {
	const most = 127
	if len(s) > most {
		return s[:most]
	}
	return s
}

// guessedFileType marks a file type that was derived from the tensors instead of being declared.
const guessedFileType = 1024

// fileTypeOf returns the value of general.file_type for a copy or a requantization.
func fileTypeOf(h *Header, o RequantizeOptions) uint32 {
	if !o.KeepType {
		return o.FileType
	}
	if n, err := h.KV.Int("general.file_type", 0, 1<<31); err == nil {
		return uint32(n)
	}
	return guessedFileType | guessFileType(h.Tensors)
}

// plainFileTypes maps a tensor type to the file type in which it is the common one.
var plainFileTypes = map[Type]uint32{
	F32: 0, F16: 1, BF16: 32, Q4_0: 2, Q4_1: 3, Q5_0: 8, Q5_1: 9, Q8_0: 7, Q2_K: 10, Q3_K: 12, Q4_K: 15, Q5_K: 17, Q6_K: 18,
	IQ2_XXS: 19, IQ2_XS: 20, IQ2_S: 28, IQ3_XXS: 23, IQ1_S: 24, IQ1_M: 31, IQ4_NL: 25, IQ4_XS: 30, IQ3_S: 26,
	TQ1_0: 36, TQ2_0: 37, MXFP4: 38, NVFP4: 39, Q1_0: 40, Q2_0: 41,
}

// guessFileType finds the commonest type among the tensors, the first to reach the highest count.
func guessFileType(ts []Tensor) uint32 {
	count := make(map[Type]int)
	best, most := F32, 0
	for i := range ts {
		if count[ts[i].Type]++; count[ts[i].Type] > most {
			best, most = ts[i].Type, count[ts[i].Type]
		}
	}
	return plainFileTypes[best]
}
