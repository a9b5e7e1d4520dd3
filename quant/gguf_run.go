package quant

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/gguf"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
	"github.com/llmquant/quantize/quant/grid/ggml"
)

// RunGGUF writes src as a GGUF file of the recipe's types, tensor by tensor and a few rows at a time, straight from the
// checkpoint. The bytes are those of llama-quantize for the same types and importance.
func RunGGUF(ctx context.Context, src formats.Checkpoint, r GGUFRecipe, o Options) (*Report, error) {
	start := time.Now()
	p, err := PlanGGUF(ctx, src, r, o)
	if err != nil {
		return nil, err
	}
	g := &ggufJob{job: &job{src: src, opts: &o, pool: newPool(o.Threads), start: start, recipe: &Recipe{}, plan: p.blocks}, plan: p, recipe: &r}
	if r.blockwise() {
		g.job.recipe = r.recipe(p)
	}
	ctx = context.WithValue(ctx, eventKey{}, g.event)
	g.notes(p.Notes)
	if err := g.open(ctx); err != nil {
		return nil, err
	}
	defer g.out.Close()
	defer func() { g.stream.close() }()
	if err := g.resumed(); err != nil {
		return nil, err
	}
	fill := g.tensors
	if r.blockwise() {
		fill = g.runBlocks
	}
	if err := fill(ctx); err != nil {
		return nil, err
	}
	return g.publish(ctx)
}

// ggufJob is one GGUF run in progress.
type ggufJob struct {
	*job
	plan   *GGUFPlan
	recipe *GGUFRecipe
}

func (g *ggufJob) open(ctx context.Context) error {
	g.event(Event{Kind: EventStage, Layer: -1, Stage: "inputs", Message: "reading and hashing the model"})
	var err error
	if g.inputs, err = hashFiles(ctx, g.src.Meta().Files); err != nil {
		return err
	}
	describe := map[string]string{
		"version": g.opts.Version,
		"recipe":  jsonText(g.recipeInfo()),
		"config":  hashOf(g.src.Meta().Config),
		"layout":  hashOf(g.plan.Out.Files[0].Header),
	}
	if m := g.recipe.Imatrix; m != nil {
		describe["importance"] = hashOf([]byte(jsonText(m)))
	}
	for _, f := range g.inputs {
		describe["input "+f.Name] = f.SHA256
	}
	if g.recipe.blockwise() {
		describe["calibration"] = calibrationKey(g.opts.Calib)
	}
	out := filepath.Join(filepath.Dir(g.opts.Out), g.plan.Out.Files[0].Name)
	g.out, err = formats.OpenJob(ctx, formats.JobOptions{Out: out, Key: jobKey(describe), Describe: describe, Plan: g.plan.Out,
		Force: g.opts.Force, SingleFile: true, Inputs: inputPaths(g.src), Scratch: g.plan.Scratch})
	return err
}

func (g *ggufJob) recipeInfo() RecipeInfo {
	info := RecipeInfo{Method: kquantMethod, Format: "gguf", Rounder: kquantMethod, Settings: map[string]any{
		"type": g.recipe.Mixture.File.Name, "pure": g.recipe.Mixture.Pure, "imatrix": g.recipe.Imatrix != nil, "copy": g.recipe.Mixture.Copy}}
	if g.recipe.Rounder != nil {
		info.Method, info.Rounder = g.recipe.Rounder.Name(), g.recipe.Rounder.Name()
		info.Settings["rounding"] = g.recipe.Rounder
	}
	if g.recipe.BF16 {
		info.Settings[calibDType] = "bf16"
	}
	for _, t := range g.recipe.Transforms {
		info.Transforms = append(info.Transforms, t.Name())
	}
	return info
}

// unitBytes is how much output is made durable together: a killed run repeats no more.
const unitBytes = 256 << 20

