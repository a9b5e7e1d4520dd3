package calib

import (
	"math"
	"strings"

	"github.com/llmquant/quantize/calib/chat"
	"github.com/llmquant/quantize/formats/safeio"
)

// picker chooses the column of a JSON file and remembers it.
type picker struct {
	column  string // chosen, "" before the first object
	missing bool   // the column was asked for and no row has had it
	found   []string
}

// jsonRow turns one JSON value into a document.
func (r *fileReader) jsonRow(text string, row int64) error {
	v, err := safeio.ParseJSON(text)
	if err != nil {
		return err
	}
	if v.Kind() == safeio.Object {
		if v, err = r.pick.from(v, r.src.opts.Column); err != nil {
			return err
		}
	}
	d, err := jsonDocument(v)
	if err != nil {
		if r.pick.column != "" {
			err = inColumn(r.pick.column, err)
		}
		return err
	}
	d.Row = row
	if err := r.grow(len(text)); err != nil {
		return err
	}
	return r.emit(d)
}

// inColumn names the column of an error.
func inColumn(column string, err error) error {
	return &safeio.Error{Op: "column " + column, Off: -1, Err: err}
}

// from takes the column's value out of an object; the first object decides which column that is. A row without it is
// null, as it would be in a table.
func (p *picker) from(row safeio.Value, asked string) (safeio.Value, error) {
	if p.column == "" {
		if err := p.choose(row, asked); err != nil {
			return row, err
		}
	}
	v := member(row, p.column)
	if p.missing && v.Kind() != safeio.Invalid {
		p.missing = false
	}
	return v, nil
}

// choose decides on the column by the keys of the first object. A name that was asked for is kept although that object
// may lack it: some writers leave null members out.
func (p *picker) choose(row safeio.Value, asked string) error {
	for key := range row.Members() {
		p.found = append(p.found, key)
	}
	if asked != "" {
		p.column, p.missing = asked, member(row, asked).Kind() == safeio.Invalid
		return nil
	}
	for _, name := range Columns {
		if row.Get(name).Kind() != safeio.Invalid {
			p.column = name
			return nil
		}
	}
	return noColumn("", p.found)
}

// finish reports a column that no row had.
func (p *picker) finish() error {
	if p.missing {
		return noColumn(p.column, p.found)
	}
	return nil
}

// member finds a key, or a dotted path of them.
func member(row safeio.Value, name string) safeio.Value {
	if v := row.Get(name); v.Kind() != safeio.Invalid {
		return v
	}
	return row.Path(strings.Split(name, ".")...)
}

// noColumn says which columns there are instead.
func noColumn(asked string, found []string) error {
	const most, longest = 40, 60 // names come from the file and shall not fill the screen
	var names []string
	for _, name := range found[:min(len(found), most)] {
		if len(name) > longest {
			name = name[:longest] + "…"
		}
		names = append(names, strings.ToValidUTF8(name, ""))
	}
	if len(found) > most {
		names = append(names, "…")
	}
	list := strings.Join(names, ", ")
	if len(found) == 0 {
		list = "none"
	}
	err := safeio.Unsupportedf("there is no column %q; the columns are: %s", asked, list)
	if asked == "" {
		err = safeio.Unsupportedf("none of the columns %s is there; the columns are: %s", strings.Join(Columns[:], ", "), list)
	}
	return &safeio.Error{Op: "choose column", Off: -1, Hint: "name the column with --calib-column", Err: err}
}

// jsonDocument reads a value as text (a string), ids (an array of integers) or messages (an array of objects). Null is
// an empty document.
func jsonDocument(v safeio.Value) (Document, error) {
	switch v.Kind() {
	case safeio.Invalid, safeio.Null:
		return Document{}, nil
	case safeio.String:
		s, err := v.Str()
		return Document{Text: s}, err
	case safeio.Array:
		for item := range v.Items() {
			if item.Kind() == safeio.Object {
				m, err := chat.ParseMessages(v)
				return Document{Messages: m}, err
			}
			break
		}
		ids, err := jsonIDs(v)
		return Document{IDs: ids}, err
	}
	return Document{}, safeio.Unsupportedf("%s is no document; wanted a string, an array of integers or an array of messages", v.Kind())
}

// jsonIDs reads an array of token ids. Their bound by the vocabulary is checked later; here they must fit their type.
func jsonIDs(v safeio.Value) ([]int32, error) {
	var ids []int32
	for item := range v.Items() {
		if item.Kind() != safeio.Number {
			return nil, safeio.Unsupportedf("an array that holds %s is no document; wanted integers or messages", item.Kind())
		}
		id, err := item.Int()
		if err != nil {
			return nil, err
		}
		if id < 0 || id > math.MaxInt32 {
			return nil, safeio.Corruptf("%d is no token id", id)
		}
		ids = append(ids, int32(id))
	}
	return ids, nil
}
