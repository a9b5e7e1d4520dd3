package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/llmquant/quantize/formats/safeio"
)

const (
	magic          = "PAR1"
	encryptedMagic = "PARE"
	// maxFooter bounds the metadata: ten thousand row groups of a hundred columns with statistics need half of it.
	maxFooter = 256 << 20
	// maxElements bounds the schema.
	maxElements = 100_000
)

// File is an opened Parquet file whose footer has been checked.
type File struct {
	r      io.ReaderAt
	size   int64
	footer int64 // offset of the metadata: no column chunk may reach it
	root   *node
	leaves []*node
	groups []rowGroup
	rows   int64
}

type rowGroup struct {
	rows   int64
	chunks []chunk // one per leaf
}

// chunk is a column chunk: where its pages lie.
type chunk struct {
	codec  int32
	values int64 // with nulls and one for each empty list
	start  int64 // first page, the dictionary when there is one
	size   int64 // compressed, with page headers
}

// Open reads and checks the footer. The errors name no file: the caller knows it.
func Open(r io.ReaderAt, size int64) (*File, error) {
	f := &File{r: r, size: size}
	meta, err := f.readFooter()
	if err != nil {
		return nil, err
	}
	t := &thrift{b: meta}
	if err := f.parse(t); err != nil {
		if errors.Is(err, errShort) {
			err = safeio.Corruptf("the footer ends inside of a structure")
		}
		return nil, &safeio.Error{Op: "read parquet footer", Off: f.footer + int64(t.i), Err: err}
	}
	return f, nil
}

// readFooter finds the metadata: its length and a magic number end the file.
func (f *File) readFooter() ([]byte, error) {
	if f.size < int64(len(magic)+8) {
		return nil, safeio.Corruptf("%d bytes are too few for a parquet file", f.size)
	}
	var head [4]byte
	var tail [8]byte
	if err := safeio.ReadFullAt(f.r, head[:], 0); err != nil {
		return nil, err
	}
	if err := safeio.ReadFullAt(f.r, tail[:], f.size-8); err != nil {
		return nil, err
	}
	switch {
	case string(head[:]) == encryptedMagic || string(tail[4:]) == encryptedMagic:
		return nil, safeio.Unsupportedf("the file is encrypted")
	case string(head[:]) != magic || string(tail[4:]) != magic:
		return nil, safeio.Corruptf("the file does not begin and end with %q: it is no parquet file, or was cut off", magic)
	}
	n := int64(binary.LittleEndian.Uint32(tail[:4]))
	if n > f.size-12 {
		return nil, safeio.Corruptf("the footer claims %d bytes of a file of %d", n, f.size)
	}
	if n > maxFooter {
		return nil, safeio.Limitf("the footer has %d bytes, over the limit of %d", n, int64(maxFooter))
	}
	f.footer = f.size - 8 - n
	return safeio.ReadBytes(io.NewSectionReader(f.r, f.footer, n), n)
}

