// Package arch knows model families: tensor names and roles, the switches of the block's mathematics, and which
// norm feeds which linears. Resolve turns a config and tensor shapes into a Model that others may trust.
//
// A family is one table literal (llama.go, mistral.go, …) that states only what differs: where biases are, whether
// queries and keys are normalised, which layers see a sliding window, which layers are mixtures of experts. No other
// package asks for a family's name; what they need to know is data on Model and Block:
//
//   - Block.Linears, the matrices that can be quantized, in forward order
//   - Block.Inputs, which linears read the same activations (one Hessian, one importance vector for all of them)
//   - Block.AWQPairs, where a per-channel scale of a linear's input can be folded without changing the function
//   - Model.GGUF, the names llama.cpp uses
//
// Resolve is strict. Every number of config.json is range-checked once, every tensor the family needs must exist with
// the shape the config implies, and every tensor of the checkpoint that nothing names is listed in Model.Unknown so
// that it is copied and reported, never dropped. What this package does not implement (an architecture, a rope type,
// an activation) is refused by name together with what it does implement.
package arch
