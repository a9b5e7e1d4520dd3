package arch

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
)

// Rotary embeddings with the scalings of Transformers' modeling_rope_utils (read at 5.24), which every serving engine
// follows. Frequencies are computed in the same float32 steps as there: a model was trained with, and is served with,
// those roundings, and at position p an angle is off by p roundings. Conversions such as float32(a*b) keep Go from
// fusing, so that the result is the same on every CPU.

// ropeType is one row of the table of scalings. read fills the parameters, scale computes InvFreq from the unscaled
// frequencies and may set AttentionScale.
type ropeType struct {
	name  string
	read  func(c *config, r *Rope, maxPos int)
	scale func(r *Rope, pow []float32) // pow[i] = theta^(2i/dim); InvFreq is to be filled
}

var ropeTypes = [...]ropeType{
	{"default", func(*config, *Rope, int) {}, ropeUnscaled},
	{"linear", readFactor, ropeLinear},
	{"llama3", readLlama3, ropeLlama3},
	{"yarn", readYarn, ropeYarn},
	{dynamic, readFactor, ropeUnscaled}, // raises theta beyond the trained context, see ForLength
}

const dynamic = "dynamic"

// resolveRope reads the parameters from all the places where Transformers 4 and 5 put them: rope_scaling with the
// top-level rope_theta, or rope_parameters, which contains it.
func resolveRope(c *config, headDim, maxPos int) Rope {
	params, from := c.child("rope_scaling"), "rope_scaling"
	if params.Len() == 0 {
		params, from = c.child("rope_parameters"), "rope_parameters"
	}
	const least, most = 1 + 1e-6, 1e15
	r := Rope{Dim: headDim, AttentionScale: 1, Factor: 1}
	r.Theta = params.real("rope_theta", c.real("rope_theta", 10000, least, most), least, most)
	r.Type = params.text("rope_type", params.text("type", "default"))
	if partial := params.real("partial_rotary_factor", c.real("partial_rotary_factor", 1, 0, 1), 0, 1); partial != 1 {
		c.fail(safeio.Unsupportedf("partial_rotary_factor %g: only whole heads are rotated here", partial))
	}
	for _, nested := range []string{fullAttention, slidingAttention} {
		if params.Get(nested).Kind() != safeio.Invalid {
			c.fail(safeio.Unsupportedf("%s per layer type are not supported", from))
		}
	}
	i := slices.IndexFunc(ropeTypes[:], func(t ropeType) bool { return t.name == r.Type })
	if i < 0 {
		c.fail(safeio.Unsupportedf("rope type %q is not supported; supported: %s", clip(r.Type), ropeNames()))
		return r
	}
	// A top-level original_max_position_embeddings goes before the one among the parameters.
	r.OriginalMaxPos = params.integer("original_max_position_embeddings", maxPos, 1, maxPositions)
	r.OriginalMaxPos = c.integer("original_max_position_embeddings", r.OriginalMaxPos, 1, maxPositions)
	ropeTypes[i].read(params, &r, maxPos)
	if params.err != nil {
		c.fail(fmt.Errorf("%s: %w", from, params.err))
	}
	return r
}

func ropeNames() string {
	names := make([]string, len(ropeTypes))
	for i, t := range ropeTypes {
		names[i] = t.name
	}
	return strings.Join(names, ", ")
}

// fill computes InvFreq for a validated head dimension.
func (r *Rope) fill() {
	pow := make([]float32, r.Dim/2)
	for i := range pow {
		exponent := float32(2*i) / float32(r.Dim)
		pow[i] = float32(math.Pow(r.Theta, float64(exponent)))
	}
	r.InvFreq = make([]float64, r.Dim/2)
	for _, t := range ropeTypes {
		if t.name == r.Type {
			t.scale(r, pow)
		}
	}
}

// ForLength returns the embedding for sequences of n tokens. Only the dynamic type depends on it: beyond the trained
// context maxPos, theta grows with n.
func (r Rope) ForLength(n, maxPos int) Rope {
	if r.Type != dynamic || n <= maxPos || r.Dim <= 2 {
		return r
	}
	stretch := float64(r.Factor*float64(n)/float64(maxPos)) - (r.Factor - 1)
	r.Theta *= math.Pow(stretch, float64(r.Dim)/float64(r.Dim-2))
	r.fill()
	return r
}

const leastFactor, mostFactor = 1e-3, 1e6

