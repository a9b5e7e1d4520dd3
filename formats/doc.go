// Package formats opens checkpoints of every kind the project reads and publishes outputs that are complete or absent.
//
// Open looks at what a path is (a table of openers by magic) and returns a Checkpoint: validated tensors, configuration,
// a statement of how it is quantized, and the files that belong to it. Dense turns any of them into plain float32
// weights under Hugging Face names.
//
// A Job is the other side: a complete container.Plan goes in, tensors are filled at their final offsets in any order, and
// one rename makes the output appear. Between the two lies a journal that lets an interrupted run continue to the same
// bytes, whether it was killed, ran out of space or lost power.
package formats
