package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"sort"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/quant"
)

// printPlan shows what a run would do.
func (c *console) printPlan(p *quant.Plan, r *quant.Recipe) error {
	totals, roles := p.Totals()
	if c.json {
		return c.printJSON(planJSON(p, totals))
	}
	w := tabwriter.NewWriter(c.out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "tensor\trole\tshape\tgrid\tbytes\tbits/weight\t")
	for i := range p.Tensors {
		t := &p.Tensors[i]
		n, _ := t.Info.Elements()
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%.3f\t\n", t.Info.Name, t.Role, shape(t.Info.Shape), t.Grid(), t.Bytes(), 8*float64(t.Bytes())/float64(max(n, 1)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(c.out)
	printRoles(c.out, roles)
	fmt.Fprintf(c.out, "\n%s: %s → %s on disk, %s\n", planLine(r), humanBytes(p.Source), humanBytes(p.Disk), bitsLine(totals))
	fmt.Fprintln(c.out, needLine(p.Memory, p.Scratch, p.StatesOnDisk, p.Work))
	printEngines(c.out, p.Engines)
	for _, n := range p.Notes {
		fmt.Fprintf(c.out, "note: %s: %s\n", n.Tensor, n.Message)
	}
	return nil
}

// planJSON is the form of --dry-run --json.
func planJSON(p *quant.Plan, totals quant.Totals) any {
	type row struct {
		Name  string  `json:"name"`
		Role  string  `json:"role"`
		Shape []int64 `json:"shape"`
		Grid  string  `json:"grid"`
		Bytes int64   `json:"bytes"`
		Note  string  `json:"note,omitempty"`
	}
	rows := make([]row, len(p.Tensors))
	for i := range p.Tensors {
		t := &p.Tensors[i]
		rows[i] = row{t.Info.Name, string(t.Role), t.Info.Shape, t.Grid(), t.Bytes(), t.Reason}
	}
	return map[string]any{"schema": "quantize-plan/1", "tensors": rows, "totals": totals, "memory": p.Memory, "disk": p.Disk,
		"scratch": p.Scratch, "states_on_disk": p.StatesOnDisk, "engines": p.Engines, "seconds": seconds(p.Work)}
}

// printReport shows what a run did: sizes on disk by role, the linears that lost most, engines.
func (c *console) printReport(r *quant.Report, out string) error {
	if c.json {
		return c.printJSON(r)
	}
	if c.quiet {
		return nil
	}
	printRoles(c.out, r.Roles)
	printWorst(c.out, r.Tensors)
	printEngines(c.out, r.Engines)
	if n := fallbacks(r.Tensors); n > 0 {
		fmt.Fprintf(c.out, "%d tensors fell back to something else than asked for; the report says why\n", n)
	}
	if cal := r.Calibration; cal != nil {
		fmt.Fprintf(c.out, "calibration: %d windows of %d tokens from %d documents, %d tokens not used\n", cal.Samples, cal.SeqLen, cal.Documents, cal.TokensDropped)
	}
	t := r.Totals
	fmt.Fprintf(c.out, "\n%s: %s → %s on disk (%.2fx), %s, in %s, peak memory %s\n", out,
		humanBytes(t.SourceBytes), humanBytes(t.OutputBytes), t.Ratio, bitsLine(t), duration(r.Seconds), humanBytes(r.PeakMemory))
	return nil
}

func printRoles(w io.Writer, roles []quant.RoleTotal) {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "role\ttensors\tweights\tbytes\tbits/weight\t")
	for _, r := range roles {
		fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%.3f\t\n", r.Role, r.Tensors, r.Weights, r.Bytes, r.BitsPerWeight)
	}
	tw.Flush()
}

// worstShown is how many linears the terminal lists by output error.
const worstShown = 5

func printWorst(w io.Writer, tensors []quant.TensorReport) {
	rows := make([]quant.TensorReport, 0, len(tensors))
	for _, t := range tensors {
		if t.OutError > 0 {
			rows = append(rows, t)
		}
	}
	if len(rows) == 0 {
		return
	}
	sort.SliceStable(rows, func(a, b int) bool { return rows[a].OutError > rows[b].OutError })
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "\nlargest output errors\tgrid\tweight error\toutput error\tplain rounding\t")
	for _, t := range rows[:min(worstShown, len(rows))] {
		fmt.Fprintf(tw, "%s\t%s\t%.4f\t%.4f\t%.4f\t\n", t.Name, t.Grid, t.RelError, t.OutError, t.RoundingOutError)
	}
	tw.Flush()
}

