package jinja

// builtin is one row of a table of methods, filters or functions. params are the names Python accepts; arguments that
// a call leaves out arrive as missing{}. A nil params accepts anything, as given.
type builtin struct {
	params []string
	call   func(in *interp, self Value, a []Value) (Value, error)
}

// bind makes a function of a method and its object.
func (m builtin) bind(name string, self Value) *function {
	return &function{name, func(in *interp, a args) (Value, error) {
		got, err := a.bind(name, m.params)
		if err != nil {
			return nil, err
		}
		return m.call(in, self, got)
	}}
}

// sandboxed are methods that Transformers' sandbox refuses because they change their object.
var sandboxed = map[string]map[string]bool{
	"dict": {"clear": true, "pop": true, "popitem": true, "setdefault": true, "update": true},
	"list": {"append": true, "clear": true, "extend": true, "insert": true, "pop": true, "remove": true, "reverse": true, "sort": true},
}

// omitted are methods that exist in Python and not here; a template that calls one is told so, where an unknown name is
// merely undefined.
var omitted = map[string]map[string]bool{
	"dict": {"fromkeys": true},
	"str": {
		"casefold": true, "center": true, "encode": true, "expandtabs": true, "format": true, "format_map": true,
		"isdecimal": true, "isidentifier": true, "isnumeric": true, "isprintable": true, "istitle": true, "ljust": true,
		"maketrans": true, "rjust": true, "swapcase": true, "translate": true, "zfill": true,
	},
}

// method returns the bound method of a value, nil when its type has none of that name.
func method(v Value, name string) (Value, error) {
	typ := typeName(v)
	if sandboxed[typ][name] {
		return nil, typeErrorf("access to attribute '%s' of '%s' object is unsafe", name, typ)
	}
	m, ok := methods[typ][name]
	if !ok {
		if omitted[typ][name] {
			return nil, &UnsupportedError{What: "the method " + typ + "." + name}
		}
		return nil, nil
	}
	return m.bind(name, v), nil
}

var methods = map[string]map[string]builtin{
	"str": strMethods, "dict": dictMethods, "list": listMethods, "tuple": listMethods,
}

var dictMethods = map[string]builtin{
	"get": {[]string{"key", "default"}, func(_ *interp, self Value, a []Value) (Value, error) {
		if _, ok := a[0].(missing); ok {
			return nil, typeErrorf("get expected at least 1 argument, got 0")
		}
		if v, ok := self.(*Dict).at(a[0]); ok {
			return v, nil
		}
		return orNone(a[1]), nil
	}},
	"keys": {nil, func(_ *interp, self Value, _ []Value) (Value, error) {
		return &view{"dict_keys", self.(*Dict).keys}, nil
	}},
	"values": {nil, func(_ *interp, self Value, _ []Value) (Value, error) {
		return &view{"dict_values", self.(*Dict).vals}, nil
	}},
	"items": {nil, func(in *interp, self Value, _ []Value) (Value, error) {
		pairs, err := in.pairs(self.(*Dict))
		return &view{"dict_items", pairs}, err
	}},
	"copy": {nil, func(in *interp, self Value, _ []Value) (Value, error) {
		d := self.(*Dict)
		out := NewDict()
		for i, k := range d.keys {
			if err := out.put(k, d.vals[i]); err != nil {
				return nil, err
			}
		}
		return out, in.charge(64 * d.Len())
	}},
}

// pairs lists the (key, value) tuples of a dict.
func (in *interp) pairs(d *Dict) ([]Value, error) {
	if err := in.charge(64 * d.Len()); err != nil {
		return nil, err
	}
	out := make([]Value, d.Len())
	for i, k := range d.keys {
		out[i] = &List{Items: []Value{k, d.vals[i]}, Tuple: true}
	}
	return out, nil
}

var listMethods = map[string]builtin{
	"count": {[]string{"value"}, func(in *interp, self Value, a []Value) (Value, error) {
		n := int64(0)
		for _, v := range self.(*List).Items {
			eq, err := in.equal(v, a[0])
			if err != nil {
				return nil, err
			}
			n += intOf(eq)
		}
		return n, nil
	}},
	"index": {[]string{"value"}, func(in *interp, self Value, a []Value) (Value, error) {
		for i, v := range self.(*List).Items {
			if eq, err := in.equal(v, a[0]); eq || err != nil {
				return int64(i), err
			}
		}
		return nil, typeErrorf("the value is not in the list")
	}},
	"copy": {nil, func(_ *interp, self Value, _ []Value) (Value, error) { return self, nil }},
}

// attr is an attribute of the loop variable.
func (l *loop) attr(name string) Value {
	n := int64(len(l.items))
	i := int64(l.i)
	at := func(i int) Value {
		if i < 0 || i >= len(l.items) {
			return Undefined{"the loop has no such item"}
		}
		return l.items[i]
	}
	switch name {
	case "index":
		return i + 1
	case "index0":
		return i
	case "revindex":
		return n - i
	case "revindex0":
		return n - i - 1
	case "first":
		return i == 0
	case "last":
		return i == n-1
	case "length":
		return n
	case "previtem":
		return at(l.i - 1)
	case "nextitem":
		return at(l.i + 1)
	case "depth":
		return int64(1)
	case "depth0":
		return int64(0)
	case "cycle":
		return &function{"cycle", func(_ *interp, a args) (Value, error) {
			if len(a.pos) == 0 {
				return nil, typeErrorf("no items for cycling given")
			}
			return a.pos[l.i%len(a.pos)], nil
		}}
	case "changed":
		return &function{"changed", func(in *interp, a args) (Value, error) {
			same := l.changed != nil && len(l.changed) == len(a.pos)
			if same {
				var err error
				if same, err = in.equalAll(l.changed, a.pos); err != nil {
					return nil, err
				}
			}
			l.changed = append([]Value{}, a.pos...)
			return !same, nil
		}}
	}
	return Undefined{"'loop' has no attribute '" + name + "'"}
}

// The helpers below read optional arguments.

// orNone is an optional argument whose default is None.
func orNone(v Value) Value {
	if _, ok := v.(missing); ok {
		return nil
	}
	return v
}

func isMissing(v Value) bool { _, ok := v.(missing); return ok }

// strArg reads a string argument; a missing one, or None where python's default is None, is def.
func strArg(v Value, def string) (string, error) {
	switch v := v.(type) {
	case missing:
		return def, nil
	case nil:
		return def, nil
	case string:
		return v, nil
	}
	return "", badOperand(v, "expected a string, not")
}

// intArg reads an integer argument; True and False are integers too.
func intArg(v Value, def int64) (int64, error) {
	if isMissing(v) {
		return def, nil
	}
	n, _ := number(v)
	i, ok := n.(int64)
	if !ok {
		return 0, badOperand(v, "expected an integer, not")
	}
	return i, nil
}

// boolArg reads an argument for its truth.
func boolArg(v Value, def bool) bool {
	if isMissing(v) {
		return def
	}
	return truthy(v)
}
