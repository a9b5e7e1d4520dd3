package gguf

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
)

// general writes general.architecture … general.languages.
func (w *writer) general() error {
	w.set("general.architecture", w.model.GGUF.Arch)
	w.set("general.type", "model")
	if err := w.sampling(); err != nil {
		return err
	}
	c := readCard(w.o.Side["README.md"])
	params, label := sizeLabel(w.tensors)
	facts := w.facts(c, params)
	if facts["size_label"] == "" {
		facts["size_label"] = label
	}
	for _, key := range []string{"name", "author", "version", "organization", "finetune", "basename", "description", "size_label"} {
		w.set("general."+key, facts[key])
	}
	w.set("general.license", strings.Join(c["license"], ","))
	w.set("general.license.name", c.one("license_name"))
	w.set("general.license.link", c.one("license_link"))
	for _, key := range []string{"url", "doi", "uuid", "repo_url"} {
		w.set("general.source."+key, firstOf(c, key, "model_"+key))
	}
	w.lineage("base_model", c, params, "base_model", "base_models", "base_model_sources")
	w.lineage("dataset", c, params, "datasets", "dataset", "dataset_sources")
	w.list("general.tags", c["tags"], c["pipeline_tag"])
	w.list("general.languages", c["languages"], c["language"])
	return nil
}

// set writes a string; the reference's writer drops empty ones.
func (w *writer) set(key, text string) {
	if text != "" {
		w.kv.Set(key, String(text))
	}
}

// list writes the concatenation of lists; an empty one is dropped like an empty string.
func (w *writer) list(key string, lists ...[]string) {
	var all []string
	for _, l := range lists {
		all = append(all, l...)
	}
	if len(all) > 0 {
		w.kv.Set(key, Strings(all))
	}
}

// firstOf returns the first of several spellings of a fact that the card has.
func firstOf(c card, keys ...string) string {
	for _, k := range keys {
		if v := c.one(k); v != "" {
			return v
		}
	}
	return ""
}

// cardKeys lists where the model card may state a fact, best first.
var cardKeys = [...]struct {
	fact string
	keys []string
}{
	{"name", []string{"name", "model_name"}},
	{"author", []string{"author", "model_author", "model_creator"}},
	{"version", []string{"version", "model_version"}},
	{"organization", []string{"organization", "model_organization"}},
	{"description", []string{"description", "model_description"}},
	{"finetune", []string{"finetune", "model_finetune"}},
	{"basename", []string{"basename", "model_basename", "model_type"}},
	{"size_label", []string{"size_label", "model_size_label"}},
}

// facts collects the name and its parts: from the card, else from the repository that config.json names, else from the
// name of the directory.
func (w *writer) facts(c card, params int64) map[string]string {
	facts := make(map[string]string)
	for _, k := range cardKeys {
		facts[k.fact] = firstOf(c, k.keys...)
	}
	var ids []string
	if path, err := w.config.Get("_name_or_path").Str(); err == nil && path != "" && strings.Count(path, "/") <= 1 {
		ids = append(ids, path)
	}
	if w.o.Name != "" {
		ids = append(ids, filepath.Base(w.o.Name))
	}
	for _, id := range ids {
		m := parseModelID(id, params)
		for _, p := range []struct{ fact, value string }{
			{"name", title(m.name)}, {"organization", title(m.organization)}, {"basename", m.basename},
			{"finetune", m.finetune}, {"version", m.version}, {"size_label", m.size},
		} {
			if facts[p.fact] == "" {
				facts[p.fact] = p.value
			}
		}
	}
	return facts
}

var hubURL = regexp.MustCompile(`^https?://huggingface\.co/([^/]+/[^/]+)$`)

