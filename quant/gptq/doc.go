// Package gptq rounds the weight of a linear so that its outputs, not its weights, stay close: it minimises
//
//	L(Q) = tr((Wt − Q)·Hλ·(Wt − Q)ᵀ),   Hλ = E[x xᵀ] + λI
//
// over the representable matrices Q of any grid. Wt is the weight itself, or a target that also repairs what the
// quantized layers before did to the inputs (target.go).
//
// The work has three parts, each usable alone:
//
//   - feedback (feedback.go): GPTQ. Columns are rounded in turn and the error of each is spread over the columns still
//     to come through the Cholesky factor of H⁻¹. Group parameters are chosen when a group is entered, by trying
//     candidates with the feedback inside the group (lookahead.go).
//   - refinement (refine.go): coordinate descent over codes and closed-form refits of group parameters, block by block
//     under the same H. It never raises L.
//   - a guard (loss.go): per row, the better of the result and plain rounding.
//
// Rows are independent given H, so they are cut into tiles that workers take in any order; sums run in an order that
// depends on shapes alone. The same input gives the same bytes at any thread count.
//
// Sources: GPTQ (arXiv 2210.17323), QuantEase (2309.01885) for the descent, QEP (2504.09629) and Qronos (2505.11695) for
// the target; the group-aware order is GPTQModel's.
package gptq