func printEngines(w io.Writer, notes []quant.EngineNote) {
	var loads []string
	for _, n := range notes {
		if n.Loads {
			loads = append(loads, n.Engine)
		}
	}
	if len(loads) > 0 {
		fmt.Fprintf(w, "\nloads in: %s\n", strings.Join(loads, ", "))
	}
	for i, n := range notes {
		same := func(o quant.EngineNote) bool { return o.Reason == n.Reason }
		if n.Loads || slices.ContainsFunc(notes[:i], same) {
			continue
		}
		var engines []string // that share the reason
		for _, o := range notes[i:] {
			if same(o) {
				engines = append(engines, o.Engine)
			}
		}
		fmt.Fprintf(w, "not in %s: %s\n", strings.Join(engines, ", "), n.Reason)
	}
}

func fallbacks(tensors []quant.TensorReport) (n int) {
	for _, t := range tensors {
		if t.Fallback != "" && !strings.HasPrefix(t.Fallback, "--") {
			n++
		}
	}
	return n
}

func shape(dims []int64) string {
	parts := make([]string, len(dims))
	for i, d := range dims {
		parts[i] = fmt.Sprint(d)
	}
	return strings.Join(parts, "×")
}

// printGGUFPlan shows what a GGUF run would write.
func (c *console) printGGUFPlan(p *quant.GGUFPlan) error {
	if c.json {
		type row struct {
			Name  string  `json:"name"`
			Shape []int64 `json:"shape"`
			Grid  string  `json:"grid"`
			Bytes int64   `json:"bytes"`
		}
		rows := make([]row, len(p.Header.Tensors))
		for i := range p.Header.Tensors {
			t := &p.Header.Tensors[i]
			rows[i] = row{t.Name, t.Shape(), t.Type.String(), t.Bytes}
		}
		return c.printJSON(map[string]any{"schema": "quantize-plan/1", "tensors": rows, "memory": p.Memory, "disk": p.Disk, "scratch": p.Scratch, "states_on_disk": p.StatesOnDisk})
	}
	w := tabwriter.NewWriter(c.out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "tensor\tshape\ttype\tbytes\tbits/weight\t")
	var weights, bytes int64
	for i := range p.Header.Tensors {
		t := &p.Header.Tensors[i]
		weights, bytes = weights+t.Elements(), bytes+t.Bytes
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%.3f\t\n", t.Name, shape(t.Shape()), t.Type, t.Bytes, 8*float64(t.Bytes)/float64(max(t.Elements(), 1)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "\n%s → %s on disk, %.3f bits per weight over all\n%s\n", humanBytes(p.Source), humanBytes(p.Disk),
		8*float64(bytes)/float64(max(weights, 1)), needLine(p.Memory, p.Scratch, p.StatesOnDisk, p.Work))
	for _, n := range p.Notes {
		fmt.Fprintf(c.out, "note: %s: %s\n", n.Tensor, n.Message)
	}
	return nil
}

// needLine says what a run takes beside the artifact's place: memory, disk, time.
func needLine(memory, scratch int64, onDisk bool, work float64) string {
	line := "memory: about " + humanBytes(memory)
	if onDisk {
		line += " (the hidden states stay on disk)"
	}
	if scratch > 0 {
		line += ", disk: " + humanBytes(scratch) + " more while it runs"
	}
	return line + timeLine(work)
}

// bitsLine spells how many bits a weight takes.
func bitsLine(t quant.Totals) string {
	if t.QuantizedTensors == 0 {
		return fmt.Sprintf("%.3f bits per weight", t.BitsPerWeight)
	}
	return fmt.Sprintf("%.3f bits per quantized weight, %.3f over all", t.BitsPerWeightLinear, t.BitsPerWeight)
}

// timeLine estimates how long the arithmetic takes on this machine.
func timeLine(work float64) string {
	if work == 0 {
		return ""
	}
	return ", time: about " + duration(seconds(work)) + " on this machine"
}

// seconds divides an amount of work by the rate of a short matrix product on all cores.
func seconds(work float64) float64 {
	if work == 0 {
		return 0
	}
	const n, usual = 1024, 0.7 // small and odd shapes reach about this share of a large product's rate
	pool := kernel.NewPool(runtime.GOMAXPROCS(0))
	a, b, c := kernel.MatF32(n, n, make([]float32, n*n)), kernel.MatF32(n, n, make([]float32, n*n)), kernel.MatF32(n, n, make([]float32, n*n))
	best := math.Inf(1) // of a few: other programs run on this machine, too
	for range 5 {
		start := time.Now()
		kernel.GemmNT(pool, c, a, b, false)
		best = min(best, time.Since(start).Seconds())
	}
	return work / (2 * n * n * n / best * usual)
}
