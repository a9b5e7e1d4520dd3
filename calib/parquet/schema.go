package parquet

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/llmquant/quantize/formats/safeio"
)

// Physical types of leaves.
const (
	typeInt32     = 1
	typeInt64     = 2
	typeByteArray = 6
)

var typeNames = [...]string{"boolean", "int32", "int64", "int96", "float", "double", "binary", "fixed-length binary"}

const (
	required = 0
	optional = 1
	repeated = 2
)

// maxSchemaDepth bounds nesting of columns.
const maxSchemaDepth = 24

// node is an element of the schema tree.
type node struct {
	name           string
	parent         *node
	children       []*node // nil: a leaf
	typ            int32   // physical type of a leaf
	repetition     int
	maxDef, maxRep int // levels of a value below all optional and repeated ancestors, itself included
	leaf           int // index of a leaf
	text           bool
}

// names is the path of a node below the root. It is not stored: a hostile schema could make paths much longer than
// itself.
func (n *node) names() []string {
	var out []string
	for ; n.parent != nil; n = n.parent {
		out = append(out, n.name)
	}
	slices.Reverse(out)
	return out
}

// path is the dotted name of a node.
func (n *node) path() string { return strings.Join(n.names(), ".") }

// child finds a member by name.
func (n *node) child(name string) *node {
	for _, c := range n.children {
		if c.name == name {
			return c
		}
	}
	return nil
}

// element is a SchemaElement as written: the tree in depth-first order, each with its number of children.
type element struct {
	name       string
	typ        int32
	repetition int
	children   int64
	text       bool
	isGroup    bool
}

// parseSchema builds the tree from the flat list and uses up the list exactly.
func (f *File) parseSchema(t *thrift, typ byte) error {
	elem, n, err := t.list(typ)
	if err != nil {
		return err
	}
	switch {
	case n == 0 || elem != tStruct:
		return safeio.Corruptf("the schema is empty")
	case n > maxElements:
		return safeio.Limitf("the schema has %d elements, over the limit of %d", n, maxElements)
	}
	rest := n
	next := func() (element, error) {
		if rest == 0 {
			return element{}, safeio.Corruptf("the schema ends inside of a group")
		}
		rest--
		return parseElement(t)
	}
	e, err := next()
	if err != nil {
		return err
	}
	if !e.isGroup {
		return safeio.Corruptf("the root of the schema is no group")
	}
	root := &node{name: e.name}
	if err := f.grow(root, e, next, 0); err != nil {
		return err
	}
	if rest != 0 {
		return safeio.Corruptf("%d elements of the schema belong to no group", rest)
	}
	f.root = root
	return nil
}

// grow reads the children of a group.
func (f *File) grow(parent *node, e element, next func() (element, error), depth int) error {
	if depth > maxSchemaDepth {
		return safeio.Corruptf("columns are nested deeper than %d levels", maxSchemaDepth)
	}
	seen := map[string]bool{}
	for range e.children {
		c, err := next()
		if err != nil {
			return err
		}
		if seen[c.name] {
			return safeio.Corruptf("two columns have the name %q", c.name)
		}
		seen[c.name] = true
		n := &node{name: c.name, parent: parent, repetition: c.repetition, typ: c.typ, text: c.text, maxDef: parent.maxDef, maxRep: parent.maxRep}
		if c.repetition != required {
			n.maxDef++
		}
		if c.repetition == repeated {
			n.maxRep++
		}
		if c.isGroup {
			err = f.grow(n, c, next, depth+1)
		} else {
			n.leaf = len(f.leaves)
			f.leaves = append(f.leaves, n)
		}
		if err != nil {
			return err
		}
		parent.children = append(parent.children, n)
	}
	return nil
}

// parseElement walks SchemaElement.
func parseElement(t *thrift) (element, error) {
	e := element{typ: -1, children: -1}
	named := false
	err := t.structure(func(id int64, typ byte) (done bool, err error) {
		var v int64
		switch id {
		case 1:
			v, err = t.integer(typ)
			e.typ = int32(v)
		case 3:
			v, err = t.integer(typ)
			e.repetition = int(v)
		case 4:
			var b []byte
			b, err = t.binary(typ)
			e.name, named = string(b), true
		case 5:
			e.children, err = t.integer(typ)
		case 6:
			v, err = t.integer(typ)
			e.text = e.text || v == 0 // UTF8
		case 10:
			// LogicalType is a union: the id of its one field tells the type, 1 is STRING.
			err = t.structure(func(id int64, _ byte) (bool, error) {
				e.text = e.text || id == 1
				return false, nil
			})
		default:
			return false, nil
		}
		return true, err
	})
	e.isGroup = e.typ < 0
	switch {
	case err != nil:
	case !named || !utf8.ValidString(e.name) || len(e.name) > 1024:
		err = safeio.Corruptf("an element of the schema has no usable name")
	case e.repetition < required || e.repetition > repeated:
		err = safeio.Corruptf("column %q has repetition %d", e.name, e.repetition)
	case e.isGroup && (e.children < 0 || e.children > maxElements):
		err = safeio.Corruptf("column %q has neither a type nor children", e.name)
	case !e.isGroup && e.children > 0:
		err = safeio.Corruptf("column %q has a type and children", e.name)
	case !e.isGroup && int(e.typ) >= len(typeNames):
		err = safeio.Corruptf("column %q has the unknown type %d", e.name, e.typ)
	}
	return e, err
}
