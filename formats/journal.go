package formats

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strconv"

	"github.com/llmquant/quantize/formats/safeio"
)

// A journal is a text file of one record per line:
//
//	length of the JSON (8 hex digits) SPACE chained CRC-32C (8 hex digits) SPACE JSON NEWLINE
//
// The CRC of a line covers the CRC of the line before, so a line counts only behind exactly the lines it was written
// behind. Reading stops at the first line that is not whole: a crash while appending tears at most the last one, and
// everything behind a torn line was never promised.
const linePrefix = 8 + 1 + 8 + 1

// journalVersion is part of the first record; another version is another program's partial output.
const journalVersion = 2

// record is one line. Exactly one of its parts is set.
type record struct {
	Start   *startRecord   `json:"start,omitempty"`
	Unit    *unitRecord    `json:"unit,omitempty"`
	Blob    *blobRecord    `json:"blob,omitempty"`
	Publish *publishRecord `json:"publish,omitempty"`
}

// startRecord opens every journal: what is being made, out of what.
type startRecord struct {
	Version  int               `json:"version"`
	Key      string            `json:"key"`
	Describe map[string]string `json:"describe"`
	Plan     string            `json:"plan"` // digest of the container.Plan
}

// unitRecord says that these tensors are complete and durable.
type unitRecord struct {
	Name    string      `json:"name"`
	Tensors []tensorSum `json:"tensors"`
	State   string      `json:"state"` // base64
}

// tensorSum is a tensor and the checksum of its bytes.
type tensorSum struct {
	Name string `json:"name"`
	Sum  string `json:"crc"`
}

// blobRecord says that a blob is complete and durable in a file of the work directory.
type blobRecord struct {
	Name string `json:"name"`
	File string `json:"file"`
	Size int64  `json:"size"`
	Sum  string `json:"crc"`
}

// publishRecord says that everything is verified and durable and that renames may have begun.
type publishRecord struct {
	Files []string `json:"files"` // names to move, in order; empty when the directory moves as a whole
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chainSum continues the chain of line checksums.
func chainSum(previous uint32, text []byte) uint32 {
	var seed [4]byte
	binary.LittleEndian.PutUint32(seed[:], previous)
	return crc32.Update(crc32.Checksum(seed[:], castagnoli), castagnoli, text)
}

// encodeLine renders a record behind a line with checksum previous, and returns its own checksum.
func encodeLine(r record, previous uint32) (line []byte, sum uint32, err error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, 0, err
	}
	sum = chainSum(previous, text)
	return fmt.Appendf(nil, "%08x %08x %s\n", len(text), sum, text), sum, nil
}

// parsedLine is a record with its place in the journal.
type parsedLine struct {
	record
	end int64  // offset behind the line
	sum uint32 // its checksum
}

// parseJournal returns the records up to the first line that is not whole. A line that is whole but says something
// impossible is an error: no crash writes that.
func parseJournal(data []byte) ([]parsedLine, error) {
	var lines []parsedLine
	var sum uint32
	for at := 0; ; {
		text, length := nextLine(data[at:], sum)
		if text == nil {
			return lines, nil
		}
		sum = chainSum(sum, text)
		at += length
		r, err := parseRecord(text)
		if err == nil && (r.Start != nil) != (len(lines) == 0) {
			err = safeio.Corruptf("a start record belongs at the start and nowhere else")
		}
		if err != nil {
			return nil, &safeio.Error{Op: "read", Off: int64(at - length), Err: err}
		}
		lines = append(lines, parsedLine{r, int64(at), sum})
	}
}

// nextLine returns the JSON of the first line of data when it is whole, and the line's length.
func nextLine(data []byte, previous uint32) (text []byte, length int) {
	if len(data) < linePrefix || data[8] != ' ' || data[17] != ' ' {
		return nil, 0
	}
	n, err1 := strconv.ParseUint(string(data[:8]), 16, 32)
	want, err2 := strconv.ParseUint(string(data[9:17]), 16, 32)
	if err1 != nil || err2 != nil || n >= uint64(len(data)-linePrefix) {
		return nil, 0
	}
	length = linePrefix + int(n) + 1
	text = data[linePrefix : length-1]
	if data[length-1] != '\n' || chainSum(previous, text) != uint32(want) {
		return nil, 0
	}
	return text, length
}

// parseRecord reads one record and accepts exactly the text that would be written for it: no other spelling, order or
// member can mean anything.
func parseRecord(text []byte) (record, error) {
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return r, safeio.Corruptf("%v", err)
	}
	if err := r.check(); err != nil {
		return r, err
	}
	again, err := json.Marshal(r)
	if err != nil || !bytes.Equal(again, text) {
		return r, safeio.Corruptf("a record that this program does not write")
	}
	return r, nil
}

// check validates what the job will rely on.
func (r *record) check() error {
	switch {
	case r.Start != nil:
		if r.Start.Version != journalVersion {
			return safeio.Unsupportedf("journal version %d; this program writes version %d", r.Start.Version, journalVersion)
		}
	case r.Unit != nil:
		for _, t := range r.Unit.Tensors {
			if !isSum(t.Sum) {
				return safeio.Corruptf("unit %q: the checksum of tensor %q is malformed", r.Unit.Name, t.Name)
			}
		}
		if _, err := base64.StdEncoding.DecodeString(r.Unit.State); err != nil {
			return safeio.Corruptf("unit %q: the state is malformed", r.Unit.Name)
		}
	case r.Blob != nil:
		if !isSum(r.Blob.Sum) || r.Blob.Size < 0 {
			return safeio.Corruptf("blob %q: size or checksum is malformed", r.Blob.Name)
		}
		return safeio.CheckName(r.Blob.File)
	case r.Publish != nil:
		return safeio.CheckNames(r.Publish.Files)
	default:
		return safeio.Corruptf("an empty record")
	}
	return nil
}
