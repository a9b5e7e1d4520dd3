package quant

import (
	"github.com/llmquant/quantize/calib/forward"
	"github.com/llmquant/quantize/internal/kernel"
)

// calibDType is the setting's name in reports.
const calibDType = "calib_dtype"

// products returns what adds up products of activations as the recipe wants them.
func (j *job) products() forward.Products { return forward.Products{Pool: j.pool, BF16: j.recipe.BF16} }

// computed returns a weight as forward passes multiply it.
func (j *job) computed(w kernel.Mat) kernel.Mat {
	if !j.recipe.BF16 {
		return w
	}
	n := kernel.MatU16(kernel.BF16, w.Rows, w.Cols, make([]uint16, w.Rows*w.Cols))
	kernel.NarrowRows(j.pool, n, w)
	return n
}
