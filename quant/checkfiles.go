package quant

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/safeio"
)

// maxReport bounds a report that is read back.
const maxReport = 256 << 20

// CheckFiles compares the weight files of an artifact with the checksums in its report. A checkpoint without a report
// passes: other tools write none.
func CheckFiles(ctx context.Context, c formats.Checkpoint) error {
	rep, err := readReport(c)
	if err != nil || rep == nil {
		return err
	}
	want := map[string]FileHash{}
	for _, f := range rep.Files {
		want[f.Name] = f
	}
	got, err := hashFiles(ctx, c.Meta().Files)
	if err != nil {
		return err
	}
	for _, g := range got {
		if w, ok := want[g.Name]; ok && w != g {
			return &safeio.Error{Op: "verify", Path: g.Name, Off: -1, Hint: "copy or quantize it again",
				Err: &damaged{"its checksum is not the one in " + ReportName}}
		}
	}
	return nil
}

// damaged is a file that is not what was written, of the class of failed verifications.
type damaged struct{ text string }

func (d *damaged) Error() string { return d.text }
func (d *damaged) Unwrap() error { return safeio.ErrVerify }

// readReport returns the report that lies beside an artifact's weights, nil when there is none.
func readReport(c formats.Checkpoint) (*Report, error) {
	path := filepath.Join(c.Meta().Path, ReportName)
	text, err := safeio.ReadFile(path, maxReport)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var rep Report
	if err := json.Unmarshal(text, &rep); err != nil {
		return nil, &safeio.Error{Op: "read", Path: path, Off: -1, Err: safeio.Corruptf("%v", err)}
	}
	return &rep, nil
}
