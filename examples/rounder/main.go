// This program brings its own rounder: every scale is a power of two, so that hardware without multipliers can decode
// by shifting. Everything else (transforms, layouts, resuming, the report) comes from the library:
//
//	go run ./examples/rounder testdata/golm-llama /tmp/golm-shift
package main

import (
	"context"
	"fmt"
	"log"
	"math"
	"os"

	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/quant"
)

// shift rounds to w = 2^e·(q − 2^(bits−1)) with one exponent per group of columns. Of the two powers of two around the
// smallest scale without clipping it takes the one with the smaller squared error.
type shift struct{}

func (shift) Name() string      { return "shift" }
func (shift) Needs() quant.Need { return 0 } // no calibration

func (shift) Round(ctx context.Context, m *quant.Matrix, _ *quant.Stats) (*packing.Linear, error) {
	rows, cols, group := m.Linear.Out, m.Linear.In, m.Scheme.GroupSize
	l := &packing.Linear{Scheme: m.Scheme, Out: rows, In: cols, Codes: make([]uint8, rows*cols)}
	for at := 0; at < rows*cols; at += group { // the layout has checked that groups divide rows
		w, codes := m.W[at:at+group], l.Codes[at:at+group]
		peak := 0.0
		for _, v := range w {
			peak = max(peak, math.Abs(float64(v)))
		}
		half := float64(int(1) << (m.Scheme.Bits - 1))
		fits := math.Ceil(math.Log2(max(peak, 0x1p-14) / half)) // every |w| <= 2^fits·half; F16 holds such scales exactly
		wide, narrow := math.Exp2(fits), math.Exp2(fits-1)
		scale := wide
		if encode(codes, w, narrow, half) < encode(codes, w, wide, half) {
			scale = narrow
		}
		encode(codes, w, scale, half)
		l.Scales = append(l.Scales, float32(scale))
	}
	return l, ctx.Err()
}

// encode fills codes for a scale and returns the squared error.
func encode(codes []uint8, w []float32, scale, half float64) (sum float64) {
	for i, v := range w {
		q := min(max(math.RoundToEven(float64(v)/scale), -half), half-1)
		codes[i] = uint8(q + half)
		sum += (scale*q - float64(v)) * (scale*q - float64(v))
	}
	return sum
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: rounder MODEL OUT")
	}
	ctx := context.Background()
	model, err := formats.Open(ctx, os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	scheme := packing.Scheme{Grid: "int", Bits: 4, GroupSize: 32, Sym: true}
	recipe := quant.Recipe{Method: "shift", Rounder: shift{}, Allocation: quant.Uniform{Scheme: scheme}, Layout: "compressed-tensors"}
	rep, err := quant.Run(ctx, model, recipe, quant.Options{Out: os.Args[2]})
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range rep.Tensors {
		fmt.Printf("%-45s %-12s error %.4f\n", t.Name, t.Grid, t.RelError)
	}
}
