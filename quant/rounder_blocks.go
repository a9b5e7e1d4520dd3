package quant

import (
	"context"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/quant/grid"
	"github.com/llmquant/quantize/quant/grid/ggml"
)

// KQuant rounds into ggml blocks with the reference searches, weighted by the mean square of the inputs where it is
// known: what llama-quantize does with an importance matrix of the same text.
type KQuant struct{}

// Name implements Rounder.
func (KQuant) Name() string { return kquantMethod }

// kquantMethod is the name of the method and of its rounder.
const kquantMethod = "kquant"

// Needs implements Rounder.
func (KQuant) Needs() Need { return NeedGram }

// Round implements Rounder.
func (KQuant) Round(ctx context.Context, m *Matrix, stats *Stats) (*packing.Linear, error) {
	t, err := m.block()
	if err != nil {
		return nil, err
	}
	rowBytes, err := t.RowBytes(m.Linear.In)
	if err != nil {
		return nil, err
	}
	n, k := m.Linear.Out, m.Linear.In
	l := &packing.Linear{Scheme: m.Scheme, Out: n, In: k, Blocks: make([]byte, int64(n)*rowBytes)}
	importance := stats.importance()
	step := int(tileRows(int64(k)))
	tiles := (n + step - 1) / step
	errs := make([]error, tiles)
	m.pool().Run(tiles, func(i int) {
		lo, hi := i*step, min((i+1)*step, n)
		errs[i] = t.EncodeRows(l.Blocks[int64(lo)*rowBytes:int64(hi)*rowBytes], m.W[lo*k:hi*k], hi-lo, k, importance)
	})
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return l, ctx.Err()
}

// importance is E[x²] per channel, nil when it is not known.
func (st *Stats) importance() []float32 {
	if !st.known() || st.Tokens == 0 {
		return nil
	}
	if st.prepared != nil {
		return st.diagonal
	}
	st.diagonal = make([]float32, st.K)
	for k := range st.diagonal {
		if at := k*st.K + k; st.Gram != nil {
			st.diagonal[k] = float32(st.Gram[at])
		} else {
			st.diagonal[k] = st.gram32[at]
		}
	}
	return st.diagonal
}

// block returns the ggml type of the matrix's scheme.
func (m *Matrix) block() (*ggml.Type, error) {
	t, ok := ggml.ByName(m.Scheme.Grid)
	if !ok {
		return nil, safeio.Unsupportedf("%s is no ggml type", SchemeName(m.Scheme))
	}
	return t, nil
}

// isInt reports whether the matrix goes to group-affine integers.
func (m *Matrix) isInt() bool { return m.Scheme.Grid == "int" }

// scalarGrid is the grid that error feedback rounds on, weight by weight.
func (m *Matrix) scalarGrid(o grid.IntOptions) (grid.Grid, error) {
	if m.isInt() {
		return m.grid(o)
	}
	t, err := m.block()
	if err != nil {
		return nil, err
	}
	return grid.NewBlock(t, m.Linear.In)
}

// plain rounds without error feedback: what a calibrated result has to beat.
func (m *Matrix) plain(ctx context.Context, stats *Stats) (*packing.Linear, error) {
	if m.isInt() {
		return Nearest{}.Round(ctx, m, nil)
	}
	return KQuant{}.Round(ctx, m, stats)
}

// decode returns the values of a quantized weight, [Out, In].
func decode(q *packing.Linear) ([]float32, error) {
	values := make([]float32, q.Out*q.In)
	if q.Blocks == nil {
		return values, q.Dequantize(values, 0, q.Out)
	}
	t, ok := ggml.ByName(q.Grid)
	if !ok || q.Out == 0 {
		return nil, safeio.Unsupportedf("there is no decoder for blocks of %s", q.Grid)
	}
	rowBytes := len(q.Blocks) / q.Out
	for n := range q.Out {
		t.DecodeRow(values[n*q.In:(n+1)*q.In], q.Blocks[n*rowBytes:(n+1)*rowBytes])
	}
	return values, nil
}