func readFactor(c *config, r *Rope, _ int) {
	if !c.Get("factor").Exists() {
		c.fail(safeio.Corruptf("rope type %s needs factor", r.Type))
	}
	r.Factor = c.real("factor", 1, leastFactor, mostFactor)
}

func readLlama3(c *config, r *Rope, maxPos int) {
	readFactor(c, r, maxPos)
	r.LowFreqFactor = c.real("low_freq_factor", 1, leastFactor, mostFactor)
	r.HighFreqFactor = c.real("high_freq_factor", 4, leastFactor, mostFactor)
	if c.err == nil && r.HighFreqFactor <= r.LowFreqFactor {
		c.fail(safeio.Corruptf("high_freq_factor %g is not above low_freq_factor %g", r.HighFreqFactor, r.LowFreqFactor))
	}
}

// readYarn also settles the attention factor: given, or 0.1·mscale·ln(factor)+1 over the same with mscale_all_dim.
func readYarn(c *config, r *Rope, maxPos int) {
	r.Factor = c.real("factor", float64(maxPos)/float64(r.OriginalMaxPos), leastFactor, mostFactor)
	r.BetaFast = nonZero(c.real("beta_fast", 32, 0, mostFactor), 32)
	r.BetaSlow = nonZero(c.real("beta_slow", 1, 0, mostFactor), 1)
	r.NoTruncate = !c.boolean("truncate", true)
	mscale := c.real("mscale", 0, 0, mostFactor)
	mscaleAll := c.real("mscale_all_dim", 0, 0, mostFactor)
	scale := yarnScale(r.Factor, 1)
	if mscale != 0 && mscaleAll != 0 {
		scale = yarnScale(r.Factor, mscale) / yarnScale(r.Factor, mscaleAll)
	}
	r.AttentionScale = c.real("attention_factor", scale, 1e-3, 1e3)
}

func nonZero(x, def float64) float64 {
	if x == 0 {
		return def
	}
	return x
}

func yarnScale(factor, mscale float64) float64 {
	if factor <= 1 {
		return 1
	}
	return float64(0.1*mscale*math.Log(factor)) + 1
}

func ropeUnscaled(r *Rope, pow []float32) {
	for i, p := range pow {
		r.InvFreq[i] = float64(1 / p)
	}
}

// ropeLinear stretches all wavelengths by factor (position interpolation).
func ropeLinear(r *Rope, pow []float32) {
	for i, p := range pow {
		r.InvFreq[i] = float64(1 / p / float32(r.Factor))
	}
}

// ropeLlama3 keeps short wavelengths, stretches long ones by factor and blends in between (Llama 3.1).
func ropeLlama3(r *Rope, pow []float32) {
	low := float32(r.LowFreqFactor)
	context := float32(r.OriginalMaxPos)
	longest := float32(float64(r.OriginalMaxPos) / r.LowFreqFactor)
	shortest := float32(float64(r.OriginalMaxPos) / r.HighFreqFactor)
	factor := float32(r.Factor)
	for i, p := range pow {
		inv := 1 / p
		wavelength := float32(2*math.Pi) / inv
		switch {
		case wavelength > longest:
			inv /= factor
		case wavelength >= shortest:
			smooth := (context/wavelength - low) / float32(r.HighFreqFactor-r.LowFreqFactor)
			inv = float32(float32((1-smooth)*inv)/factor) + float32(smooth*inv)
		}
		r.InvFreq[i] = float64(inv)
	}
}

// ropeYarn keeps dimensions that turn more than BetaFast times within the original context, stretches those that turn
// less than BetaSlow times and ramps linearly over the dimension index in between (Peng et al. 2023, "YaRN").
func ropeYarn(r *Rope, pow []float32) {
	low, high := r.correction(r.BetaFast), r.correction(r.BetaSlow)
	if !r.NoTruncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(r.Dim-1))
	if low == high {
		high += 0.001
	}
	for i, p := range pow {
		ramp := (float32(i) - float32(low)) / float32(high-low)
		keep := 1 - min(max(ramp, 0), 1)
		stretched := 1 / float32(float32(r.Factor)*p)
		r.InvFreq[i] = float64(float32(stretched*(1-keep)) + float32(1/p*keep))
	}
}

// correction returns the (fractional) pair index whose wavelength fits the original context `turns` times.
func (r *Rope) correction(turns float64) float64 {
	return float64(r.Dim) * math.Log(float64(r.OriginalMaxPos)/(turns*2*math.Pi)) / (2 * math.Log(r.Theta))
}
