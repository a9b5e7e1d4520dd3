package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/llmquant/quantize/formats/container"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// IndexName is the file that maps tensors to shards when there is more than one.
const IndexName = "model.safetensors.index.json"

// Namer names shard i (from 1) of n.
type Namer func(i, n int) string

// ModelName is the Namer of Transformers: model.safetensors, or model-00001-of-00002.safetensors and so on.
func ModelName(i, n int) string {
	if n == 1 {
		return "model.safetensors"
	}
	return fmt.Sprintf("model-%05d-of-%05d.safetensors", i, n)
}

// Plan lays out the tensors in files of at most maxShard data bytes (0: one file); a larger tensor gets a file of its own.
// Tensors are dealt to files in the given order. Inside a file they lie as the reference writes them (wide elements first,
// then by name: every tensor is aligned to its element size) and the header is the reference's byte for byte.
// The index is the content of IndexName, nil for a single file. A nil Namer is ModelName.
func Plan(infos []tensor.Info, maxShard int64, name Namer) (plan *container.Plan, index []byte, err error) {
	if name == nil {
		name = ModelName
	}
	shards, err := deal(infos, maxShard)
	if err != nil {
		return nil, nil, err
	}
	plan = &container.Plan{}
	for i, shard := range shards {
		file := container.File{Name: name(i+1, len(shards))}
		sortReference(shard)
		if file.Header, err = Header(shard); err != nil {
			return nil, nil, err
		}
		at := int64(len(file.Header))
		for _, t := range shard {
			n, _ := t.Bytes() // deal has checked it
			plan.Tensors = append(plan.Tensors, container.Tensor{Name: t.Name, File: i, Offset: at, Bytes: n})
			at += n
		}
		file.Size = at
		plan.Files = append(plan.Files, file)
	}
	if len(shards) > 1 {
		index, err = indexFile(plan)
	}
	return plan, index, err
}

// deal checks the tensors and cuts them into shards.
func deal(infos []tensor.Info, maxShard int64) ([][]tensor.Info, error) {
	seen := make(map[string]bool, len(infos))
	var shards [][]tensor.Info
	var open, total int64 // bytes of the last shard, of all
	for i, t := range infos {
		n, ok := t.Bytes()
		if total, ok = addIf(ok, total, n); !ok {
			return nil, wrap("plan", "", t.Name, safeio.Corruptf("the size of %s %v overflows", t.DType, t.Shape))
		}
		if seen[t.Name] || t.Name == "" || t.Name == metadataKey || !utf8.ValidString(t.Name) {
			return nil, wrap("plan", "", t.Name, safeio.Corruptf("the name is empty, reserved, not UTF-8 or used twice"))
		}
		seen[t.Name] = true
		if i == 0 || maxShard > 0 && open > 0 && open+n > maxShard {
			shards, open = append(shards, nil), 0
		}
		shards[len(shards)-1] = append(shards[len(shards)-1], t)
		open += n
	}
	if len(shards) == 0 {
		shards = [][]tensor.Info{nil} // a model without tensors is still one file
	}
	return shards, nil
}

func addIf(ok bool, a, b int64) (int64, bool) {
	if !ok {
		return 0, false
	}
	return tensor.Add(a, b)
}

// sortReference orders tensors as the reference implementation serializes them: element types from the widest down
// (the order of tensor.DType is the reference's), equal types by name.
func sortReference(infos []tensor.Info) {
	slices.SortFunc(infos, func(a, b tensor.Info) int {
		return cmp.Or(cmp.Compare(b.DType, a.DType), cmp.Compare(a.Name, b.Name))
	})
}

// headerAlign is the multiple to which the reference pads header and length together with spaces.
const headerAlign = 8

// Header renders the head of a file, length included, for tensors that follow it contiguously in this order.
func Header(infos []tensor.Info) ([]byte, error) {
	var b bytes.Buffer
	b.Write(make([]byte, lengthBytes))
	b.WriteString(`{"` + metadataKey + `":{"format":"pt"}`) // some loaders refuse a file without it
	var at int64
	for _, t := range infos {
		n, ok := t.Bytes()
		if !ok {
			return nil, wrap("plan", "", t.Name, safeio.Corruptf("the size of %s %v overflows", t.DType, t.Shape))
		}
		shape := make([]byte, 0, 32)
		for i, d := range t.Shape {
			if i > 0 {
				shape = append(shape, ',')
			}
			shape = strconv.AppendInt(shape, d, 10)
		}
		fmt.Fprintf(&b, `,%s:{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}`, safeio.Quote(t.Name), t.DType, shape, at, at+n)
		at += n
	}
	b.WriteByte('}')
	for b.Len()%headerAlign != 0 {
		b.WriteByte(' ')
	}
	if most := safeio.DefaultLimits().SafetensorsHeader; int64(b.Len()-lengthBytes) > most {
		return nil, wrap("plan", "", "", safeio.Limitf("a header of %d bytes is over the format's limit of %d; use smaller shards", b.Len()-lengthBytes, most))
	}
	binary.LittleEndian.PutUint64(b.Bytes(), uint64(b.Len()-lengthBytes))
	return b.Bytes(), nil
}

// indexFile renders the index as Transformers does: two spaces, sorted names, total_size without headers.
func indexFile(plan *container.Plan) ([]byte, error) {
	var index struct {
		Metadata struct {
			TotalSize int64 `json:"total_size"`
		} `json:"metadata"`
		WeightMap map[string]string `json:"weight_map"`
	}
	index.WeightMap = make(map[string]string, len(plan.Tensors))
	for _, t := range plan.Tensors {
		index.WeightMap[t.Name] = plan.Files[t.File].Name
		index.Metadata.TotalSize += t.Bytes
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(&index)
	return b.Bytes(), err
}
