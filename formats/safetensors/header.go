package safetensors

import (
	"cmp"
	"slices"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// metadataKey is the one member of the header that is not a tensor.
const metadataKey = "__metadata__"

// entry is a parsed header line: the tensor and its data_offsets, relative to the data.
type entry struct {
	info       tensor.Info
	begin, end int64
}

// parse fills the tensor tables from the header text.
func (f *File) parse(header []byte, limits safeio.Limits) error {
	if len(header) == 0 || header[0] != '{' {
		return safeio.Corruptf("the header is not a JSON object")
	}
	root, err := safeio.ParseJSON(header)
	if err != nil {
		return err
	}
	count := root.Len()
	if root.Get(metadataKey).Exists() {
		count--
	}
	if count > limits.Tensors {
		return safeio.Limitf("the header lists %d tensors, over the limit of %d", count, limits.Tensors)
	}
	entries := make([]entry, 0, count)
	for name, v := range root.Members() {
		if name == metadataKey {
			if err := checkMetadata(v); err != nil {
				return err
			}
			f.metadata = v
			continue
		}
		e, err := parseEntry(name, v, limits)
		if err != nil {
			return wrap("open", f.path, name, err)
		}
		entries = append(entries, e)
	}
	return f.place(entries)
}

// place sorts the entries and proves that they cover the data exactly.
func (f *File) place(entries []entry) error {
	// Of tensors that share a begin all but the last are empty; the order of the header decides between those.
	slices.SortStableFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	f.infos = make([]tensor.Info, len(entries))
	f.offsets = make([]int64, len(entries))
	f.index = make(map[string]int32, len(entries))
	var at int64
	for i, e := range entries {
		switch {
		case e.begin < at:
			return wrap("open", f.path, e.info.Name, safeio.Corruptf("it begins at data byte %d inside the tensor %q, which ends at %d", e.begin, entries[i-1].info.Name, at))
		case e.begin > at:
			return wrap("open", f.path, e.info.Name, safeio.Corruptf("data bytes %d to %d in front of it belong to no tensor", at, e.begin))
		}
		f.infos[i], f.offsets[i], f.index[e.info.Name] = e.info, f.data+e.begin, int32(i)
		at = e.end
	}
	if have := f.size - f.data; at != have {
		return safeio.Corruptf("the tensors end at data byte %d, the file at %d", at, have)
	}
	return nil
}

// parseEntry reads one tensor description: exactly the three members, sizes that agree with each other.
func parseEntry(name string, v safeio.Value, limits safeio.Limits) (entry, error) {
	e := entry{info: tensor.Info{Name: name}}
	switch {
	case name == "":
		return e, safeio.Corruptf("a tensor has no name")
	case len(name) > limits.TensorName:
		return e, safeio.Limitf("its name has %d bytes, over the limit of %d", len(name), limits.TensorName)
	case v.Kind() != safeio.Object:
		return e, safeio.Corruptf("its description is %s, not an object", v.Kind())
	}
	seen := 0
	for key, x := range v.Members() {
		var err error
		switch key {
		case "dtype":
			e.info.DType, err = parseDType(x)
		case "shape":
			e.info.Shape, err = parseShape(x, limits.Rank)
		case "data_offsets":
			e.begin, e.end, err = parseOffsets(x)
		default:
			err = safeio.Corruptf("its description has an unknown key %q", key)
		}
		if err != nil {
			return e, err
		}
		seen++
	}
	if seen != 3 {
		return e, safeio.Corruptf("its description lacks dtype, shape or data_offsets")
	}
	bytes, ok := e.info.Bytes()
	if !ok {
		return e, safeio.Corruptf("the size of shape %v overflows", e.info.Shape)
	}
	if bytes != e.end-e.begin {
		return e, safeio.Corruptf("%s of shape %v has %d bytes, data_offsets say %d", e.info.DType, e.info.Shape, bytes, e.end-e.begin)
	}
	return e, nil
}

// foreign lists element types of the reference that have no use in this project: legal, but not readable here.
var foreign = []string{"F4", "F6_E2M3", "F6_E3M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}

func parseDType(v safeio.Value) (tensor.DType, error) {
	name, err := v.Str()
	if err != nil {
		return tensor.Invalid, safeio.Corruptf("dtype: %v", err)
	}
	d, ok := tensor.ParseDType(name)
	switch {
	case ok:
		return d, nil
	case slices.Contains(foreign, name):
		return d, safeio.Unsupportedf("element type %s is not supported", name)
	}
	return d, safeio.Corruptf("unknown element type %q", name)
}

func parseShape(v safeio.Value, most int) ([]int64, error) {
	if v.Kind() != safeio.Array {
		return nil, safeio.Corruptf("shape is %s, not an array", v.Kind())
	}
	rank := v.Len()
	if rank > most {
		return nil, safeio.Limitf("%d dimensions are over the limit of %d", rank, most)
	}
	shape := make([]int64, 0, rank)
	for item := range v.Items() {
		d, err := item.Int()
		if err != nil {
			return nil, safeio.Corruptf("shape: %v", err)
		}
		if d < 0 {
			return nil, safeio.Corruptf("shape: dimension %d is negative", d)
		}
		shape = append(shape, d)
	}
	return shape, nil
}

func parseOffsets(v safeio.Value) (begin, end int64, err error) {
	if v.Kind() != safeio.Array || v.Len() != 2 {
		return 0, 0, safeio.Corruptf("data_offsets is not an array of two numbers")
	}
	var at [2]int64
	i := 0
	for item := range v.Items() {
		if at[i], err = item.Int(); err != nil {
			return 0, 0, safeio.Corruptf("data_offsets: %v", err)
		}
		i++
	}
	if at[0] < 0 || at[1] < at[0] {
		return 0, 0, safeio.Corruptf("data_offsets [%d, %d] are not in order", at[0], at[1])
	}
	return at[0], at[1], nil
}

func checkMetadata(v safeio.Value) error {
	if v.Kind() != safeio.Object {
		return safeio.Corruptf("%s is %s, not an object", metadataKey, v.Kind())
	}
	for key, x := range v.Members() {
		if x.Kind() != safeio.String {
			return safeio.Corruptf("%s: the value of %q is not a string", metadataKey, key)
		}
	}
	return nil
}