// parse walks FileMetaData. Row groups are checked against the schema, so the schema must come first, as every writer
// puts it.
func (f *File) parse(t *thrift) error {
	rows := int64(-1)
	err := t.structure(func(id int64, typ byte) (done bool, err error) {
		switch id {
		case 2:
			return true, f.parseSchema(t, typ)
		case 3:
			rows, err = t.integer(typ)
			return true, err
		case 4:
			return true, f.parseGroups(t, typ)
		case 8:
			return false, safeio.Unsupportedf("the file is encrypted")
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	if f.root == nil {
		return safeio.Corruptf("the footer has no schema")
	}
	if rows != f.rows {
		return safeio.Corruptf("the row groups have %d rows, the file claims %d", f.rows, rows)
	}
	return nil
}

// parseGroups walks the row groups and adds up their rows.
func (f *File) parseGroups(t *thrift, typ byte) error {
	if f.root == nil {
		return safeio.Corruptf("the row groups stand before the schema")
	}
	elem, n, err := t.list(typ)
	if err != nil {
		return err
	}
	if n > 0 && elem != tStruct {
		return wrongType(elem)
	}
	for i := range n {
		g, err := f.parseGroup(t)
		if err != nil {
			if !errors.Is(err, errShort) {
				err = fmt.Errorf("row group %d: %w", i, err)
			}
			return err
		}
		f.groups = append(f.groups, g)
		if f.rows += g.rows; f.rows < 0 {
			return safeio.Corruptf("the number of rows overflows")
		}
	}
	return nil
}

// parseGroup walks RowGroup. Without lists every row has one value, with lists at least one.
func (f *File) parseGroup(t *thrift) (rowGroup, error) {
	g := rowGroup{rows: -1}
	err := t.structure(func(id int64, typ byte) (done bool, err error) {
		switch id {
		case 1:
			return true, f.parseChunks(t, typ, &g)
		case 3:
			g.rows, err = t.integer(typ)
			return true, err
		}
		return false, nil
	})
	switch {
	case err != nil:
		return g, err
	case g.rows < 0:
		return g, safeio.Corruptf("it has %d rows", g.rows)
	case len(g.chunks) != len(f.leaves):
		return g, safeio.Corruptf("it has %d columns, the schema %d", len(g.chunks), len(f.leaves))
	}
	for i, c := range g.chunks {
		leaf := f.leaves[i]
		if leaf.maxRep == 0 && c.values != g.rows || c.values < g.rows {
			return g, safeio.Corruptf("column %q has %d values in %d rows", leaf.path(), c.values, g.rows)
		}
	}
	return g, nil
}

// parseChunks walks the column chunks, which stand in the order of the leaves.
func (f *File) parseChunks(t *thrift, typ byte, g *rowGroup) error {
	elem, n, err := t.list(typ)
	if err != nil {
		return err
	}
	if n != len(f.leaves) {
		return safeio.Corruptf("it has %d columns, the schema %d", n, len(f.leaves))
	}
	if n > 0 && elem != tStruct {
		return wrongType(elem)
	}
	g.chunks = make([]chunk, 0, n) // n elements take at least n bytes of the footer
	for _, leaf := range f.leaves {
		c, err := f.parseChunk(t, leaf)
		if err != nil {
			if !errors.Is(err, errShort) {
				err = fmt.Errorf("column %q: %w", leaf.path(), err)
			}
			return err
		}
		g.chunks = append(g.chunks, c)
	}
	return nil
}

// parseChunk walks ColumnChunk.
func (f *File) parseChunk(t *thrift, leaf *node) (chunk, error) {
	var c chunk
	found := false
	err := t.structure(func(id int64, typ byte) (done bool, err error) {
		switch id {
		case 1:
			return false, safeio.Unsupportedf("its data lies in another file")
		case 3:
			if typ != tStruct {
				return false, wrongType(typ)
			}
			found = true
			c, err = f.parseColumnMeta(t, leaf)
			return true, err
		case 8, 9:
			return false, safeio.Unsupportedf("it is encrypted")
		}
		return false, nil
	})
	if err == nil && !found {
		err = safeio.Corruptf("it has no metadata")
	}
	return c, err
}

// parseColumnMeta walks ColumnMetaData.
func (f *File) parseColumnMeta(t *thrift, leaf *node) (chunk, error) {
	c := chunk{values: -1, size: -1, codec: -1}
	phys, data, dict := int64(-1), int64(-1), int64(-1)
	err := t.structure(func(id int64, typ byte) (done bool, err error) {
		var codec int64
		switch id {
		case 1:
			phys, err = t.integer(typ)
		case 3:
			err = checkPath(t, typ, leaf)
		case 4:
			codec, err = t.integer(typ)
			c.codec = int32(codec)
		case 5:
			c.values, err = t.integer(typ)
		case 7:
			c.size, err = t.integer(typ)
		case 9:
			data, err = t.integer(typ)
		case 11:
			dict, err = t.integer(typ)
		default:
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return c, err
	}
	if int32(phys) != leaf.typ {
		return c, safeio.Corruptf("its type is %d, the schema says %d", phys, leaf.typ)
	}
	if c.values < 0 {
		return c, safeio.Corruptf("it has %d values", c.values)
	}
	c.start = data
	if dict > 0 && dict < data { // zero stands for none with some writers
		c.start = dict
	}
	if c.values > 0 && (c.start < int64(len(magic)) || c.size <= 0 || c.start > f.footer || c.size > f.footer-c.start) {
		return c, safeio.Corruptf("its data (%d bytes at %d) does not lie in front of the footer at %d", c.size, c.start, f.footer)
	}
	return c, nil
}

// checkPath compares path_in_schema with the leaf this chunk stands for.
func checkPath(t *thrift, typ byte, leaf *node) error {
	elem, n, err := t.list(typ)
	if err != nil {
		return err
	}
	names := leaf.names()
	if n != len(names) {
		return safeio.Corruptf("its path has %d parts, the schema %d", n, len(names))
	}
	for _, want := range names {
		got, err := t.binary(elem)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, []byte(want)) {
			return safeio.Corruptf("its path is not the one of the schema")
		}
	}
	return nil
}