// tensors fills every tensor in file order.
func (g *ggufJob) tensors(ctx context.Context) error {
	ts := g.plan.Header.Tensors
	var done int64
	for first := 0; first < len(ts); {
		last, size := first, int64(0)
		for last < len(ts) && (last == first || size+ts[last].Bytes <= unitBytes) {
			size += ts[last].Bytes
			last++
		}
		if err := g.unitOf(ctx, first, last, &done); err != nil {
			return err
		}
		first = last
	}
	return nil
}

func (g *ggufJob) unitOf(ctx context.Context, first, last int, done *int64) error {
	ts := g.plan.Header.Tensors
	unit := fmt.Sprintf("tensors %d to %d", first, last-1)
	if g.out.Done(unit) {
		for _, t := range ts[first:last] {
			*done += t.Bytes
		}
		return nil
	}
	var rows []TensorReport
	var names []string
	for i := first; i < last; i++ {
		g.progress(ts[i].Name, float64(*done)/float64(max(g.plan.Disk, 1)))
		row, err := g.tensor(ctx, i)
		if err != nil {
			return safeio.WithPath(err, g.src.Meta().Path)
		}
		rows, names = append(rows, row), append(names, ts[i].Name)
		*done += ts[i].Bytes
	}
	return g.finishUnit(unit, names, rows)
}

// tensor writes one tensor: copied when its type stays, otherwise encoded by rows.
func (g *ggufJob) tensor(ctx context.Context, i int) (TensorReport, error) {
	return g.tensorBy(ctx, i, nil)
}

// tensorBy does the same with a rounder in place of the reference search; nil: none.
func (g *ggufJob) tensorBy(ctx context.Context, i int, rounder rowRounder) (TensorReport, error) {
	t := &g.plan.Header.Tensors[i]
	row := TensorReport{Name: t.Name, Role: string(GGUFRole(t.Name)), Shape: t.Shape(), Grid: t.Type.String(), Bytes: t.Bytes,
		BitsPerWeight: bitsPer(t.Bytes, t.Elements())}
	if c := g.plan.Choices[i]; c.Type != c.Wanted {
		row.Fallback = fmt.Sprintf("%s instead of %s", c.Type, c.Wanted)
	}
	if stored, ok := g.plan.source.raw(t); ok && stored == t.Type {
		return row, g.copyRaw(ctx, t)
	}
	importance, err := g.importance(t)
	if err != nil {
		return row, err
	}
	e := &rowEncoder{t: t, importance: importance, rounder: rounder, zero: g.opts.NaNZero}
	if t.Type.DType() == tensor.Invalid {
		var ok bool
		if e.grid, ok = ggml.ByID(uint32(t.Type)); !ok || !e.grid.CanEncode() {
			return row, safeio.Unsupportedf("%s cannot be written", t.Type)
		}
	}
	err = g.encode(ctx, e)
	if e.power > 0 {
		row.RelError = math.Sqrt(e.err / e.power)
	}
	return row, err
}

// importance returns what the recipe's importance matrix says about the columns of a tensor, nil when it says nothing.
func (g *ggufJob) importance(t *gguf.Tensor) ([]float32, error) {
	if g.recipe.Imatrix == nil {
		return nil, nil
	}
	im, err := g.recipe.Imatrix.Importance(t)
	if err != nil || im == nil {
		return nil, err
	}
	if n := len(im.Unseen) + len(im.Zero); n > 0 {
		g.event(Event{Kind: EventFinding, Layer: -1, Tensor: t.Name, Count: int64(n), Message: fmt.Sprintf("%d matrices without importance: every column counts the same", n)})
	}
	return im.Values, nil
}

