package exl2

import (
	"math"
	"slices"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
)

// Slot is one decision: a linear, the same linear of all experts of a layer, or a whole module with ready-made settings.
type Slot struct {
	Name    string   `json:"name"`
	Modules []Module `json:"modules"`
	// Sensitivity is what a unit of Option.Error costs: the divergence of the model's predictions in nats, or the
	// relative squared error of the block's output; 1 where nothing was measured. One unit for all slots.
	Sensitivity float64  `json:"sensitivity"`
	Options     []Option `json:"options"`
}

// Module is one linear of a slot.
type Module struct {
	Name string `json:"name"`
	Out  int    `json:"out"`
	In   int    `json:"in"`
}

// Option is one way to quantize a slot.
type Option struct {
	Candidates []Candidate `json:"candidates"` // of each module, or one for all
	Bits       int64       `json:"bits"`       // stored bits of all modules
	Error      float64     `json:"error"`      // relative squared output error
}

// Candidate returns the candidate of module i.
func (o *Option) Candidate(i int) Candidate { return o.Candidates[min(i, len(o.Candidates)-1)] }

// NewSlot makes a slot of modules that get the same candidate, measured one by one: result i belongs to modules[i]. Errors
// are averaged with the outputs' power as weight, given by module or nil for equal weights.
func NewSlot(name string, modules []Module, measured [][]Measured, power []float64) (Slot, error) {
	s := Slot{Name: name, Modules: modules, Sensitivity: 1}
	if len(modules) == 0 || len(measured) != len(modules) || power != nil && len(power) != len(modules) {
		return s, safeio.Corruptf("slot %s: %d measurements of %d modules", name, len(measured), len(modules))
	}
	for j, m := range measured[0] {
		o := Option{Candidates: []Candidate{m.Candidate}}
		total := 0.0
		for i := range modules {
			if len(measured[i]) != len(measured[0]) || measured[i][j].Candidate != m.Candidate {
				return s, safeio.Corruptf("slot %s: its modules were measured with different candidates", name)
			}
			w := 1.0
			if power != nil {
				w = power[i]
			}
			o.Bits += measured[i][j].Bits
			o.Error += float64(w * measured[i][j].Error)
			total += w
		}
		if total > 0 {
			o.Error /= total
		}
		s.Options = append(s.Options, o)
	}
	return s, nil
}

// Weights counts the slot's weights as ExLlamaV2 does, padded outputs included.
func (s *Slot) Weights() int64 {
	n := int64(0)
	for _, m := range s.Modules {
		n += packing.EXL2Weights(m.Out, m.In)
	}
	return n
}

// bits adds up what the slot's modules occupy with an option.
func (s *Slot) bits(o *Option) int64 {
	n := int64(0)
	for i, m := range s.Modules {
		n += o.Candidate(i).Bits(m.Out, m.In)
	}
	return n
}

// SetSensitivities takes over what probes found: divergences of the predictions if there are any, else block errors. A
// slot whose probe found nothing, or next to nothing because of rounding noise, gets a thousandth of the median, so that
// bits are not taken from it without limit. Slots without a probe get the median.
func SetSensitivities(slots []Slot, found []Sensitivity) {
	byName := map[string]float64{}
	var all []float64
	through := slices.ContainsFunc(found, func(f Sensitivity) bool { return f.KL > 0 })
	for _, f := range found {
		v := f.BlockError / f.Error
		if through {
			v = f.KL / f.Error
		}
		if f.Error > 0 && v > 0 && !math.IsInf(v, 0) {
			byName[f.Name] = v
			all = append(all, v)
		} else {
			byName[f.Name] = 0
		}
	}
	if len(all) == 0 {
		return
	}
	slices.Sort(all)
	median := all[len(all)/2]
	for i := range slots {
		v, ok := byName[slots[i].Name]
		if !ok {
			v = median
		}
		slots[i].Sensitivity = max(v, median/1000)
	}
}

// check refuses slots that the solver cannot work with.
func (s *Slot) check() error {
	if len(s.Options) == 0 || len(s.Modules) == 0 || !(s.Sensitivity >= 0) || math.IsInf(s.Sensitivity, 0) {
		return safeio.Corruptf("slot %s: %d modules, %d options, sensitivity %v", s.Name, len(s.Modules), len(s.Options), s.Sensitivity)
	}
	if err := s.checkModules(); err != nil {
		return err
	}
	for i, o := range s.Options {
		if n := len(o.Candidates); n != 1 && n != len(s.Modules) || !(o.Error >= 0) || math.IsInf(o.Error, 0) {
			return safeio.Corruptf("slot %s: option %d has %d candidates for %d modules, error %v", s.Name, i, n, len(s.Modules), o.Error)
		}
		for _, c := range o.Candidates {
			if c.n == 0 {
				return safeio.Corruptf("slot %s: option %d has an empty candidate", s.Name, i)
			}
		}
		if bits := s.bits(&o); bits != o.Bits {
			return safeio.Corruptf("slot %s: option %d is said to take %d bits, it takes %d", s.Name, i, o.Bits, bits)
		}
	}
	return nil
}

// checkModules refuses shapes that the layout cannot hold.
func (s *Slot) checkModules() error {
	for _, m := range s.Modules {
		if m.Out < 1 || m.In < 32 || m.In%32 != 0 || m.Out > 1<<28 || m.In > 65535 {
			return safeio.Unsupportedf("module %s of %d × %d cannot be stored as exl2", m.Name, m.Out, m.In)
		}
	}
	return nil
}
