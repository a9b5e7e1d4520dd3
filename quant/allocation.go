package quant

import (
	"fmt"
	"path"
	"strings"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/tensor"
)

// Choice is the number format of one tensor: a quantized scheme, or a dense element type.
type Choice struct {
	Quantize bool
	Scheme   packing.Scheme
	DType    tensor.DType // when not quantized; Invalid keeps the source's
	Reason   string       // why this tensor differs from the default ("--keep", "K=96 is not a multiple of 128")
}

// Desc describes one tensor to an allocation.
type Desc struct {
	Info   tensor.Info
	Role   arch.Role
	Layer  int // -1 outside blocks
	Expert int // -1 outside experts
	Linear *arch.Linear
}

// Module is the tensor's name without ".weight", the name that patterns and configs use.
func (d Desc) Module() string { return strings.TrimSuffix(d.Info.Name, ".weight") }

// Allocation gives every tensor of a model its number format. It sees the whole model at once, because mixtures and
// budgets depend on all of it. The result has one entry per description.
type Allocation interface {
	Allocate(tensors []Desc) ([]Choice, error)
}

// Uniform quantizes every linear inside the blocks with one scheme and keeps everything else.
type Uniform struct{ Scheme packing.Scheme }

// Allocate implements Allocation.
func (u Uniform) Allocate(tensors []Desc) ([]Choice, error) {
	choices := make([]Choice, len(tensors))
	for i, t := range tensors {
		if t.Linear != nil && t.Layer >= 0 && t.Role != arch.RoleRouter {
			choices[i] = Choice{Quantize: true, Scheme: u.Scheme}
		}
	}
	return choices, nil
}

// Keep leaves every tensor as it is.
type Keep struct{ DType tensor.DType }

// Allocate implements Allocation.
func (k Keep) Allocate(tensors []Desc) ([]Choice, error) {
	choices := make([]Choice, len(tensors))
	for i, t := range tensors {
		if k.DType != tensor.Invalid && t.Info.DType.IsFloat() {
			choices[i].DType = k.DType
		}
	}
	return choices, nil
}

// Rule is one user override: tensors whose name matches Pattern get Spec. The first matching rule wins.
type Rule struct {
	Pattern string // shell pattern over the tensor or module name; without wildcards: whole dotted components
	Spec    string // keep, bf16, f16, f32, int4, int8:g64, int4:g32:sym …
}

// Overridden applies user rules on top of another allocation.
type Overridden struct {
	Base    Allocation
	Rules   []Rule
	Default packing.Scheme // completes specs that leave group size or symmetry open
}

// Allocate implements Allocation. A rule that matches no tensor is an error: it is a misspelt name.
func (o Overridden) Allocate(tensors []Desc) ([]Choice, error) {
	choices, err := o.Base.Allocate(tensors)
	if err != nil {
		return nil, err
	}
	used := make([]bool, len(o.Rules))
	for i, t := range tensors {
		for j, r := range o.Rules {
			if !r.Matches(t.Info.Name) && !r.Matches(t.Module()) {
				continue
			}
			used[j] = true
			c, err := ParseSpec(r.Spec, o.Default)
			if err != nil {
				return nil, optionsf("--tensor %s=%s: %v", r.Pattern, r.Spec, err)
			}
			if c.Quantize && t.Linear == nil {
				return nil, optionsf("--tensor %s=%s: %s is a %s of shape %v, not a linear that can be quantized", r.Pattern, r.Spec, t.Info.Name, t.Role, t.Info.Shape)
			}
			c.Reason = fmt.Sprintf("--tensor %s=%s", r.Pattern, r.Spec)
			choices[i] = c
			break
		}
	}
	for j, r := range o.Rules {
		if !used[j] {
			return nil, optionsf("--tensor %s=%s matches no tensor of the model", r.Pattern, r.Spec)
		}
	}
	return choices, nil
}

// Matches reports whether the rule speaks of a tensor or module of this name, exact case.
func (r Rule) Matches(name string) bool {
	if r.Pattern == name {
		return true
	}
	if !strings.ContainsAny(r.Pattern, "*?[") {
		return strings.Contains("."+name+".", "."+r.Pattern+".")
	}
	ok, err := path.Match(r.Pattern, name) // names hold no slash, so * crosses the dots
	return err == nil && ok
}

// ParseSpec reads the SPEC of --tensor. base fills in what an integer spec leaves open.
func ParseSpec(spec string, base packing.Scheme) (Choice, error) {
	parts := strings.Split(spec, ":")
	switch name := parts[0]; name {
	case "keep":
		return Choice{}, noMore(parts)
	case "bf16":
		return Choice{DType: tensor.BF16}, noMore(parts)
	case "f16":
		return Choice{DType: tensor.F16}, noMore(parts)
	case "f32":
		return Choice{DType: tensor.F32}, noMore(parts)
	default:
		var bits int
		if _, err := fmt.Sscanf(name, "int%d", &bits); err != nil || fmt.Sprintf("int%d", bits) != name {
			return Choice{}, fmt.Errorf("unknown spec %q; known: keep, bf16, f16, f32, int2, int3, int4, int8 with :gN, :sym, :asym", spec)
		}
		s := base
		s.Grid, s.Bits = "int", bits
		for _, p := range parts[1:] {
			if err := intOption(&s, p); err != nil {
				return Choice{}, fmt.Errorf("spec %q: %w", spec, err)
			}
		}
		return Choice{Quantize: true, Scheme: s}, nil
	}
}

func noMore(parts []string) error {
	if len(parts) > 1 {
		return fmt.Errorf("spec %q takes no options", parts[0])
	}
	return nil
}

func intOption(s *packing.Scheme, p string) error {
	switch p {
	case "sym":
		s.Sym = true
	case "asym":
		s.Sym = false
	default:
		var g int
		if _, err := fmt.Sscanf(p, "g%d", &g); err != nil || fmt.Sprintf("g%d", g) != p || (g < 1 && g != -1) {
			return fmt.Errorf("unknown option %q; known: gN (group size, g-1: one per row), sym, asym", p)
		}
		s.GroupSize = g
	}
	return nil
}
