// Package forward runs a model one decoder block at a time, in float32, on weights that stay in the type they are
// stored in. It is what calibration and evaluation need: the inputs of every linear (Tap, Collector), the effect of
// changed weights on a module's output (Attention, MLP), the next block's inputs (Forward), and at the end
// cross-entropy and divergence (Loss, Compare) or greedy text (Decoder).
//
// # Shapes
//
// Hidden states are one matrix [tokens, hidden] in which windows of SeqLen tokens lie one after another; the last may
// be shorter. Every window starts at position 0 and attends to itself only.
//
// # Memory
//
// A Runner works on chunks of whole windows and never holds more than a chunk's activations (ScratchBytes says how
// much). Attention makes score tiles of about 256 rows per thread. Weights are one Block; the experts of a mixture can
// be fetched one at a time.
//
// # Reproducible
//
// The result of a token does not depend on the chunk it is computed in, nor on the number of threads: products and
// sums follow package kernel. Statistics are added chunk by chunk on a grid that depends on shapes alone
// (Runner.ChunkTokens); who splits the windows over several calls splits at multiples of it.
//
// # Fidelity
//
// The arithmetic follows Transformers' float32 eager mode: RMS norm, half-split rotary embedding, softmax and the
// router's softmax in float32. Hidden states agree with it to a relative 1e-6 or so, as far as two float32
// implementations can.
package forward
