package parquet

import (
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
)

// Kind is what a column holds.
type Kind uint8

// The kinds of columns. Other is anything this package does not read.
const (
	Other    Kind = iota
	Text          // a string
	IDs           // a list of integers
	Messages      // a list of structs with role and content, or from and value
)

// Column is a column of a file.
type Column struct {
	Name string // dotted below the top level
	Kind Kind
	Type string // for messages: "string", "list of int64", …

	leaves    []*node // Text and IDs: one; Messages: the speaker's and the text's
	shareGPT  bool    // the leaves are from and value
	problemIs string  // why an Other column cannot be read
}

// ShareGPT tells whether the messages are spelled from and value.
func (c *Column) ShareGPT() bool { return c.shareGPT }

// Err explains why an Other column cannot be read.
func (c *Column) Err() error {
	if c.Kind != Other {
		return nil
	}
	return safeio.Unsupportedf("column %q is %s; wanted a string, a list of integers or a list of {role, content}", c.Name, c.problemIs)
}

// Columns lists the top-level columns in order.
func (f *File) Columns() []Column {
	out := make([]Column, len(f.root.children))
	for i, n := range f.root.children {
		out[i] = classify(n)
	}
	return out
}

// Column finds a column by name; a dotted name reaches into structs.
func (f *File) Column(name string) (Column, bool) {
	if n := f.root.child(name); n != nil {
		return classify(n), true
	}
	n := f.root
	for _, part := range strings.Split(name, ".") {
		if n = n.child(part); n == nil {
			return Column{}, false
		}
	}
	return classify(n), true
}

// Rows is the number of rows of the file.
func (f *File) Rows() int64 { return f.rows }

// classify decides what a column holds from the shape of its subtree. Lists come in several spellings (three levels,
// two levels, a bare repeated field); only how often things repeat matters.
func classify(n *node) Column {
	c := Column{Name: n.path(), Type: describe(n)}
	c.problemIs = c.Type
	leaves := n.appendLeaves(nil)
	switch {
	case len(leaves) == 1 && leaves[0].maxRep == 0:
		if l := leaves[0]; l.typ == typeByteArray && l == n {
			c.Kind, c.leaves = Text, leaves
		}
	case len(leaves) == 1 && leaves[0].maxRep == 1:
		if l := leaves[0]; l.typ == typeInt32 || l.typ == typeInt64 {
			c.Kind, c.leaves = IDs, leaves
		}
	case len(leaves) > 1:
		c.classifyMessages(n)
	}
	return c
}

// classifyMessages recognises a list of structs, and the struct of two lists that older versions of the datasets
// library made of it.
func (c *Column) classifyMessages(n *node) {
	elem := n
	for len(elem.children) == 1 {
		elem = elem.children[0]
	}
	for _, names := range [][2]string{{"role", "content"}, {"from", "value"}} {
		who, what := elem.child(names[0]), elem.child(names[1])
		if who == nil || what == nil {
			continue
		}
		if who, what = textList(who), textList(what); who == nil || what == nil {
			c.problemIs = c.Type + ", whose " + names[0] + " and " + names[1] + " are not both plain strings"
			return
		}
		c.Kind, c.leaves, c.shareGPT = Messages, []*node{who, what}, names[0] == "from"
		return
	}
}

// textList returns the one string leaf at or below n that repeats once.
func textList(n *node) *node {
	leaves := n.appendLeaves(nil)
	if len(leaves) != 1 || leaves[0].typ != typeByteArray || leaves[0].maxRep != 1 {
		return nil
	}
	return leaves[0]
}

// listDef is the definition level from which on an entry of a leaf that repeats once is an element: below it the list
// is empty or null.
func (n *node) listDef() int16 {
	for n.repetition != repeated {
		n = n.parent
	}
	return int16(n.maxDef)
}

// appendLeaves lists the leaves at and below a node.
func (n *node) appendLeaves(out []*node) []*node {
	if n.children == nil {
		if n.typ < 0 {
			return out // a group without children
		}
		return append(out, n)
	}
	for _, c := range n.children {
		out = c.appendLeaves(out)
	}
	return out
}

// describe says in words what a column is, for messages about columns that cannot be read.
func describe(n *node) string {
	if n.children == nil {
		switch {
		case n.typ < 0:
			return "an empty struct"
		case n.repetition == repeated:
			return "a list of " + n.typeName()
		}
		return n.typeName()
	}
	if list := firstRepeated(n); list != nil {
		elem := list
		for len(elem.children) == 1 {
			elem = elem.children[0]
			if elem.repetition == repeated {
				return "a list of lists"
			}
		}
		if elem.children == nil {
			return "a list of " + elem.typeName()
		}
		return "a list of structs of " + strings.Join(childNames(elem), ", ")
	}
	return "a struct of " + strings.Join(childNames(n), ", ")
}

// typeName is the type of a leaf; bytes that are marked as text are a string.
func (n *node) typeName() string {
	if n.text {
		return "string"
	}
	return typeNames[n.typ]
}

// firstRepeated follows single children down to a repeated node.
func firstRepeated(n *node) *node {
	for ; n != nil; n = n.children[0] {
		if n.repetition == repeated {
			return n
		}
		if len(n.children) != 1 {
			return nil
		}
	}
	return nil
}

// childNames lists the members of a struct.
func childNames(n *node) []string {
	out := make([]string, len(n.children))
	for i, c := range n.children {
		out[i] = c.name
	}
	return out
}
