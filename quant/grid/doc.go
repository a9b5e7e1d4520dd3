// Package grid holds number formats: finite sets of values that weights are rounded to, and the parameters (scales,
// zero points, sub-scales) that place such a set over a group of columns.
//
// A Grid answers four questions, for a tile of rows at a time: which parameters suit these weights (Fit), which others
// deserve a try (Propose), what is the nearest representable value (Round), and, once codes are chosen, which parameters
// suit the codes best (Refit). Round to nearest, GPTQ's error feedback and coordinate descent are written on these four
// alone, so every rounder works on every grid.
//
// Parameters are always the numbers that will be stored, after their own rounding to F16, BF16 or a few bits; codes are
// computed against them and never against an ideal scale. So what Decode returns is what a reader of the file sees.
//
// Tiles are column-major: the values of one column for all rows of the tile lie together. Groups, feedback and sweeps run
// along the columns while rows are independent, so every inner loop runs over rows and can be vectorised without
// reordering a sum.
package grid
