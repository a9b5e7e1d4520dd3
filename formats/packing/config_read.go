package packing

import (
	"regexp"
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
)

// Config is the part of a checkpoint's quantization_config (or quantize_config.json) that says how integer linears
// are stored. Shapes decide where they can; the config is asked for what shapes do not show.
type Config struct {
	Method    string // quant_method in lower case: "awq", "gptq", "compressed-tensors", "auto-round", "exl2"
	Version   string // AWQ: "gemm", "gemv", …; GPTQ: checkpoint_format; auto-round: packing_format
	Bits      int    // 0: not stated
	GroupSize int    // 0: not stated
	Sym       bool
	Format    string // compressed-tensors: the top-level format
	rules     []rule
	groups    []ctGroup
}

// rule is one entry of GPTQModel's "dynamic": the first whose pattern matches from the start of a module's name wins.
type rule struct {
	match     *regexp.Regexp
	skip      bool // "-:": the module is not quantized
	overrides safeio.Value
}

// ctGroup is one entry of compressed-tensors' config_groups.
type ctGroup struct {
	exact    map[string]bool
	patterns []*regexp.Regexp
	class    bool // a class name ("Linear") that covers whatever nothing else names
	weights  safeio.Value
	format   string
}

// maxPattern bounds a pattern taken from a file. Go's engine runs in linear time; this bounds the compiled size.
const maxPattern = 4096

// ParseConfig reads quantization_config, or the whole of quantize_config.json or quant_config.json. Keys of other
// methods are left alone: Method tells the caller whether it is one of ours.
func ParseConfig(v safeio.Value) (*Config, error) {
	c := &Config{}
	method, err := safeio.Or(v, "quant_method", "", safeio.Value.Str)
	if err != nil {
		return nil, err
	}
	c.Method = strings.ReplaceAll(strings.ToLower(method), "_", "-")
	if c.Method == "" {
		c.Method = guessMethod(v)
	}
	if c.Method == "exl2" {
		return c, nil // its numbers are averages; the tensors say how they are stored
	}
	if err := c.readNumbers(v); err != nil {
		return nil, err
	}
	switch c.Method {
	case "awq", "gptq", "auto-round":
		err = c.readDynamic(v)
	case "compressed-tensors":
		err = c.readGroups(v)
	}
	return c, err
}

// guessMethod names the method of the old side files, which do not.
func guessMethod(v safeio.Value) string {
	switch {
	case v.Get("zero_point").Exists(), v.Get("w_bit").Exists():
		return "awq"
	case v.Get("desc_act").Exists(), v.Get("damp_percent").Exists():
		return "gptq"
	}
	return ""
}

func (c *Config) readNumbers(v safeio.Value) error {
	var err error
	if c.Bits, err = smallInt(v, "bits", "w_bit"); err != nil {
		return err
	}
	if c.GroupSize, err = smallInt(v, "group_size", "q_group_size"); err != nil {
		return err
	}
	// AWQ says zero_point where the others say sym; GPTQ's default is symmetric.
	zeroPoint, err := safeio.Or(v, "zero_point", c.Method == "awq", safeio.Value.Bool)
	if err != nil {
		return err
	}
	if c.Sym, err = safeio.Or(v, "sym", !zeroPoint, safeio.Value.Bool); err != nil {
		return err
	}
	for _, key := range []string{"packing_format", "checkpoint_format", "version", "format"} {
		if v.Get(key).Kind() != safeio.String {
			continue
		}
		s, err := v.Get(key).Str()
		if err != nil {
			return err
		}
		if key == "format" {
			c.Format = s
		}
		if c.Version == "" {
			c.Version = strings.ToLower(s)
		}
	}
	return nil
}

// smallInt reads the first of several spellings of a number; 0 when none is there.
func smallInt(v safeio.Value, keys ...string) (int, error) {
	for _, key := range keys {
		if !v.Get(key).Exists() {
			continue
		}
		n, err := safeio.At(v, key, safeio.Value.Int)
		if err != nil {
			return 0, err
		}
		if n < -1 || n > maxDim {
			return 0, safeio.Corruptf("%s is %d", key, n)
		}
		return int(n), nil
	}
	return 0, nil
}

func (c *Config) readDynamic(v safeio.Value) error {
	for pattern, overrides := range v.Get("dynamic").Members() {
		skip := strings.HasPrefix(pattern, "-:")
		text := strings.TrimPrefix(strings.TrimPrefix(pattern, "-:"), "+:")
		re, err := anchored(text)
		if err != nil {
			return err
		}
		c.rules = append(c.rules, rule{re, skip, overrides})
	}
	return nil
}

// anchored compiles a Python pattern that is matched from the start of a name, as re.match does.
func anchored(pattern string) (*regexp.Regexp, error) {
	if len(pattern) > maxPattern {
		return nil, safeio.Limitf("a module pattern of %d characters (at most %d)", len(pattern), maxPattern)
	}
	re, err := regexp.Compile("^(?:" + pattern + ")")
	if err != nil {
		return nil, safeio.Unsupportedf("module pattern %q: %v", pattern, err)
	}
	return re, nil
}

func (c *Config) readGroups(v safeio.Value) error {
	for name, g := range v.Get("config_groups").Members() {
		group := ctGroup{exact: map[string]bool{}, weights: g.Get("weights"), format: c.Format}
		if f := g.Get("format"); f.Exists() {
			s, err := f.Str()
			if err != nil {
				return err
			}
			group.format = s
		}
		targets, err := safeio.At(g, "targets", safeio.Value.Strings)
		if err != nil {
			return &safeio.Error{Op: "config_groups", Tensor: name, Off: -1, Err: err}
		}
		for _, t := range targets {
			if err := group.addTarget(t); err != nil {
				return err
			}
		}
		c.groups = append(c.groups, group)
	}
	return nil
}

func (g *ctGroup) addTarget(t string) error {
	if pattern, ok := strings.CutPrefix(t, "re:"); ok {
		re, err := anchored(pattern)
		if err != nil {
			return err
		}
		g.patterns = append(g.patterns, re)
		return nil
	}
	// A module class carries no dot; module names nearly always do ("lm_head" is covered by exact as well).
	g.class = g.class || !strings.Contains(t, ".")
	g.exact[t] = true
	return nil
}

// group finds the entry for a module: exact names go before patterns, patterns before classes.
func (c *Config) group(module string) (ctGroup, bool) {
	for _, g := range c.groups {
		if g.exact[module] {
			return g, true
		}
	}
	for _, g := range c.groups {
		for _, re := range g.patterns {
			if re.MatchString(module) {
				return g, true
			}
		}
	}
	for _, g := range c.groups {
		if g.class {
			return g, true
		}
	}
	return ctGroup{}, false
}

// forModule applies the first matching dynamic rule to sym and the group size; skip reports a "-:" rule.
func (c *Config) forModule(module string) (sym bool, groupSize int, skip bool, err error) {
	sym, groupSize = c.Sym, c.GroupSize
	for _, r := range c.rules {
		if !r.match.MatchString(module) {
			continue
		}
		if r.skip {
			return sym, groupSize, true, nil
		}
		if sym, err = safeio.Or(r.overrides, "sym", sym, safeio.Value.Bool); err != nil {
			return sym, groupSize, false, err
		}
		if g, err := smallInt(r.overrides, "group_size"); err != nil || g != 0 {
			return sym, g, false, err
		}
		return sym, groupSize, false, nil
	}
	return sym, groupSize, false, nil
}
