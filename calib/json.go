package calib

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/llmquant/quantize/formats/safeio"
)

// readLines reads one JSON value per line; blank lines are nothing.
func (r *fileReader) readLines(body *bufio.Reader) error {
	for line := int64(1); ; line++ {
		text, err := readLine(body, r.src.opts.Limits.Line)
		if err != nil && err != io.EOF {
			return inRow("line", line, err)
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			if err := r.jsonRow(string(text), line); err != nil {
				return inLine(line, err)
			}
		}
		if err == io.EOF {
			return r.pick.finish()
		}
	}
}

// inLine names the line of an error, except of those that are about no line.
func inLine(line int64, err error) error {
	if errors.Is(err, errStop) {
		return err
	}
	return inRow("line", line, err)
}

// readLine returns the next line without its end. The buffer grows with what arrives, up to limit.
func readLine(body *bufio.Reader, limit int) ([]byte, error) {
	line, err := body.ReadSlice('\n')
	if err == nil || err == io.EOF {
		return line, err
	}
	var long []byte
	for errors.Is(err, bufio.ErrBufferFull) {
		if long = append(long, line...); len(long) > limit {
			return nil, safeio.Limitf("longer than %d bytes", limit)
		}
		line, err = body.ReadSlice('\n')
	}
	return append(long, line...), err
}

// readJSON reads a JSON file: an array whose elements are rows, or one value after another.
func (r *fileReader) readJSON(body *bufio.Reader) error {
	s := &jsonSplitter{r: body, limit: int64(r.src.opts.Limits.Line)}
	c, err := s.peek()
	if err == io.EOF {
		return safeio.Corruptf("the file holds no JSON value")
	}
	if err != nil {
		return err
	}
	array := c == '['
	if array {
		body.Discard(1)
	} else {
		s.limit = r.src.opts.Limits.Document // a single object may be large
	}
	for row := int64(1); ; row++ {
		text, err := s.next(array, row == 1)
		if err == io.EOF {
			return r.pick.finish()
		}
		if err == nil {
			err = r.jsonRow(text, row)
		}
		if err != nil {
			if errors.Is(err, errStop) {
				return err
			}
			return inRow("element", row, err)
		}
	}
}

// jsonSplitter cuts a stream into JSON values without reading it whole. It finds only where a value ends; ParseJSON
// checks what is in it.
type jsonSplitter struct {
	r     *bufio.Reader
	limit int64
	buf   []byte
}

// peek skips white space and returns the byte behind it.
func (s *jsonSplitter) peek() (byte, error) {
	for {
		c, err := s.r.ReadByte()
		if err != nil {
			return 0, err
		}
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c, s.r.UnreadByte()
		}
	}
}

// next returns the next value; io.EOF behind the last. Inside of an array it also consumes commas and the bracket.
func (s *jsonSplitter) next(array, first bool) (string, error) {
	c, err := s.peek()
	if err == io.EOF && array {
		return "", safeio.Corruptf("the array is not closed")
	}
	if err != nil {
		return "", err
	}
	if array && c == ']' {
		s.r.Discard(1)
		if _, err := s.peek(); err != io.EOF {
			if err == nil {
				err = safeio.Corruptf("text follows the array")
			}
			return "", err
		}
		return "", io.EOF
	}
	if array && !first {
		if c != ',' {
			return "", safeio.Corruptf("a comma is missing")
		}
		s.r.Discard(1)
		if _, err := s.peek(); err != nil {
			return "", safeio.Corruptf("the array is not closed")
		}
	}
	return s.value()
}

// value consumes one value: up to the bracket that closes it, the quote, or what cannot belong to a scalar.
func (s *jsonSplitter) value() (string, error) {
	s.buf = s.buf[:0]
	depth, quoted, escaped := 0, false, false
	for {
		c, err := s.r.ReadByte()
		if err == io.EOF {
			if depth > 0 || quoted {
				return "", safeio.Corruptf("the file ends inside of a value")
			}
			return string(s.buf), nil
		}
		if err != nil {
			return "", err
		}
		if !quoted && depth == 0 && len(s.buf) > 0 && bytes.IndexByte([]byte(" \t\r\n,]}[{\""), c) >= 0 {
			return string(s.buf), s.r.UnreadByte() // the scalar ended
		}
		if s.buf = append(s.buf, c); int64(len(s.buf)) > s.limit {
			return "", safeio.Limitf("longer than %d bytes", s.limit)
		}
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped = c == '\\'
			if c == '"' {
				if quoted = false; depth == 0 {
					return string(s.buf), nil
				}
			}
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth <= 0 {
				return string(s.buf), nil
			}
		}
	}
}
