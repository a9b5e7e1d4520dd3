// Package kernel holds the arithmetic that dominates a quantization run on a CPU: matrix products, Gram matrices,
// the factorization behind GPTQ, float conversions and the few elementwise functions of a transformer block.
//
// # Reproducible by definition
//
// Results are defined without reference to a vector width, so that every kernel set (AVX-512, AVX2 and portable Go)
// and every number of threads gives the same bits:
//
//   - Each element of a matrix product is a chain of fused multiply-adds along k inside a block of KC = 512 values of k,
//     starting from zero; the blocks are added in order, to zero or to the old value of C.
//   - The products of bfloat16 matrices have the same blocks. Inside, values of k come in pairs, the second one of a pair
//     first, and denormal numbers count as zero: what the instruction for them does, which dotPair spells out. Processors
//     without it do the same by plain fused multiply-adds.
//   - Work is split over rows and columns of C, never over k.
//   - Sums of a row (softmax, RMS norm) run over 16 interleaved accumulators that are added pairwise, in an order that
//     depends on the length alone.
//   - exp and the functions built on it are fixed polynomials in float32 with explicit fused steps.
//
// Only the payload of a NaN may differ between kernel sets.
//
// # Shapes
//
// A Mat is row-major with a stride, so a head of an attention layer or a block of a larger matrix is a Mat without a copy.
// Mismatched shapes are bugs of the caller and panic, as an index out of range does; no input file can cause one.
//
// The assembly is written by the generator in gen, a module of its own; make generate runs it.
package kernel
