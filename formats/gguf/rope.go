package gguf

import (
	"math"

	"github.com/llmquant/quantize/formats/arch"
)

// ropeFactors returns the divisors of the rotary frequencies that Llama 3.1 and later need as a tensor, nil for the
// scalings that GGUF states in metadata. Every step is rounded to float32 as in the reference's tensors.
func ropeFactors(m *arch.Model) []float32 {
	r := &m.Rope
	if r.Type != "llama3" {
		return nil
	}
	low, high, factor := float32(r.LowFreqFactor), float32(r.HighFreqFactor), float32(r.Factor)
	context := float32(r.OriginalMaxPos)
	longest := float32(float64(r.OriginalMaxPos) / r.LowFreqFactor)
	shortest := float32(float64(r.OriginalMaxPos) / r.HighFreqFactor)
	factors := make([]float32, r.Dim/2)
	for i := range factors {
		exponent := float32(2*i) / float32(r.Dim)
		frequency := 1 / float32(math.Pow(r.Theta, float64(exponent)))
		wavelength := float32(2*math.Pi) / frequency
		switch {
		case wavelength < shortest:
			factors[i] = 1
		case wavelength > longest:
			factors[i] = factor
		default:
			smooth := (context/wavelength - low) / (high - low)
			factors[i] = 1 / (float32((1-smooth)/factor) + smooth)
		}
	}
	return factors
}
