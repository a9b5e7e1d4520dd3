// Package mixture decides which ggml type each tensor of a model gets, as llama-quantize does.
//
// A file type such as Q4_K_M is not one number format but a recipe: a base type plus rules that give the sensitive
// tensors more bits, by category (attention values, down projections, the head …), position in the stack and shape of
// the model. The rules are data (rules.go); Choose walks the tensors once, in the order in which they are written,
// because some rules count the tensors of a category seen so far.
//
// The decisions equal those of llama.cpp commit 34af94cd9 on 6,225 recorded runs over 83 architectures. Where the
// reference gives up (a row length that neither the type nor its fallback can hold) the tensor becomes F16 and the
// choice says so.
package mixture
