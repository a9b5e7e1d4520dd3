package parquet

import (
	"fmt"

	"github.com/llmquant/quantize/formats/safeio"
)

// maxValuesPerByte bounds the values of a column by the size of the file, beyond a first maxValues: nulls and runs take
// almost no bytes, and reading them would take forever.
const maxValuesPerByte = 64

// checkChunk walks the page headers of a column chunk without reading the pages.
func (f *File) checkChunk(c chunk, leaf *node) error {
	w := &pageWalk{f: f, c: c, leaf: leaf}
	for {
		h, ok, err := w.next()
		if err != nil || !ok {
			return err
		}
		if h.typ != pageDictionary {
			if err := checkEncoding(leaf, h.encoding); err != nil {
				return err
			}
		}
		w.skip(h)
	}
}

// checkEncoding refuses early what checkValues would refuse late.
func checkEncoding(leaf *node, encoding int64) error {
	switch {
	case encoding == encPlain, encoding == encPlainDict, encoding == encRLEDict,
		encoding == encDelta && leaf.typ != typeByteArray, encoding == encDeltaLength && leaf.typ == typeByteArray:
		return nil
	}
	return safeio.Unsupportedf("values of type %s in encoding %d", typeNames[leaf.typ], encoding)
}

// pageWalk visits the pages of a chunk that matter: one dictionary at most, in front, then data pages up to the
// chunk's number of values.
type pageWalk struct {
	f          *File
	c          chunk
	leaf       *node
	off        int64 // into the chunk
	values     int64 // in the data pages so far
	dictionary bool
}

// next reads headers up to the next page that matters; false behind the last value.
func (w *pageWalk) next() (header, bool, error) {
	for w.values < w.c.values {
		if w.off >= w.c.size {
			return header{}, false, safeio.Corruptf("the pages hold %d of %d values", w.values, w.c.values)
		}
		h, err := readHeader(w.f.r, w.c.start+w.off, w.c.size-w.off)
		if err != nil {
			return h, false, err
		}
		switch h.typ {
		case pageDictionary:
			if w.dictionary || w.values > 0 {
				return h, false, safeio.Corruptf("a dictionary stands behind other pages")
			}
			if h.encoding != encPlain && h.encoding != encPlainDict {
				return h, false, safeio.Unsupportedf("a dictionary in encoding %d", h.encoding)
			}
			w.dictionary = true
			return h, true, nil
		case pageData, pageDataV2:
			if h.values > w.c.values-w.values {
				return h, false, safeio.Corruptf("the pages hold more than %d values", w.c.values)
			}
			return h, true, nil
		}
		w.skip(h) // index pages and types yet to be invented
	}
	return header{}, false, nil
}

// skip moves behind a page.
func (w *pageWalk) skip(h header) {
	w.off += h.length + h.compressed
	if h.typ == pageData || h.typ == pageDataV2 {
		w.values += h.values
	}
}

// pages decompresses and proves the pages of a chunk one by one. It is the source Arrow reads from.
type pages struct {
	walk  pageWalk
	codec codec
	dict  int // values of the dictionary, -1: none
	err   error
}

// pages begins at the start of a chunk.
func (f *File) pages(group int, leaf *node) *pages {
	c := f.groups[group].chunks[leaf.leaf]
	return &pages{walk: pageWalk{f: f, c: c, leaf: leaf}, codec: codec{id: c.codec}, dict: -1}
}

// next returns the next page, nil at the end or on error.
func (p *pages) next() *page {
	if p.err != nil {
		return nil
	}
	h, ok, err := p.walk.next()
	if err != nil || !ok {
		p.err = err
		return nil
	}
	off := p.walk.c.start + p.walk.off
	pg, err := p.prove(off, h)
	if err != nil {
		p.err = &safeio.Error{Op: "read parquet page", Off: off, Err: err}
		return nil
	}
	p.walk.skip(h)
	return pg
}

// prove reads a page and checks all of its content; afterwards Arrow can only succeed.
func (p *pages) prove(off int64, h header) (*page, error) {
	pg, err := readPage(p.walk.f.r, off, h, &p.codec)
	if err != nil {
		return nil, err
	}
	if h.typ == pageDictionary {
		p.dict = int(h.values)
		return pg, checkValues(p.walk.leaf, encPlain, pg.data, p.dict, -1)
	}
	present, values, err := pg.levels(p.walk.leaf)
	if err != nil {
		return nil, err
	}
	return pg, checkValues(p.walk.leaf, h.encoding, values, present, p.dict)
}

// Check walks the page headers of a column in all row groups, so that a damaged file fails before its first row is
// used rather than after its last but one.
func (f *File) Check(c Column) error {
	if err := c.Err(); err != nil {
		return err
	}
	for _, leaf := range c.leaves {
		budget := int64(maxValues)
		if most := int64(1<<62) / maxValuesPerByte; f.size < most {
			budget += f.size * maxValuesPerByte
		}
		for g := range f.groups {
			ch := f.groups[g].chunks[leaf.leaf]
			err := checkCodec(ch.codec)
			if budget -= min(ch.values, budget+1); err == nil && budget < 0 {
				err = safeio.Limitf("the column claims more values than a file of %d bytes can reasonably hold", f.size)
			}
			if err == nil {
				err = f.checkChunk(ch, leaf)
			}
			if err != nil {
				return inChunk(g, leaf, err)
			}
		}
	}
	return nil
}

// inChunk names the row group and the column of an error.
func inChunk(group int, leaf *node, err error) error {
	return fmt.Errorf("row group %d, column %q: %w", group, leaf.path(), err)
}
