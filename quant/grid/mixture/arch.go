package mixture

import (
	"github.com/llmquant/quantize/formats/gguf"
)

// Arch holds the facts about a model that the rules use.
type Arch struct {
	Name    string // general.architecture
	Blocks  int    // block_count, next-token-prediction layers included, before any pruning
	NextN   int    // next-token-prediction layers among them
	Heads   int    // of layer 0
	KVHeads int    // of layer 0
	Experts int    // expert_count, 0 for dense models
}

// large lists the models whose grouped attention values get more bits because they are few.
var large = [...]struct {
	name    string
	layers  int
	grouped bool // only with fewer key-value heads than heads
}{
	{"llama", 80, true}, {"qwen2", 80, false}, {"deci", 80, false}, {"olmo", 80, false}, {"jais2", 68, false},
}

// Large reports whether the model is of the 70B class.
func (a *Arch) Large() bool {
	for _, l := range large {
		if a.Name == l.name && a.Blocks-a.NextN == l.layers {
			return !l.grouped || a.Heads != a.KVHeads
		}
	}
	return false
}

// GQA returns the number of heads that share a key-value head, 0 when the model has none.
func (a *Arch) GQA() int {
	if a.KVHeads == 0 {
		return 0
	}
	return a.Heads / a.KVHeads
}

// ArchOf reads the facts from the metadata of a file.
func ArchOf(kv *gguf.Metadata) (Arch, error) {
	name, err := kv.String("general.architecture")
	if err != nil {
		return Arch{}, err
	}
	a := Arch{Name: name}
	for _, f := range []struct {
		key  string
		to   *int
		need bool
	}{
		{"block_count", &a.Blocks, true},
		{"nextn_predict_layers", &a.NextN, false},
		{"attention.head_count", &a.Heads, false},
		{"attention.head_count_kv", &a.KVHeads, false},
		{"expert_count", &a.Experts, false},
	} {
		n, ok, err := firstUint(kv, name+"."+f.key)
		if err != nil {
			return Arch{}, err
		}
		if !ok && f.need {
			return Arch{}, gguf.MissingKey(name + "." + f.key)
		}
		*f.to = int(n)
	}
	if !kv.Has(name + ".attention.head_count_kv") { // absent means one per head
		a.KVHeads = a.Heads
	}
	return a, nil
}

// firstUint reads a number or, for models whose layers differ, the first entry of a list.
func firstUint(kv *gguf.Metadata, key string) (n int64, ok bool, err error) {
	v, ok := kv.Get(key)
	if !ok {
		return 0, false, nil
	}
	if list, err := v.Ints(); err == nil {
		if len(list) == 0 {
			return 0, false, nil
		}
		return list[0], true, nil
	}
	n, err = kv.Int(key, 0, 1<<20)
	return n, true, err
}