// lineage writes the models or data sets that this one comes from.
func (w *writer) lineage(what string, c card, params int64, keys ...string) {
	var ids []string
	named := false
	for _, k := range keys {
		if v, ok := c[k]; ok {
			ids, named = v, true
			break
		}
	}
	if !named {
		return
	}
	w.kv.Set("general."+what+".count", Uint32(uint32(len(ids))))
	for i, id := range ids {
		prefix := "general." + what + "." + strconv.Itoa(i) + "."
		repo, isURL := "", strings.Contains(id, "://")
		if isURL {
			repo = id
			if m := hubURL.FindStringSubmatch(id); m != nil {
				id = m[1]
			} else {
				id = ""
			}
		}
		m := parseModelID(id, params)
		if !isURL && m.organization != "" {
			repo = "https://huggingface.co/" + m.organization + "/" + m.name
		}
		w.set(prefix+"name", title(m.name))
		w.set(prefix+"version", m.version)
		w.set(prefix+"organization", title(m.organization))
		w.set(prefix+"repo_url", repo)
	}
}

// samplingKeys are the sampler settings of generation_config.json that GGUF records; integers are i32, others f32.
var samplingKeys = [...]struct {
	from, to string
	kind     Kind
}{
	{"sequence", "sequence", KindString},
	{"top_k", "top_k", KindInt32},
	{"top_p", "top_p", KindFloat32},
	{"min_p", "min_p", KindFloat32},
	{"xtc_probability", "xtc_probability", KindFloat32},
	{"xtc_threshold", "xtc_threshold", KindFloat32},
	{"temperature", "temp", KindFloat32},
	{"penalty_last_n", "penalty_last_n", KindInt32},
	{"penalty_repeat", "penalty_repeat", KindFloat32},
	{"mirostat", "mirostat", KindInt32},
	{"mirostat_tau", "mirostat_tau", KindFloat32},
	{"mirostat_eta", "mirostat_eta", KindFloat32},
}

// sampling copies the recommended sampler settings. A number of the wrong kind is an error: silently dropping a temperature
// would change how the model answers.
func (w *writer) sampling() error {
	text, ok := w.o.Side["generation_config.json"]
	if !ok {
		return nil
	}
	generation, err := safeio.ParseJSON(text)
	for _, k := range samplingKeys {
		v := generation.Get(k.from)
		if err != nil || !v.Exists() {
			continue
		}
		key := "general.sampling." + k.to
		switch k.kind {
		case KindString:
			var s string
			if s, err = v.Str(); err == nil {
				w.set(key, s)
			}
		case KindInt32:
			var n int64
			if n, err = v.Int(); err == nil {
				w.kv.Set(key, Int32(int32(n)))
			}
		default:
			var x float64
			if x, err = v.Float(); err == nil {
				w.kv.Set(key, Float32(float32(x)))
			}
		}
	}
	if err != nil {
		return &safeio.Error{Op: "convert: generation_config.json", Off: -1, Err: err}
	}
	return nil
}

// sizeLabel returns the number of weights and its short form: "4.2M", for experts "8x1.7M" with the weights of one path.
func sizeLabel(ts []Tensor) (params int64, label string) {
	var shared, one, experts, stacks int64
	for i := range ts {
		n := ts[i].Elements()
		params += n
		if !strings.Contains(ts[i].Name, expertSuffix+".") {
			shared += n
			continue
		}
		one += n / ts[i].NE[2]
		experts += ts[i].NE[2]
		stacks++
	}
	if stacks == 0 {
		return params, short(params)
	}
	return params, strconv.FormatInt(experts/stacks, 10) + "x" + short(shared+one)
}

// short writes a number of weights with two significant digits at least.
func short(n int64) string {
	x, suffix := float64(n)*1e-3, "K"
	for _, s := range []struct {
		least, scale float64
		suffix       string
	}{{1e6, 1e-6, "M"}, {1e9, 1e-9, "B"}, {1e12, 1e-12, "T"}} {
		if float64(n) >= s.least {
			x, suffix = float64(n)*s.scale, s.suffix
		}
	}
	digits := max(2-len(strings.TrimLeft(strconv.FormatFloat(x, 'f', 0, 64), "0")), 0)
	return strconv.FormatFloat(x, 'f', digits, 64) + suffix
}
