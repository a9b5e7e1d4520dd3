// Package exl2 quantizes linears for ExLlamaV2: bit widths from 2 to 8 mixed inside every linear and between them, so that
// a model has the average number of bits that the user asks for and the least error at that size.
//
// The work has three parts. The first needs the original model's calibration statistics, the last those behind the part
// that is already quantized:
//
//	p, _ := Prepare(pool, k, H, Best())             // one input: order of rows, damped Hessian
//	m, _ := p.Measure(ctx, pool, weights, cands)    // every candidate on a part of the outputs: bits, error
//	…       NewSlot, Probes, SetSensitivities       // what an error in each linear does to the predictions
//	c, _ := Optimize(slots, 4.0)                    // a candidate for every linear
//	t, _, _ := p.Target(ctx, pool, stats, w, out, groups)   // repairs what the quantized part before did
//	l, _, _ := p.Quantize(ctx, pool, t, out, groups)        // groups: c.Modules[name].Groups(k)
//
// A Measurement file keeps the second part; it serves any target of the same model.
//
// One linear is rounded like this. Input columns are sorted by the diagonal of H and cut into groups, the first with the
// most bits (candidate.go). Every group has one number from which the steps of all outputs follow; it is chosen from
// tables of error against step (maxima.go). Then, 64 outputs at a time, columns are rounded with error feedback
// (tile.go), visiting the coarse groups first so that the fine ones make up for them (arrange.go); each output's step in a
// group is the one of its sixteen that does best with feedback inside the group. Refinement solves group by group anew
// and moves single codes while that lowers the loss (refine.go), and plain rounding replaces outputs that came out worse.
//
// Every step is rounded as the loader will compute it before anything is rounded with it, so the loss is that of the
// stored file. Sums run in an order that depends on shapes alone: the same input gives the same bytes at any number of
// threads.
//
// Sources: the public format and converter of ExLlamaV2 for the layout, its candidates and what a measurement holds; GPTQ
// (arXiv 2210.17323) for the feedback; HIGGS (2411.17525) for adding up sensitivities. Order of visits, tables,
// refinement and the choice between candidates are this project's.
package exl2
