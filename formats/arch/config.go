package arch

import (
	"github.com/llmquant/quantize/formats/safeio"
)

// Ranges of config.json's numbers. They are far above any published model and low enough that a product of any three
// of them fits an int64.
const (
	maxCount     = 1 << 20 // layers, heads, experts, channels, vocabulary
	maxPositions = 1 << 27 // context lengths
)

// config reads typed, range-checked values from config.json. The first failure sticks in err and is what Resolve
// returns; later reads give harmless values, so that callers check once.
type config struct {
	safeio.Value
	err error
}

func parseConfig(text []byte) (*config, error) {
	v, err := safeio.ParseJSON(text)
	if err == nil && v.Kind() != safeio.Object {
		err = safeio.Corruptf("%s where an object is expected", v.Kind())
	}
	return &config{Value: v}, err
}

func (c *config) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// member reads the member key with a getter of safeio.Value: def when it is absent or null.
func member[T any](c *config, key string, def T, get func(safeio.Value) (T, error)) T {
	x, err := safeio.Or(c.Value, key, def, get)
	if err != nil {
		c.fail(err)
		return def
	}
	return x
}

// integer returns the value of key, def when it is absent or null.
func (c *config) integer(key string, def, least, most int) int {
	if !c.Get(key).Exists() {
		return def
	}
	return c.required(key, least, most)
}

// required is integer without a default.
func (c *config) required(key string, least, most int) int {
	n, err := safeio.At(c.Value, key, safeio.Value.Int)
	if err == nil && (n < int64(least) || n > int64(most)) {
		err = safeio.Corruptf("%s is %d, outside %d … %d", key, n, least, most)
	}
	if err != nil {
		c.fail(err)
		return least
	}
	return int(n)
}

// nullable returns def when key is absent and 0 when it is null.
func (c *config) nullable(key string, def, least, most int) int {
	if c.Get(key).Kind() == safeio.Null {
		return 0
	}
	return c.integer(key, def, least, most)
}

// alias returns a required integer that two generations of a config spell differently.
func (c *config) alias(old, now string, least, most int) int {
	if !c.Get(now).Exists() {
		return c.required(old, least, most)
	}
	n := c.required(now, least, most)
	if c.integer(old, n, least, most) != n {
		c.fail(safeio.Corruptf("%s and %s disagree", old, now))
	}
	return n
}

// real returns a number in [least, most], def when the key is absent or null.
func (c *config) real(key string, def, least, most float64) float64 {
	x := member(c, key, def, safeio.Value.Float)
	if c.Get(key).Exists() && !(x >= least && x <= most) {
		c.fail(safeio.Corruptf("%s is %g, outside %g … %g", key, x, least, most))
		return def
	}
	return x
}

func (c *config) boolean(key string, def bool) bool { return member(c, key, def, safeio.Value.Bool) }
func (c *config) text(key, def string) string       { return member(c, key, def, safeio.Value.Str) }

// strings returns a list of strings, nil when the key is absent or null.
func (c *config) strings(key string) []string { return member(c, key, nil, safeio.Value.Strings) }

// integers returns a list of integers, nil when the key is absent or null.
func (c *config) integers(key string, least, most int) []int {
	var all []int
	for _, n := range member(c, key, nil, safeio.Value.Ints) {
		if n < int64(least) || n > int64(most) {
			c.fail(safeio.Corruptf("%s holds %d, outside %d … %d", key, n, least, most))
			return nil
		}
		all = append(all, int(n))
	}
	return all
}

// child returns the object under key as a config of its own, an empty one when the key is absent or null. The caller
// passes its err on.
func (c *config) child(key string) *config {
	v := c.Get(key)
	if v.Exists() && v.Kind() != safeio.Object {
		c.fail(safeio.Corruptf("%s is %s where an object is expected", key, v.Kind()))
		return &config{}
	}
	return &config{Value: v}
}
