package exl2

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
)

// foreignParts lists what ExLlamaV2 measures together, by the last part of a key: the names of the linears in an option
// and where they lie below the module.
var foreignParts = map[string][]string{
	"self_attn":        {"q_proj", "k_proj", "v_proj", "o_proj"},
	"mlp":              {"gate_proj", "up_proj", "down_proj"},
	"block_sparse_moe": {"w1", "w3", "w2"},
}

// readForeign reads the object "measurement" of ExLlamaV2's file: for each attention and MLP module a list of options, each
// with the accuracy 1 − ‖Y′−Y‖/‖Y‖ of the module's output and the settings of every linear. Slots are whole modules
// then, their errors the squares of 1 − accuracy.
func readForeign(v safeio.Value, shape func(string) (out, in int, ok bool)) (*Measurement, error) {
	m := &Measurement{Format: measurementFormat, Sensitivity: "block"}
	for key, list := range v.Members() {
		if !list.Exists() { // norms and the head
			continue
		}
		part := key[strings.LastIndexByte(key, '.')+1:]
		if foreignParts[part] == nil || list.Kind() != safeio.Array {
			return nil, safeio.Unsupportedf("the measurement holds %q, which is no attention or MLP module", key)
		}
		s, err := foreignSlot(key, foreignParts[part], list, shape)
		if err != nil {
			return nil, &safeio.Error{Op: "measurement", Tensor: key, Off: -1, Err: err}
		}
		m.Slots = append(m.Slots, s)
	}
	if len(m.Slots) == 0 {
		return nil, safeio.Corruptf("the measurement is empty")
	}
	return m, nil
}

func foreignSlot(key string, parts []string, list safeio.Value, shape func(string) (out, in int, ok bool)) (Slot, error) {
	s := Slot{Name: key, Sensitivity: 1}
	var role []int // part of each module
	for i, part := range parts {
		names := foreignModules(key, part, shape)
		if len(names) == 0 && part != "gate_proj" { // models without a gate
			return s, safeio.Corruptf("the model has no %s.%s: the measurement belongs to another", key, part)
		}
		for _, name := range names {
			out, in, _ := shape(name)
			s.Modules, role = append(s.Modules, Module{name, out, in}), append(role, i)
		}
	}
	for option := range list.Items() {
		accuracy, err := safeio.At(option, "accuracy", safeio.Value.Float)
		if err != nil {
			return s, err
		}
		o := Option{Error: (1 - accuracy) * (1 - accuracy)}
		byPart := map[int]Candidate{}
		for _, i := range role {
			if _, ok := byPart[i]; ok {
				continue
			}
			if byPart[i], err = foreignCandidate(option.Get(parts[i])); err != nil {
				return s, fmt.Errorf("%s: %w", parts[i], err)
			}
		}
		for _, i := range role {
			o.Candidates = append(o.Candidates, byPart[i])
		}
		if o.Bits = s.bits(&o); o.Bits < 1 {
			return s, safeio.Corruptf("an option without bits")
		}
		s.Options = append(s.Options, o)
	}
	return s, s.check()
}

// foreignModules lists the linears of one part: one, or that of every expert.
func foreignModules(key, part string, shape func(string) (out, in int, ok bool)) (names []string) {
	if _, _, ok := shape(key + "." + part); ok {
		return []string{key + "." + part}
	}
	for e := 0; ; e++ {
		name := key + ".experts." + strconv.Itoa(e) + "." + part
		if _, _, ok := shape(name); !ok {
			return names
		}
		names = append(names, name)
	}
}

// foreignCandidate reads {"group_size": {"4": 128, …}, "bits": [4, 3], "bits_prop": [0.1, 0.9], "scale_bits": 4}.
func foreignCandidate(v safeio.Value) (c Candidate, err error) {
	bits, err := safeio.At(v, "bits", safeio.Value.Ints)
	if err != nil {
		return c, err
	}
	var bands []Band
	left := 100
	i := 0
	for share := range v.Get("bits_prop").Items() {
		p, err := share.Float()
		if err != nil {
			return c, err
		}
		if i >= len(bits) || !(p >= 0 && p <= 1) {
			return c, safeio.Corruptf("shares do not fit the %d widths", len(bits))
		}
		group, err := safeio.At(v.Get("group_size"), strconv.FormatInt(bits[i], 10), safeio.Value.Int)
		if err != nil {
			return c, err
		}
		if group < 0 || group > math.MaxInt16 || bits[i] < 0 || bits[i] > 8 {
			return c, safeio.Corruptf("%d bits in groups of %d", bits[i], group)
		}
		percent := min(int(math.Round(p*100)), left)
		if i == len(bits)-1 {
			percent = left // the last band takes the rest, rounded shares or not
		}
		left -= percent
		bands = append(bands, Band{int(bits[i]), percent, int(group)})
		i++
	}
	if i != len(bits) {
		return c, safeio.Corruptf("%d shares for %d widths", i, len(bits))
	}
	return NewCandidate(bands...)
}
