package hf

import (
	"io/fs"
	"slices"

	"github.com/llmquant/quantize/formats/safeio"
)

// layout says which safetensors files hold the model.
type layout struct {
	shards  []string          // in order of name
	home    map[string]string // the index's weight_map; nil without an index
	skipped []string          // safetensors files that are not part of it
}

// choose decides on the files. Where loaders disagree about which files count, it fails.
func choose(root *safeio.Root, names []string, stale func(shards []string) bool, limits safeio.Limits) (*layout, error) {
	have := only(names, weights)
	if slices.Contains(names, indexName) {
		l, err := readIndex(root, limits)
		if err != nil {
			return nil, err
		}
		if !stale(l.shards) {
			return l, l.account(root, have)
		}
	}
	if len(have) == 0 {
		return nil, noWeights(root, names)
	}
	if slices.Contains(have, singleName) {
		return alone(root, have, singleName)
	}
	sets := map[string][]string{}
	var set string
	for _, name := range have {
		if s, _, _, ok := shardName(name); ok {
			sets[s] = append(sets[s], name)
			set = s
		}
	}
	switch {
	case len(sets) == 0 && len(have) == 1:
		return alone(root, have, have[0])
	case len(sets) == 0:
		return nil, fail(root, safeio.Corruptf("several weight files (%s) and no %s to say which belong together", some(have), indexName), "")
	case len(sets) > 1:
		return nil, fail(root, safeio.Corruptf("several sets of shards (%s) and no %s to say which is the model", some(have), indexName), "")
	}
	shards := sets[set]
	if _, _, of, _ := shardName(shards[0]); of != len(shards) {
		return nil, fail(root, safeio.Corruptf("%d of %d shards are there (%s) and there is no %s", len(shards), of, some(shards), indexName),
			"download the missing files")
	}
	return &layout{shards: shards, skipped: without(have, shards)}, nil
}

// alone is the layout of a single file; shards beside it would make it one of two models.
func alone(root *safeio.Root, have []string, name string) (*layout, error) {
	for _, other := range have {
		if _, _, _, ok := shardName(other); ok && other != name {
			return nil, fail(root, safeio.Corruptf("both %q and the shard %q are there and no %s says which is the model", name, other, indexName), "")
		}
	}
	return &layout{shards: []string{name}, skipped: without(have, []string{name})}, nil
}

// readIndex reads the index.
func readIndex(root *safeio.Root, limits safeio.Limits) (*layout, error) {
	data, err := root.ReadFile(indexName, limits.IndexJSON)
	if err != nil {
		return nil, err
	}
	l, err := parseIndex(data, limits)
	if err != nil {
		return nil, safeio.WithPath(err, root.Path(indexName))
	}
	return l, nil
}

// account looks at the files that an index does not name: another shard or a whole model among them makes it ambiguous
// which is meant, other files (adapters, the original's consolidated weights) are left alone.
func (l *layout) account(root *safeio.Root, have []string) error {
	for _, name := range without(have, l.shards) {
		if _, _, _, ok := shardName(name); ok || name == singleName {
			return fail(root, safeio.Corruptf("%q is there but %s does not name it", name, indexName), "remove the file, or the index, whichever is left over")
		}
		l.skipped = append(l.skipped, name)
	}
	return nil
}

// parseIndex reads weight_map: tensor names to plain file names.
func parseIndex(data []byte, limits safeio.Limits) (*layout, error) {
	root, err := safeio.ParseJSON(data)
	if err != nil {
		return nil, err
	}
	weightMap := root.Get("weight_map")
	if weightMap.Kind() != safeio.Object {
		return nil, safeio.Corruptf("weight_map is %s, not an object", weightMap.Kind())
	}
	if n := weightMap.Len(); n > limits.Tensors {
		return nil, safeio.Limitf("weight_map lists %d tensors, over the limit of %d", n, limits.Tensors)
	}
	l := &layout{home: make(map[string]string)}
	seen := map[string]string{}
	for name, v := range weightMap.Members() {
		file, err := v.Str()
		if err != nil {
			return nil, &safeio.Error{Op: "read", Tensor: name, Off: -1, Err: err}
		}
		known, ok := seen[file]
		if !ok {
			if err := safeio.CheckName(file); err != nil {
				return nil, &safeio.Error{Op: "read", Tensor: name, Off: -1, Err: err}
			}
			if classify(file) != weights {
				return nil, &safeio.Error{Op: "read", Tensor: name, Off: -1, Err: safeio.Corruptf("it is said to lie in %q, which is no safetensors file", file)}
			}
			if len(seen) == limits.Shards {
				return nil, safeio.Limitf("weight_map names more than %d files", limits.Shards)
			}
			known, seen[file] = file, file
			l.shards = append(l.shards, file)
		}
		l.home[name] = known
	}
	if len(l.shards) == 0 {
		return nil, safeio.Corruptf("weight_map is empty")
	}
	if err := safeio.CheckNames(l.shards); err != nil {
		return nil, err
	}
	slices.Sort(l.shards)
	return l, nil
}

// noWeights explains a directory without safetensors files.
func noWeights(root *safeio.Root, names []string) error {
	if p := only(names, pickle); len(p) > 0 {
		return fail(root, safeio.Unsupportedf("the weights are pickle files (%s); loading them executes code, so they are never opened", some(p)),
			"convert them once in a sandbox: transformers' save_pretrained(..., safe_serialization=True), or get the model's safetensors revision from the Hub")
	}
	if f := only(names, foreign); len(f) > 0 {
		return fail(root, safeio.Unsupportedf("no safetensors files here, only %s", some(f)), "name a .gguf file itself, or a directory with safetensors files")
	}
	return &safeio.Error{Op: "open", Path: root.Path("."), Off: -1, Hint: "name a directory that holds config.json and *.safetensors",
		Err: &fs.PathError{Op: "find", Path: "*.safetensors", Err: fs.ErrNotExist}}
}

func fail(root *safeio.Root, err error, hint string) error {
	return &safeio.Error{Op: "open", Path: root.Path("."), Off: -1, Hint: hint, Err: err}
}

// without returns the names that are not in remove.
func without(names, remove []string) []string {
	gone := make(map[string]bool, len(remove))
	for _, n := range remove {
		gone[n] = true
	}
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return gone[n] })
}
