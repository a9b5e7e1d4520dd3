package quant

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"time"

	"github.com/llmquant/quantize/calib"
	"github.com/llmquant/quantize/formats"
)

// ReportName is the report's name inside an artifact directory.
const ReportName = "quantize_report.json"

const reportSchema = "quantize-report/1"

// open hashes the inputs and opens the output for this very job: the same inputs, recipe and version, or none.
func (j *job) open(ctx context.Context) error {
	j.event(Event{Kind: EventStage, Layer: -1, Stage: "inputs", Message: "reading and hashing the checkpoint"})
	var err error
	if j.inputs, err = hashFiles(ctx, j.src.Meta().Files); err != nil {
		return err
	}
	describe := j.describe()
	j.out, err = formats.OpenJob(ctx, formats.JobOptions{Out: j.opts.Out, Key: jobKey(describe), Describe: describe,
		Plan: j.plan.Out, Force: j.opts.Force, Inputs: inputPaths(j.src), Scratch: j.plan.Scratch})
	return err
}

// jobKey condenses a description.
func jobKey(describe map[string]string) string {
	keys := make([]string, 0, len(describe))
	for k := range describe {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	h := sha256.New()
	for _, k := range keys {
		fmt.Fprintf(h, "%q=%q\n", k, describe[k])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// inputPaths lists what the output must neither be nor contain.
func inputPaths(src formats.Checkpoint) []string { return []string{src.Meta().Path} }

// describe says what makes two runs the same job.
func (j *job) describe() map[string]string {
	d := map[string]string{
		"version": j.opts.Version,
		"config":  hashOf(j.src.Meta().Config),
		"recipe":  jsonText(j.recipeInfo()),
		"rounder": jsonText(j.recipe.Rounder), // its options, not all of which a report lists
		"plan":    jsonText(j.plan.stored()),
		"nan":     fmt.Sprint(j.opts.NaNZero),
	}
	for _, f := range j.inputs {
		d["input "+f.Name] = f.SHA256
	}
	if set := j.opts.Calib; set != nil && j.recipe.Needs() != 0 {
		d["calibration"] = calibrationKey(set)
	}
	return d
}

// calibrationKey identifies calibration windows.
func calibrationKey(set *calib.Set) string {
	return fmt.Sprintf("%d windows of %d tokens, %s", set.Windows, set.SeqLen, set.Hash())
}

func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func hashOf(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// hashFiles streams every file through SHA-256.
func hashFiles(ctx context.Context, files []formats.FileInfo) ([]FileHash, error) {
	out := make([]FileHash, len(files))
	buf := make([]byte, 256<<10) // fits into the second-level cache
	for i, f := range files {
		r, err := f.Open()
		if err != nil {
			return nil, err
		}
		h := sha256.New()
		_, err = io.CopyBuffer(h, contextReader{ctx, r}, buf)
		r.Close()
		if err != nil {
			return nil, err
		}
		out[i] = FileHash{Name: f.Name, Bytes: f.Size, SHA256: hex.EncodeToString(h.Sum(nil))}
	}
	return out, nil
}

// contextReader stops reading when its context is cancelled.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// resumed takes over what an earlier run finished.
func (j *job) resumed() error {
	for _, s := range j.out.States() {
		var u unitState
		if err := json.Unmarshal(s, &u); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		j.keepRows(u.Rows)
		j.mu.Lock()
		j.events = append(j.events, u.Events...)
		j.mu.Unlock()
	}
	return nil
}

// outsideUnit is the unit of everything outside the blocks.
const outsideUnit = "outside the blocks"

// remaining writes embeddings, head, final norm and tensors unknown to the family.
func (j *job) remaining(ctx context.Context) error {
	if j.out.Done(outsideUnit) {
		return nil
	}
	j.progress("copying the other tensors", 0.99)
	var rows []TensorReport
	var head *Layer
	if j.headCalibrated() {
		l, row, err := j.roundHead(ctx, j.stream)
		if err != nil {
			return fmt.Errorf("%s: %w", j.headLinear().Name, err)
		}
		head, rows = l, append(rows, row)
	}
	for i := range j.plan.Tensors {
		t := &j.plan.Tensors[i]
		if t.Layer >= 0 || head != nil && t.Linear == head.head.linear.Info {
			continue
		}
		row, err := j.writeOutside(ctx, t, head)
		if err != nil {
			return fmt.Errorf("%s: %w", t.Module(), err)
		}
		rows = append(rows, row)
	}
	return j.finish(outsideUnit, -1, rows)
}

// writeOutside writes one tensor outside the blocks; head holds what folding into the final norm changed.
func (j *job) writeOutside(ctx context.Context, t *PlannedTensor, head *Layer) (TensorReport, error) {
	switch {
	case t.Quantize:
		return j.roundOutside(ctx, t)
	case head != nil && head.changed[t.Info.Name]:
		return t.report(), j.writeFloats(t, head.values(t.Info.Name))
	}
	return t.report(), j.copyTensor(ctx, t)
}

// publish verifies the artifact, writes the report and gives the directory its final name.
func (j *job) publish(ctx context.Context) (*Report, error) {
	if err := j.src.Meta().Unchanged(); err != nil {
		return nil, err
	}
	j.event(Event{Kind: EventStage, Layer: -1, Stage: "verify", Message: "verifying and publishing"})
	last, err := j.plan.sideConfigs(j.src.Meta().Config, "quantize:"+j.opts.Version, j.recipe)
	if err != nil {
		return nil, err
	}
	rep := j.report()
	err = j.out.Publish(ctx, j.src.Meta().Side, func(files []formats.FileSum) (map[string][]byte, error) {
		rep.Files = fileHashes(files)
		rep.Seconds, rep.PeakMemory = time.Since(j.start).Seconds(), peakMemory()
		text, err := json.MarshalIndent(rep, "", "  ")
		last[ReportName] = append(text, '\n')
		return last, err
	})
	return rep, err
}

func fileHashes(sums []formats.FileSum) []FileHash {
	out := make([]FileHash, len(sums))
	for i, s := range sums {
		out[i] = FileHash{Name: s.Name, Bytes: s.Bytes, SHA256: s.SHA256}
	}
	return out
}