// copyRaw copies a tensor of the same type bit for bit.
func (g *ggufJob) copyRaw(ctx context.Context, t *gguf.Tensor) error {
	stored, _ := g.plan.source.file.Lookup(t.Name)
	var bad census
	for off := int64(0); off < t.Bytes; off += copyChunk {
		if err := ctx.Err(); err != nil {
			return err
		}
		buf := make([]byte, min(copyChunk, t.Bytes-off))
		if err := g.plan.source.file.ReadAt(stored, buf, off); err != nil {
			return err
		}
		bad.look(t.Type.DType(), buf, off/max(t.Type.DType().Size(), 1), g.opts.NaNZero)
		if err := g.out.Write(t.Name, off, buf); err != nil {
			return err
		}
	}
	return g.admit(bad, t.Name, t.Shape(), -1)
}

// publish verifies and publishes the file and its report.
func (g *ggufJob) publish(ctx context.Context) (*Report, error) {
	if err := g.src.Meta().Unchanged(); err != nil {
		return nil, err
	}
	g.event(Event{Kind: EventStage, Layer: -1, Stage: "verify", Message: "verifying and publishing"})
	rep := g.report()
	name := strings.TrimSuffix(filepath.Base(g.opts.Out), ".gguf") + ".report.json"
	err := g.out.Publish(ctx, nil, func(files []formats.FileSum) (map[string][]byte, error) {
		rep.Files = fileHashes(files)
		rep.Seconds, rep.PeakMemory = time.Since(g.start).Seconds(), peakMemory()
		text, err := json.MarshalIndent(rep, "", "  ")
		return map[string][]byte{name: append(text, '\n')}, err
	})
	return rep, err
}

func (g *ggufJob) report() *Report {
	rep := &Report{Schema: reportSchema, Tool: ToolInfo{Name: "quantize", Version: g.opts.Version}, Recipe: g.recipeInfo(),
		Inputs: g.inputs, Planned: g.plan.Memory, Events: g.events}
	roles := map[string]*RoleTotal{}
	var all, allBytes, quantized, quantizedBytes int64
	for i := range g.plan.Header.Tensors {
		t := &g.plan.Header.Tensors[i]
		row := g.rowOf(i)
		rep.Tensors = append(rep.Tensors, row)
		addRole(roles, row.Role, t.Elements(), t.Bytes)
		all, allBytes = all+t.Elements(), allBytes+t.Bytes
		if t.Type.DType() == tensor.Invalid {
			rep.Totals.QuantizedTensors++
			quantized, quantizedBytes = quantized+t.Elements(), quantizedBytes+t.Bytes
		} else {
			rep.Totals.KeptTensors++
		}
	}
	if g.recipe.blockwise() {
		rep.Calibration = calibrationInfo(g.opts.Calib)
	}
	rep.Totals.SourceBytes, rep.Totals.OutputBytes = g.plan.Source, g.plan.Disk
	rep.Totals.Ratio = float64(g.plan.Source) / float64(g.plan.Disk)
	rep.Totals.BitsPerWeight, rep.Totals.BitsPerWeightLinear = bitsPer(allBytes, all), bitsPer(quantizedBytes, quantized)
	rep.Roles = sortedRoles(roles)
	return rep
}

// rowOf is the report of a tensor. Rounders report by checkpoint name; a stack of experts takes the worst of them.
func (g *ggufJob) rowOf(i int) TensorReport {
	t := &g.plan.Header.Tensors[i]
	if row, ok := g.rows[t.Name]; ok {
		return row
	}
	row := TensorReport{Name: t.Name, Role: string(GGUFRole(t.Name)), Shape: t.Shape(), Grid: t.Type.String(), Bytes: t.Bytes,
		BitsPerWeight: bitsPer(t.Bytes, t.Elements())}
	for _, name := range g.plan.source.maps[t.Name].Sources {
		part := g.rows[name]
		row.RelError, row.OutError = max(row.RelError, part.RelError), max(row.OutError, part.OutError)
		row.RoundingOutError = max(row.RoundingOutError, part.RoundingOutError)
		if part.Fallback != "" {
			row.Fallback = part.Fallback
		}
	}
	return row
}
