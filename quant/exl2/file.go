package exl2

import (
	"encoding/json"
	"io"

	"github.com/llmquant/quantize/formats/safeio"
)

// Measurement is what a measuring pass leaves behind. The file serves any target of the same model:
//
//	{
//	 "format": "quantize-exl2-measurement/1",
//	 "model": "…",              // whatever identifies the model and the calibration text; compared by the caller
//	 "sensitivity": "kl",       // unit of the slots' sensitivities: "kl", "block" or "none"
//	 "slots": [{
//	  "name": "model.layers.0.self_attn.q_proj",
//	  "modules": [{"name": "model.layers.0.self_attn.q_proj", "out": 2048, "in": 2048}],
//	  "sensitivity": 0.31,      // what error 1 would cost
//	  "options": [{"candidates": ["4/3 25/75 g32"], "bits": 13778944, "error": 0.0031}, …]
//	 }, …]
//	}
//
// An option's cost is sensitivity · error. Candidates are one for all modules or one for each.
type Measurement struct {
	Format      string `json:"format"`
	Model       string `json:"model"`
	Sensitivity string `json:"sensitivity"`
	Slots       []Slot `json:"slots"`
}

// measurementFormat names the format and its version.
const measurementFormat = "quantize-exl2-measurement/1"

// MaxMeasurement bounds a measurement file: 512 slots of 100 options take about 6 MB.
const MaxMeasurement = 256 << 20

// Write writes the file.
func (m *Measurement) Write(w io.Writer) error {
	out := *m
	out.Format = measurementFormat
	b, err := json.MarshalIndent(&out, "", " ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// ReadMeasurement reads and checks a measurement file, ours or ExLlamaV2's measurement.json. shape gives the dimensions of
// the model's modules, which ExLlamaV2's file does not hold; modules of ours are checked against it as well.
func ReadMeasurement(data []byte, shape func(module string) (out, in int, ok bool)) (*Measurement, error) {
	if int64(len(data)) > MaxMeasurement {
		return nil, safeio.Limitf("a measurement of %d bytes", len(data))
	}
	v, err := safeio.ParseJSON(data)
	if err != nil {
		return nil, err
	}
	if v.Get("measurement").Kind() == safeio.Object {
		return readForeign(v.Get("measurement"), shape)
	}
	format, err := safeio.Or(v, "format", "", safeio.Value.Str)
	if err != nil {
		return nil, err
	}
	if format != measurementFormat {
		return nil, safeio.Unsupportedf("format %q is neither %s nor ExLlamaV2's measurement.json", format, measurementFormat)
	}
	m := &Measurement{}
	if err := json.Unmarshal(data, m); err != nil {
		return nil, safeio.Corruptf("%v", err)
	}
	for i := range m.Slots {
		if err := m.Slots[i].check(); err != nil {
			return nil, err
		}
		for _, mod := range m.Slots[i].Modules {
			out, in, ok := shape(mod.Name)
			if !ok || out != mod.Out || in != mod.In {
				return nil, safeio.Corruptf("%s of %d × %d is not in this model: the measurement belongs to another", mod.Name, mod.Out, mod.In)
			}
		}
	}
	return m, nil
}

// ReadChoice reads a choice that was written by Write or made by hand: {"modules": {"model.layers.0.self_attn.q_proj":
// "4/3 25/75 g32", …}}. Complete checks it against the model.
func ReadChoice(data []byte) (*Choice, error) {
	if _, err := safeio.ParseJSON(data); err != nil {
		return nil, err
	}
	c := &Choice{}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, safeio.Corruptf("%v", err)
	}
	return c, nil
}

// Write writes the choice, modules in order of name.
func (c *Choice) Write(w io.Writer) error {
	b, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}
