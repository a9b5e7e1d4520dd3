package quant

// Need says which statistics of a linear's input a transform or rounder uses. Calibration gathers nothing else, and a
// recipe that needs nothing runs without any forward pass.
type Need uint16

// The statistics that calibration can gather.
const (
	NeedAbsMean    Need = 1 << iota // E|x_k| per input channel
	NeedGram                        // E[x xᵀ], K×K: the Hessian of the layer's squared output error up to a factor
	NeedModules                     // normalised inputs of attention and MLP for some windows, to re-run the module
	NeedSequential                  // inputs as the already quantized part of the model produces them (GPTQ)
	NeedMaxAbs                      // max|x_k| per input channel
	NeedShift                       // with NeedSequential: the distance of the inputs from those of the full-precision model
	NeedGram32                      // with NeedSequential: NeedGram's sums may be float32, to save memory
	NeedGramKept                    // with NeedSequential: the sums stay in float64 beside what is made of them
	NeedDescent                     // with NeedGram: room for a damped copy, on which codes descend
)

// Has reports whether n includes all of m.
func (n Need) Has(m Need) bool { return n&m == m }
