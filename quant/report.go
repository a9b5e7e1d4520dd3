package quant

import "github.com/llmquant/quantize/quant/exl2"

// Report is what a run did: what lies on disk, tensor by tensor, and how it came about. It is written as
// quantize_report.json into the artifact. Sizes are bytes on disk, scales and zero points included.
type Report struct {
	Schema      string            `json:"schema"` // "quantize-report/1"
	Tool        ToolInfo          `json:"tool"`
	Recipe      RecipeInfo        `json:"recipe"`
	Inputs      []FileHash        `json:"inputs"`
	Tensors     []TensorReport    `json:"tensors"`
	Files       []FileHash        `json:"files"`
	Totals      Totals            `json:"totals"`
	Roles       []RoleTotal       `json:"roles"`
	Calibration *CalibrationInfo  `json:"calibration,omitempty"`
	Engines     []EngineNote      `json:"engines,omitempty"`
	Events      []Event           `json:"events"`
	PeakMemory  int64             `json:"peak_memory"`
	Planned     int64             `json:"planned_memory"`
	Seconds     float64           `json:"seconds"`
	Extra       map[string]string `json:"extra,omitempty"`
}

// ToolInfo names the build that wrote the artifact.
type ToolInfo struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// RecipeInfo is the recipe as the run used it.
type RecipeInfo struct {
	Method     string         `json:"method"`
	Format     string         `json:"format"`
	Transforms []string       `json:"transforms,omitempty"`
	Rounder    string         `json:"rounder,omitempty"`
	Bits       int            `json:"bits,omitempty"`
	GroupSize  int            `json:"group_size,omitempty"`
	Sym        bool           `json:"sym"`
	Overrides  []string       `json:"overrides,omitempty"`
	Settings   map[string]any `json:"settings,omitempty"`
	// Choice holds the bit widths of every linear, with mixed widths: what --choice takes as "modules".
	Choice map[string]exl2.Candidate `json:"choice,omitempty"`
}

// FileHash is a file with its content's hash.
type FileHash struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// TensorReport is one logical tensor of the model: a quantized linear counts with all of its stored parts.
type TensorReport struct {
	Name          string  `json:"name"`
	Role          string  `json:"role"`
	Shape         []int64 `json:"shape"`
	Grid          string  `json:"grid"` // "int4 g128 asym", "bf16", …
	Bytes         int64   `json:"bytes"`
	BitsPerWeight float64 `json:"bits_per_weight"`
	// RelError is ‖W'−W‖/‖W‖ of the stored weight against the source's (after the transforms that fold into it).
	RelError float64 `json:"rel_error"`
	// OutError is the relative error of the layer's output on the calibration data, where it was measured.
	OutError float64 `json:"out_error,omitempty"`
	// RoundingOutError is OutError for plain rounding of the same weight: what the method has to beat.
	RoundingOutError float64 `json:"rounding_out_error,omitempty"`
	Fallback         string  `json:"fallback,omitempty"`
}

// Totals sums up the artifact.
type Totals struct {
	SourceBytes         int64   `json:"source_bytes"`
	OutputBytes         int64   `json:"output_bytes"`
	Ratio               float64 `json:"ratio"`
	BitsPerWeightLinear float64 `json:"bits_per_weight_quantized"`
	BitsPerWeight       float64 `json:"bits_per_weight"`
	QuantizedTensors    int     `json:"quantized_tensors"`
	KeptTensors         int     `json:"kept_tensors"`
}

// RoleTotal sums up the tensors of one role.
type RoleTotal struct {
	Role          string  `json:"role"`
	Tensors       int     `json:"tensors"`
	Weights       int64   `json:"weights"`
	Bytes         int64   `json:"bytes"`
	BitsPerWeight float64 `json:"bits_per_weight"`
}

// CalibrationInfo says what text was used.
type CalibrationInfo struct {
	Files         []FileHash `json:"files"`
	Samples       int        `json:"samples"`
	SeqLen        int        `json:"seq_len"`
	Documents     int        `json:"documents"`
	TokensUsed    int64      `json:"tokens_used"`
	TokensDropped int64      `json:"tokens_dropped"`
	IDsHash       string     `json:"ids_sha256"`
}

// EngineNote says whether a serving engine will load the artifact, and if not, why.
type EngineNote struct {
	Engine string `json:"engine"`
	Loads  bool   `json:"loads"`
	Reason string `json:"reason,omitempty"`
}
