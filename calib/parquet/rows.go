package parquet

import (
	"context"
	"iter"
	"math"

	"github.com/llmquant/quantize/formats/safeio"
)

// Row is one row of a column. Of Text, IDs and Turns the column's kind says which is set.
type Row struct {
	Null  bool // null, or an empty list
	Text  string
	IDs   []int32
	Turns []Turn
}

// Turn is one element of a list of messages; a null text is empty.
type Turn struct{ Speaker, Text string }

// Bounds of one row. Levels and dictionaries repeat at almost no cost in the file, so what a row holds is bounded by
// itself.
const (
	maxRowIDs   = 8 << 20
	maxRowTurns = 64 << 10
	maxRowText  = 64 << 20 // bytes of all turns
)

// Read yields the rows of a column in order. After an error it stops.
func (f *File) Read(ctx context.Context, c Column) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		if err := f.Check(c); err != nil {
			yield(Row{}, err)
			return
		}
		for g := range f.groups {
			if !f.readGroup(ctx, g, c, yield) {
				return
			}
		}
	}
}

// readGroup yields the rows of one row group and tells whether to go on.
func (f *File) readGroup(ctx context.Context, g int, c Column, yield func(Row, error) bool) bool {
	readers := make([]*leafReader, len(c.leaves))
	for i, leaf := range c.leaves {
		readers[i] = f.leafReader(g, leaf)
		defer readers[i].close()
	}
	for range f.groups[g].rows {
		if err := ctx.Err(); err != nil {
			yield(Row{}, err)
			return false
		}
		row, err := readRow(c, readers)
		if !yield(row, err) || err != nil {
			return false
		}
	}
	for _, r := range readers {
		if r.i < r.n || r.left > 0 {
			yield(Row{}, inChunk(g, r.leaf, safeio.Corruptf("its values make more rows than the %d declared", f.groups[g].rows)))
			return false
		}
	}
	return true
}

// readRow assembles one row from the readers of its leaves, which are all at its beginning.
func readRow(c Column, readers []*leafReader) (Row, error) {
	switch c.Kind {
	case Text:
		return readers[0].textRow()
	case IDs:
		return readers[0].idsRow()
	}
	return messagesRow(readers)
}

// more makes sure that there is an entry; it fails at the end of the chunk.
func (l *leafReader) more() error {
	if l.i < l.n {
		return nil
	}
	if l.left == 0 {
		return inChunk(l.group, l.leaf, safeio.Corruptf("its values make fewer rows than declared"))
	}
	return l.fill()
}

// take consumes an entry and tells whether its value is there; value is then its index in the batch.
func (l *leafReader) take() (value int, present bool, def int16) {
	def = int16(l.leaf.maxDef)
	if def > 0 {
		def = l.def[l.i]
	}
	l.i++
	if int(def) < l.leaf.maxDef {
		return 0, false, def
	}
	l.v++
	return l.v - 1, true, def
}

// textRow reads a string. It is copied: the page it lies in shall not be kept alive by it.
func (l *leafReader) textRow() (Row, error) {
	if err := l.more(); err != nil {
		return Row{}, err
	}
	v, ok, _ := l.take()
	if !ok {
		return Row{Null: true}, nil
	}
	return Row{Text: string(l.strings[v])}, nil
}

// elements visits the elements of the list in the current row: an entry with repetition level 0 begins it, those that
// repeat follow. An entry defined below the list itself is no element.
func (l *leafReader) elements(visit func(value int, present bool) error) error {
	listDef := l.leaf.listDef()
	for first := true; ; first = false {
		if !first && l.i >= l.n && l.left == 0 {
			return nil
		}
		if err := l.more(); err != nil {
			return err
		}
		switch begins := l.rep[l.i] == 0; {
		case first && !begins:
			return inChunk(l.group, l.leaf, safeio.Corruptf("a row begins inside of a list"))
		case !first && begins:
			return nil
		}
		v, ok, def := l.take()
		if def < listDef {
			if !first {
				return inChunk(l.group, l.leaf, safeio.Corruptf("an empty list has further elements"))
			}
			continue
		}
		if err := visit(v, ok); err != nil {
			return inChunk(l.group, l.leaf, err)
		}
	}
}

// idsRow reads a list of ids.
func (l *leafReader) idsRow() (Row, error) {
	var row Row
	err := l.elements(func(v int, ok bool) error {
		if !ok {
			return safeio.Corruptf("a list of ids contains null")
		}
		id := int64(0)
		if l.int32s != nil {
			id = int64(l.int32s[v])
		} else {
			id = l.int64s[v]
		}
		if id < 0 || id > math.MaxInt32 {
			return safeio.Corruptf("%d is no token id", id)
		}
		if len(row.IDs) >= maxRowIDs {
			return safeio.Limitf("a row has more than %d ids", maxRowIDs)
		}
		row.IDs = append(row.IDs, int32(id))
		return nil
	})
	row.Null = len(row.IDs) == 0
	return row, err
}

// messagesRow reads the speakers of a conversation, then its texts: two leaves whose lists must be equally long.
func messagesRow(readers []*leafReader) (Row, error) {
	var row Row
	size, n := 0, 0
	text := func(l *leafReader, v int, ok bool) (string, error) {
		if !ok {
			return "", nil
		}
		if size += len(l.strings[v]); size > maxRowText {
			return "", safeio.Limitf("a conversation has more than %d bytes", maxRowText)
		}
		return string(l.strings[v]), nil
	}
	err := readers[0].elements(func(v int, ok bool) error {
		if len(row.Turns) >= maxRowTurns {
			return safeio.Limitf("a conversation has more than %d turns", maxRowTurns)
		}
		s, err := text(readers[0], v, ok)
		row.Turns = append(row.Turns, Turn{Speaker: s})
		return err
	})
	if err != nil {
		return row, err
	}
	err = readers[1].elements(func(v int, ok bool) error {
		if n++; n > len(row.Turns) {
			return nil // told below
		}
		s, err := text(readers[1], v, ok)
		row.Turns[n-1].Text = s
		return err
	})
	if err == nil && n != len(row.Turns) {
		err = inChunk(readers[1].group, readers[1].leaf, safeio.Corruptf("a conversation has %d speakers and %d texts", len(row.Turns), n))
	}
	row.Null = n == 0
	return row, err
}
