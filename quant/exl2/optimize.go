package exl2

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/llmquant/quantize/formats/safeio"
)

// Choice says which candidate every module gets.
type Choice struct {
	Target    float64              `json:"target,omitempty"` // bits per weight asked for
	Reached   float64              `json:"bits_per_weight"`  // bits per weight as stored
	Predicted float64              `json:"predicted_loss"`   // Σ sensitivity · error
	Modules   map[string]Candidate `json:"modules"`
}

// TargetError says that no choice has so few or so many bits.
type TargetError struct{ Target, Least, Most float64 }

func (e *TargetError) Error() string {
	if e.Target < e.Least {
		return fmt.Sprintf("%.4g bits per weight are too few: the smallest possible target is %.3f", e.Target, math.Ceil(e.Least*1000)/1000)
	}
	return fmt.Sprintf("%.4g bits per weight are too many: the largest possible target is %.3f", e.Target, math.Floor(e.Most*1000)/1000)
}

// Unwrap makes it an error of class unsupported.
func (e *TargetError) Unwrap() error { return safeio.ErrUnsupported }

// Optimize chooses an option for every slot so that all of them together have at most target bits per weight and the
// least Σ sensitivity · error. The result is the best there is but for a difference that is far below what measurements
// can tell (knapsack.go); the same slots give the same choice.
func Optimize(slots []Slot, target float64) (*Choice, error) {
	var weights, least, most int64
	items := make([]item, len(slots))
	for i := range slots {
		if err := slots[i].check(); err != nil {
			return nil, err
		}
		weights += slots[i].Weights()
		items[i] = slots[i].item()
		least += items[i][0].bits
		most += items[i][len(items[i])-1].bits
	}
	if weights == 0 {
		return nil, safeio.Unsupportedf("there is nothing to choose for")
	}
	per := func(bits int64) float64 { return float64(bits) / float64(weights) }
	if !(target >= per(least)) || target > per(most)*(1+tolerance) {
		return nil, &TargetError{target, per(least), per(most)}
	}
	pick := solve(items, int64(target*float64(weights)))
	c := &Choice{Target: target, Modules: map[string]Candidate{}}
	bits := int64(0)
	for i := range slots {
		o := &slots[i].Options[items[i][pick[i]].option]
		bits += o.Bits
		c.Predicted += float64(slots[i].Sensitivity * o.Error)
		for j, m := range slots[i].Modules {
			c.Modules[m.Name] = o.Candidate(j)
		}
	}
	c.Reached = per(bits)
	return c, nil
}

// tolerance is how far above the most bits that options have a target may lie.
const tolerance = 0.005

// item lists the options of a slot that are worth anything: more bits, less cost.
type item []choice

type choice struct {
	option int
	bits   int64
	cost   float64
}

// item drops dominated options.
func (s *Slot) item() item {
	all := make(item, len(s.Options))
	for i, o := range s.Options {
		all[i] = choice{i, o.Bits, s.Sensitivity * o.Error}
	}
	slices.SortStableFunc(all, func(a, b choice) int { return cmp.Or(cmp.Compare(a.bits, b.bits), cmp.Compare(a.cost, b.cost)) })
	kept := all[:1]
	for _, c := range all[1:] {
		if c.cost < kept[len(kept)-1].cost {
			kept = append(kept, c)
		}
	}
	return kept
}

// Complete checks a choice that was made or edited by hand and fills in what follows from it: every module of the slots
// needs a candidate, any legal one, measured or not, or "dense". Predicted covers what was measured and is 0 otherwise;
// slots may have modules alone.
func (c *Choice) Complete(slots []Slot) error {
	var weights, bits int64
	known := map[string]bool{}
	c.Predicted = 0
	for i := range slots {
		s := &slots[i]
		if err := s.checkModules(); err != nil {
			return err
		}
		weights += s.Weights()
		for _, m := range s.Modules {
			cand, ok := c.Modules[m.Name]
			if !ok {
				return safeio.Unsupportedf("the choice says nothing about %s", m.Name)
			}
			known[m.Name] = true
			bits += cand.Bits(m.Out, m.In)
		}
		if o := s.find(c.Modules); o != nil {
			c.Predicted += float64(s.Sensitivity * o.Error)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Modules)) {
		if !known[name] {
			return safeio.Unsupportedf("the choice names %s, which is no linear of the model that can be quantized", name)
		}
	}
	if weights > 0 {
		c.Reached = float64(bits) / float64(weights)
	}
	return nil
}

// find returns the option that gives the slot's modules these candidates.
func (s *Slot) find(modules map[string]Candidate) *Option {
	for i := range s.Options {
		o, same := &s.Options[i], true
		for j, m := range s.Modules {
			same = same && o.Candidate(j) == modules[m.Name]
		}
		if same {
			return o
		}
	}
	return nil
}
