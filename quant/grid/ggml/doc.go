// Package ggml holds the block formats of GGUF files: for every type its layout, its decoder, and an encoder whose
// output equals, byte for byte, what the reference library writes on x86-64.
//
// # Blocks
//
// A row of weights is cut into blocks of Type.Elems consecutive columns; each block is Type.Bytes long and stands for
// itself. Four families share the work:
//
//   - legacy types (Q4_0 … Q8_0, Q1_0, Q2_0, TQ*, MXFP4, NVFP4): one scale, sometimes a minimum, per small block;
//   - K types (Q2_K … Q6_K): super-blocks of 256 with integer sub-scales, themselves scaled by fp16 numbers;
//   - IQ4_NL and IQ4_XS: the same two shapes, rounding to a table of 16 unequally spaced values;
//   - codebook types (IQ1_* … IQ3_*): a codeword names the magnitudes of 4 or 8 weights at once.
//
// # Byte identity
//
// The encoders are searches in float32: many candidates, each scored by sums whose last bit can decide the winner. The
// output is reproducible only if every operation is rounded on its own and every sum runs in index order. So each product
// that feeds an addition is written float32(a*b): Go would otherwise fuse the two on arm64 and at GOAMD64=v3. Vector
// kernels put one block (or one candidate) in each lane and never split a sum.
//
// Where the reference is wrong (a sub-block of zeros shifts the rest of an IQ3_S block, an MXFP4 exponent wraps) this
// package does the right thing instead; deviations_test.go lists every such case.
//
// # Kernels
//
// On amd64 the searches run in AVX-512 or AVX2 assembly (asm_*_amd64.s, written by the generator in gen). A kernel takes 16
// blocks at once, transposed into planes: row i holds weight i of each block (planes.go). Where vector arithmetic could
// depart from the portable code, far outside the numbers of real weights, kernels say so and the portable code takes over.
// kernels_test.go compares both on every type. Decoding has a kernel per type that goes from packed bytes to float32
// (decode.go); decode_test.go compares it with the portable decoders on arbitrary bytes. The environment variable
// QUANTIZE_KERNEL (avx512, avx2, generic) and the build tag noasm choose; the bytes are the same.
//
// # Use
//
//	t, ok := ggml.ByName("Q4_K")
//	err := t.EncodeRows(dst, weights, rows, cols, importance) // importance: one number per column, or nil
//	t.DecodeRow(row, dst[:rowBytes])
//
// Rounders that choose codes themselves (error feedback) work on Scalar: fit parameters as they will be stored, decode
// with them, pack codes of their own choice.
package ggml
