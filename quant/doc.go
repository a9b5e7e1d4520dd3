// Package quant turns a checkpoint into a smaller one: Run opens nothing and hides nothing, it takes a checkpoint, a
// Recipe and Options, and leaves a complete artifact or none.
//
// A Recipe is three independent choices. Transforms rewrite weights without changing the function of the model (AWQ's
// channel scaling). One Rounder turns each matrix into codes (nearest, or error feedback through the Hessian). An
// Allocation says which number format each tensor gets. Presets such as AWQ and RTN fill in the usual combination.
//
// Transform and Rounder are interfaces so that programs can bring their own; see the examples directory.
//
// The same checkpoint, recipe and calibration text give the same bytes at any number of threads and on any CPU. A run
// that is killed continues where it stopped when it is started again.
package quant
