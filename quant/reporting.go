package quant

import (
	"context"
	"maps"
	"sort"

	"github.com/llmquant/quantize/calib"
	"github.com/llmquant/quantize/formats/tensor"
)

// recipeInfo describes the recipe for the report and the job's key.
func (j *job) recipeInfo() RecipeInfo {
	r := j.recipe
	info := RecipeInfo{Method: r.Method, Format: r.Layout, Settings: r.Config}
	if r.BF16 {
		info.Settings = maps.Clone(info.Settings)
		if info.Settings == nil {
			info.Settings = map[string]any{}
		}
		info.Settings[calibDType] = "bf16"
	}
	if info.Format == "" {
		info.Format = "safetensors"
	}
	for _, t := range r.Transforms {
		info.Transforms = append(info.Transforms, t.Name())
	}
	if r.Rounder != nil {
		info.Rounder = r.Rounder.Name()
		s := j.plan.defaultScheme()
		info.Bits, info.GroupSize, info.Sym = s.Bits, s.GroupSize, s.Sym
	}
	if o, ok := r.Allocation.(Overridden); ok {
		for _, rule := range o.Rules {
			info.Overrides = append(info.Overrides, rule.Pattern+"="+rule.Spec)
		}
	}
	return info
}

// report assembles everything but the time and memory taken.
func (j *job) report() *Report {
	rep := &Report{Schema: reportSchema, Tool: ToolInfo{Name: "quantize", Version: j.opts.Version}, Recipe: j.recipeInfo(),
		Inputs: j.inputs, Engines: j.plan.Engines, Planned: j.plan.Memory, Events: j.events}
	for i := range j.plan.Tensors {
		rep.Tensors = append(rep.Tensors, j.rows[j.plan.Tensors[i].Info.Name])
	}
	if a, ok := j.recipe.Allocation.(EXL2Allocation); ok {
		rep.Recipe.Choice = a.Choice.Modules
	}
	rep.Totals, rep.Roles = j.plan.Totals()
	if set := j.opts.Calib; set != nil && j.recipe.Needs() != 0 {
		rep.Calibration = calibrationInfo(set)
	}
	return rep
}

// calibrationInfo is the report's account of the text used.
func calibrationInfo(set *calib.Set) *CalibrationInfo {
	info := &CalibrationInfo{Samples: set.Windows, SeqLen: set.SeqLen, Documents: set.Documents,
		TokensUsed: set.TokensUsed, TokensDropped: set.TokensDropped, IDsHash: set.Hash()}
	for _, f := range set.Files {
		info.Files = append(info.Files, FileHash{Name: f.Name, Bytes: f.Bytes, SHA256: f.SHA256})
	}
	return info
}

// Totals sums up the artifact: sizes are those of the weight files and their index.
func (p *Plan) Totals() (Totals, []RoleTotal) {
	t := Totals{SourceBytes: p.Source, OutputBytes: p.Disk}
	var weights, bytes, quantized, quantizedBytes int64
	byRole := map[string]*RoleTotal{}
	for i := range p.Tensors {
		x := &p.Tensors[i]
		n, _ := x.Info.Elements()
		addRole(byRole, string(x.Role), n, x.Bytes())
		weights, bytes = weights+n, bytes+x.Bytes()
		if !x.Quantize {
			t.KeptTensors++
			continue
		}
		t.QuantizedTensors++
		quantized, quantizedBytes = quantized+n, quantizedBytes+x.Bytes()
	}
	t.BitsPerWeight, t.BitsPerWeightLinear = bitsPer(bytes, weights), bitsPer(quantizedBytes, quantized)
	if t.OutputBytes > 0 {
		t.Ratio = float64(t.SourceBytes) / float64(t.OutputBytes)
	}
	return t, sortedRoles(byRole)
}

func addRole(roles map[string]*RoleTotal, name string, weights, bytes int64) {
	role := roles[name]
	if role == nil {
		role = &RoleTotal{Role: name}
		roles[name] = role
	}
	role.Tensors++
	role.Weights += weights
	role.Bytes += bytes
}

// sortedRoles lists the largest first.
func sortedRoles(byRole map[string]*RoleTotal) []RoleTotal {
	roles := make([]RoleTotal, 0, len(byRole))
	for _, r := range byRole {
		r.BitsPerWeight = bitsPer(r.Bytes, r.Weights)
		roles = append(roles, *r)
	}
	sort.Slice(roles, func(a, b int) bool {
		if roles[a].Bytes != roles[b].Bytes {
			return roles[a].Bytes > roles[b].Bytes
		}
		return roles[a].Role < roles[b].Role
	})
	return roles
}

func bitsPer(bytes, weights int64) float64 {
	if weights == 0 {
		return 0
	}
	return 8 * float64(bytes) / float64(weights)
}

// roundOutside quantizes a linear outside the blocks (a head that the user asked for) without statistics.
func (j *job) roundOutside(ctx context.Context, t *PlannedTensor) (TensorReport, error) {
	row := t.report()
	raw, err := bytesOf(j.src, t.Info)
	if err != nil {
		return row, err
	}
	var bad census
	bad.look(t.Info.DType, raw, 0, j.opts.NaNZero)
	if err := j.admit(bad, t.Info.Name, t.Info.Shape, t.Layer); err != nil {
		return row, err
	}
	w := make([]float32, t.Linear.Out*t.Linear.In)
	if err := tensor.ToFloat32(w, t.Info.DType, raw); err != nil {
		return row, err
	}
	q, err := j.recipe.Rounder.Round(ctx, &Matrix{Linear: t.Linear, Scheme: t.Scheme, W: w, MinZero: j.plan.minZero(), Positive: j.plan.positive()}, nil)
	if err != nil {
		return row, err
	}
	values, err := decode(q)
	if err != nil {
		return row, err
	}
	row.RelError = relError(values, w)
	return row, j.writeLinear(t, q)
}
