package quant

import (
	"context"
	"fmt"
	"path/filepath"
	"sort"
	"time"

	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/gguf"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/internal/kernel"
)

// Imatrix runs the calibration windows through the model and returns Σx² per input channel of every matrix of its
// blocks, experts separately, under the names llama.cpp uses. Sums are added in float64. Experts that no token was
// routed to are reported through o.Events.
func Imatrix(ctx context.Context, src formats.Checkpoint, o Options) (*gguf.Imatrix, error) {
	dense, err := formats.Dense(src)
	if err != nil {
		return nil, err
	}
	model, err := arch.Resolve(dense.Meta().Config, dense)
	if err != nil {
		return nil, safeio.WithPath(err, src.Meta().Path)
	}
	if err := checkCalibration(&o, model); err != nil {
		return nil, err
	}
	set, pool := o.Calib, newPool(o.Threads)
	runner := forward.NewRunner(model, pool, set.Windows, set.SeqLen)
	fit, err := fitImatrix(model, &o)
	if err != nil {
		return nil, err
	}
	hidden, release, err := imatrixStates(model, &o, runner.ChunkTokens(), fit.statesOnDisk)
	if err != nil {
		return nil, err
	}
	defer release()
	embed := func(dst kernel.Mat, ids []int32) error { return runner.Embed(dst, ids, dense) }
	if err := hidden.embed(ctx, embed, set.IDs[:hidden.rows]); err != nil {
		return nil, safeio.WithPath(err, src.Meta().Path)
	}
	m := &gguf.Imatrix{Chunks: set.Windows, ChunkSize: set.SeqLen}
	for _, f := range set.Files {
		m.Datasets = append(m.Datasets, f.Name)
	}
	j := &job{opts: &o, pool: pool, start: time.Now()}
	for i := range model.Blocks {
		j.progress(fmt.Sprintf("layer %d of %d", i+1, len(model.Blocks)), float64(i)/float64(len(model.Blocks)))
		b, err := forward.Load(dense, model, i, forward.LoadOptions{Pool: pool, LazyExperts: fit.lazyExperts})
		if err != nil {
			return nil, safeio.WithPath(err, src.Meta().Path)
		}
		c := forward.NewCollector(pool, b.Arch, 1, func(arch.Input) forward.Want { return forward.WantSumSq })
		if err := hidden.forward(ctx, runner.Forward, b, c.Tap); err != nil {
			return nil, err
		}
		m.Entries = append(m.Entries, blockEntries(b.Arch, c)...)
		j.reportUnrouted(b.Arch, c)
	}
	sort.Slice(m.Entries, func(a, b int) bool { return m.Entries[a].Name < m.Entries[b].Name })
	return m, nil
}

// imatrixFit is what Imatrix does to keep to its memory, none of which changes a sum.
type imatrixFit struct{ statesOnDisk, lazyExperts bool }

// fitImatrix takes the first way that fits, the cheapest first: experts that stay on disk are read again for every chunk.
func fitImatrix(m *arch.Model, o *Options) (fit imatrixFit, err error) {
	for _, fit = range []imatrixFit{{}, {statesOnDisk: true}, {statesOnDisk: true, lazyExperts: true}} {
		if err = checkMemory(imatrixMemory(m, o, fit), true, o); err == nil {
			return fit, nil
		}
	}
	return fit, err
}

// imatrixStates makes room for the hidden states: in memory, or in a file beside o.Out that has no name. Nothing of it
// outlives the process.
func imatrixStates(m *arch.Model, o *Options, step int, onDisk bool) (*states, func(), error) {
	s := newStates(o.Calib.Windows*o.Calib.SeqLen, m.Hidden, step, onDisk)
	if !onDisk {
		return &s, func() {}, nil
	}
	f, err := safeio.Scratch(filepath.Dir(o.Out), s.bytes())
	if err != nil {
		return nil, nil, err
	}
	s.from, s.to = f, f
	return &s, func() { f.Close() }, nil
}

// imatrixNames are the GGUF names of a block's matrices by role; experts are stacked in one entry.
var imatrixNames = map[arch.Role]string{
	arch.RoleQ: "attn_q", arch.RoleK: "attn_k", arch.RoleV: "attn_v", arch.RoleO: "attn_output",
	arch.RoleGate: "ffn_gate", arch.RoleUp: "ffn_up", arch.RoleDown: "ffn_down", arch.RoleRouter: "ffn_gate_inp",
}

// blockEntries turns the statistics of a block's inputs into entries per matrix.
func blockEntries(b *arch.Block, c *forward.Collector) []gguf.ImatrixEntry {
	byName := map[string]*gguf.ImatrixEntry{}
	var order []string
	add := func(lin *arch.Linear, st *forward.Stat) {
		name := fmt.Sprintf("blk.%d.%s", b.Index, imatrixNames[lin.Role])
		if lin.Expert >= 0 {
			name += "_exps"
		}
		name += ".weight"
		e := byName[name]
		if e == nil {
			e = &gguf.ImatrixEntry{Name: name}
			byName[name], order = e, append(order, name)
		}
		for _, v := range st.SumSq {
			e.Sums = append(e.Sums, float32(v))
		}
		e.Counts = append(e.Counts, float32(st.Tokens))
	}
	for _, in := range b.Inputs() {
		st := c.Stat(in.Kind, in.Expert)
		if in.Router != nil {
			add(in.Router, st)
		}
		for _, lin := range in.Linears {
			if lin.Expert == in.Expert {
				add(lin, st)
			}
		}
	}
	entries := make([]gguf.ImatrixEntry, len(order))
	for i, name := range order {
		entries[i] = *byName[name]
	}
	return entries
}

// reportUnrouted names the experts that calibration never reached.
func (j *job) reportUnrouted(b *arch.Block, c *forward.Collector) {
	for _, in := range b.Inputs() {
		if in.Expert < 0 || in.Kind != arch.MLPIn {
			continue
		}
		if st := c.Stat(in.Kind, in.Expert); st.Tokens == 0 {
			j.event(Event{Kind: EventFinding, Layer: b.Index, Tensor: in.Linears[0].Weight(),
				Message: "no calibration token was routed to this expert: its importance is unknown"})
		}
	}
}
