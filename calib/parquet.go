package calib

import (
	"crypto/sha256"
	"encoding/hex"
	"io"

	"github.com/llmquant/quantize/calib/chat"
	"github.com/llmquant/quantize/calib/parquet"
	"github.com/llmquant/quantize/formats/safeio"
)

// readParquet reads one column of a Parquet file. The hash takes a pass of its own: the column is only a part of the
// file, and lies anywhere in it.
func (r *fileReader) readParquet(f io.ReaderAt, size int64) error {
	h := sha256.New()
	n, err := io.Copy(h, &cancelled{r: io.NewSectionReader(f, 0, size), file: r})
	if err != nil {
		return err
	}
	if n != size {
		return safeio.Corruptf("the file shrank from %d to %d bytes", size, n)
	}
	r.stat.SHA256 = hex.EncodeToString(h.Sum(nil))

	table, err := parquet.Open(f, size)
	if err != nil {
		return err
	}
	column, err := chooseColumn(table, r.src.opts.Column)
	if err != nil {
		return err
	}
	row := int64(0)
	for v, err := range table.Read(r.ctx, column) {
		if err != nil {
			return err
		}
		row++
		d := Document{Text: v.Text, IDs: v.IDs, Row: row}
		size := len(v.Text) + 4*len(v.IDs)
		for _, turn := range v.Turns {
			if column.ShareGPT() {
				d.Messages = append(d.Messages, chat.FromShareGPT(turn.Speaker, turn.Text))
			} else {
				d.Messages = append(d.Messages, chat.NewMessage(turn.Speaker, turn.Text))
			}
			size += len(turn.Speaker) + len(turn.Text)
		}
		if err := r.grow(size); err != nil {
			return inRow("row", row, err)
		}
		if err := r.emit(d); err != nil {
			return err
		}
	}
	return nil
}

// chooseColumn takes the column asked for, or the first of Columns that can be read.
func chooseColumn(table *parquet.File, asked string) (parquet.Column, error) {
	var found []string
	for _, c := range table.Columns() {
		found = append(found, c.Name)
	}
	if asked != "" {
		c, ok := table.Column(asked)
		if !ok {
			return c, noColumn(asked, found)
		}
		return c, c.Err()
	}
	var unreadable error
	for _, name := range Columns {
		c, ok := table.Column(name)
		if ok && c.Kind != parquet.Other {
			return c, nil
		}
		if ok && unreadable == nil {
			unreadable = c.Err()
		}
	}
	if unreadable != nil {
		return parquet.Column{}, unreadable
	}
	return parquet.Column{}, noColumn("", found)
}

// cancelled is a reader that ends with its context.
type cancelled struct {
	r    io.Reader
	file *fileReader
}

func (c *cancelled) Read(p []byte) (int, error) {
	if err := c.file.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
