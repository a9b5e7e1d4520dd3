package forward

import (
	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/internal/kernel"
)

const (
	// mlpTokens bounds the tokens of an MLP step where windows are longer than a chunk: weights are packed once per step.
	mlpTokens = 2048
	// chunkTokens is the number of tokens whose activations are held at a time: enough rows for matrix products to run
	// at full speed, few enough to stay small beside a block's weights.
	chunkTokens = 1024
	// maxExpertChunk bounds the chunk of a mixture, which grows so that each expert sees about chunkTokens rows.
	maxExpertChunk = 16384
	// tileRows is the number of score rows (queries times heads that share keys) of one attention tile.
	tileRows = 256
)

// Runner computes blocks of one model over windows of one length. It owns the scratch memory, so it is not safe for
// concurrent use; the pool inside works in parallel.
type Runner struct {
	model *arch.Model
	pool  *kernel.Pool
	size  sizes
	rope  ropeTable

	norm    []float32 // [chunk, hidden] normalised input
	keep    []float32 // [chunk, hidden] copy of the residual stream for Collect
	q       []float32 // [attnRows, heads·head_dim], overwritten by the attention's output
	k, v    []float32 // [attnRows, kv_heads·head_dim]
	gate    []float32 // [mlpRows, intermediate], overwritten by silu(gate)·up
	up      []float32
	experts expertScratch
	tiles   chan *tile // one per thread

	bf16   bool     // round what large linears multiply
	narrow []uint16 // [rows of a step, width] inputs in bfloat16
	weight []uint16 // a weight in bfloat16
}

// NewRunner prepares to run m over up to windows windows of seqLen tokens each. Memory is taken when first needed.
func NewRunner(m *arch.Model, pool *kernel.Pool, windows, seqLen int) *Runner {
	r := &Runner{model: m, pool: pool, size: sizesOf(m, pool.Threads(), windows, seqLen)}
	rope := m.Rope.ForLength(seqLen, m.MaxPos)
	r.rope = newRopeTable(&rope, seqLen)
	r.tiles = make(chan *tile, pool.Threads())
	for range pool.Threads() {
		r.tiles <- &tile{}
	}
	return r
}

// SeqLen returns the length of a window.
func (r *Runner) SeqLen() int { return r.size.seq }

// ChunkTokens returns the number of tokens that Forward and Collect take at a time, a multiple of SeqLen. Statistics
// are added on this grid.
func (r *Runner) ChunkTokens() int { return r.size.chunk }

// ChunkTokens is Runner.ChunkTokens of a Runner of these arguments.
func ChunkTokens(m *arch.Model, windows, seqLen int) int { return sizesOf(m, 1, windows, seqLen).chunk }

// ScratchBytes returns the memory that a Runner of these arguments takes at most, beside weights, hidden states and
// the packing buffers of the matrix products.
func ScratchBytes(m *arch.Model, threads, windows, seqLen int) int64 {
	return sizesOf(m, max(threads, 1), windows, seqLen).bytes()
}

// sizes are the dimensions of all scratch, in elements, derived from shapes alone.
type sizes struct {
	threads, seq    int
	chunk           int // tokens of a chunk: whole windows
	attnRows        int // tokens of an attention step: whole windows
	mlpRows         int // tokens of an MLP step
	hidden, q, kv   int
	headDim, shared int // shared: query heads per key head
	inter           int // widest MLP
	experts, topK   int
	tileTokens      int // tokens of an attention tile
}

func sizesOf(m *arch.Model, threads, windows, seqLen int) sizes {
	seqLen = max(seqLen, 1)
	s := sizes{threads: threads, seq: seqLen, hidden: m.Hidden, q: m.Heads * m.HeadDim, kv: m.KVHeads * m.HeadDim,
		headDim: m.HeadDim, shared: m.Heads / m.KVHeads}
	tokens := chunkTokens
	for i := range m.Blocks {
		b := &m.Blocks[i]
		s.inter = max(s.inter, b.Down.In)
		if b.MoE == nil {
			continue
		}
		s.experts, s.topK = max(s.experts, len(b.MoE.Experts)), max(s.topK, b.MoE.TopK)
		s.inter = max(s.inter, b.MoE.Experts[0].Down.In)
		tokens = max(tokens, min(maxExpertChunk, chunkTokens*len(b.MoE.Experts)/b.MoE.TopK))
	}
	whole := func(tokens int) int { return min(max(windows, 1), max(1, tokens/seqLen)) * seqLen }
	s.chunk, s.attnRows = whole(tokens), whole(chunkTokens)
	s.mlpRows = min(s.chunk, max(chunkTokens, min(mlpTokens, s.attnRows)))
	s.tileTokens = min(seqLen, max(1, tileRows/s.shared))
	return s
}

// bytes adds up what the buffers of Runner, expertScratch and tile take.
func (s sizes) bytes() int64 {
	n := 2*int64(s.chunk)*int64(s.hidden) + // norm, keep
		int64(s.attnRows)*int64(s.q+2*s.kv) +
		2*int64(s.mlpRows)*int64(s.inter)
	if s.experts > 0 {
		n += 2*int64(s.mlpRows)*int64(s.hidden) + // gathered rows, expert outputs
			int64(s.chunk)*int64(s.experts+3*s.topK)
	}
	tile := int64(s.tileTokens) * int64(s.shared) * int64(2*s.headDim+s.seq)
	rope := int64(s.seq) * int64(s.headDim)
	return 4 * (n + int64(s.threads)*tile + rope)
}

// buffer returns a [rows, cols] matrix over *buf, growing it when needed.
func buffer(buf *[]float32, rows, cols int) kernel.Mat {
	return kernel.MatF32(rows, cols, grow(buf, rows*cols))
}

func grow[T any](buf *[]T, n int) []T {
	if cap(*buf) < n {
		*buf = make([]T, n)
	}
	return (*buf)[:n]
}

// forRows calls f for each row of a chunk, several rows per task.
func forRows(p *kernel.Pool, rows int, f func(i int)) {
	const step = 32
	p.Run((rows+step-1)/step, func(t int) {
		for i := t * step; i < min(rows, (t+1)*step); i++ {
			f(i)
		}
	})
}

// rows is rows [lo, hi) of m.
func rows(m kernel.Mat, lo, hi int) kernel.Mat { return m.Slice(lo, hi, 0, m.Cols) }
