//go:build unix

package kernel

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// cpuSeconds is the processor time that this process has used, the steady measure on a machine shared with others.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// benchPools runs f with every kernel set at one and two threads and reports work (flop per call) per second of CPU and wall time.
func benchPools(b *testing.B, work float64, f func(p *Pool)) {
	for _, s := range available() {
		for threads := 1; threads <= 2; threads++ {
			if s == generic && work > 1e9 {
				continue
			}
			b.Run(fmt.Sprintf("%s/T=%d", s.name, threads), func(b *testing.B) {
				p := NewPool(threads)
				p.set = s
				f(p)
				cpu, wall := cpuSeconds(), time.Now()
				for b.Loop() {
					f(p)
				}
				b.ReportMetric(float64(b.N)*work/1e9/(cpuSeconds()-cpu), "GFLOP/CPU-s")
				b.ReportMetric(float64(b.N)*work/1e9/time.Since(wall).Seconds(), "GFLOP/s")
			})
		}
	}
}

func BenchmarkProduct(b *testing.B) {
	for _, c := range []struct {
		shape   int
		kind    Kind
		m, n, k int
	}{
		{0, F32, 2048, 2048, 2048}, {1, F32, 2048, 2048, 2048}, {2, F32, 2048, 2048, 2048},
		{0, F32, 512, 4096, 4096}, {1, F32, 512, 4096, 4096}, {0, BF16, 512, 4096, 4096}, {0, F16, 512, 4096, 4096}, {1, BF16, 512, 4096, 4096},
		{0, F32, 512, 512, 64}, {1, F32, 512, 64, 512}, {0, F32, 512, 512, 128}, {0, BF16, 64, 4096, 4096},
		{0, BF16, 1, 4096, 4096}, {0, BF16, 4, 4096, 4096}, {0, BF16, 8, 4096, 4096}, {0, BF16, 16, 4096, 4096}, {0, F32, 1, 4096, 4096}, {0, F32, 16, 4096, 4096},
	} {
		s := productShapes[c.shape]
		b.Run(fmt.Sprintf("%s/%s/%dx%dx%d", s.name, c.kind, c.m, c.n, c.k), func(b *testing.B) {
			x, y := s.operands(rand.New(rand.NewPCG(1, 2)), c.kind, c.m, c.n, c.k, 0)
			out := MatF32(c.m, c.n, make([]float32, c.m*c.n))
			benchPools(b, 2*float64(c.m)*float64(c.n)*float64(c.k), func(p *Pool) { s.call(p, out, x, y, false) })
		})
	}
}

// The products of bfloat16 numbers beside those of float32 and of the two mixed.
func BenchmarkProductBF16(b *testing.B) {
	for _, d := range [][3]int{{2048, 2048, 2048}, {512, 4096, 14336}, {512, 4096, 4096}, {64, 4096, 4096}, {16, 4096, 4096}, {1, 4096, 4096}} {
		m, n, k := d[0], d[1], d[2]
		rng := rand.New(rand.NewPCG(1, 2))
		x, y := matrix(rng, F32, m, k, 0), matrix(rng, F32, n, k, 0)
		hx, hy := MatU16(BF16, m, k, make([]uint16, m*k)), MatU16(BF16, n, k, make([]uint16, n*k))
		NarrowRows(nil, hx, x)
		NarrowRows(nil, hy, y)
		c, work := MatF32(m, n, make([]float32, m*n)), 2*float64(m)*float64(n)*float64(k)
		for name, f := range map[string]func(p *Pool){
			"F32":   func(p *Pool) { GemmNT(p, c, x, y, false) },
			"mixed": func(p *Pool) { GemmNT(p, c, x, hy, false) },
			"BF16":  func(p *Pool) { GemmNTBF16(p, c, hx, hy, false) },
		} {
			b.Run(fmt.Sprintf("%dx%dx%d/%s", m, n, k, name), func(b *testing.B) { benchPools(b, work, f) })
		}
	}
}

// Rounding activations to the two forms of operands; work counts bytes read.
func BenchmarkNarrowRows(b *testing.B) {
	const rows, cols = 2048, 4096
	x := matrix(rand.New(rand.NewPCG(1, 2)), F32, rows, cols, 0)
	half, words := MatU16(BF16, rows, cols, make([]uint16, rows*cols)), MatU16(Pairs, rows/2, cols, make([]uint16, rows*cols))
	b.Run("rows", func(b *testing.B) { benchPools(b, 4*rows*cols, func(p *Pool) { NarrowRows(p, half, x) }) })
	b.Run("pairs", func(b *testing.B) { benchPools(b, 4*rows*cols, func(p *Pool) { PairRows(p, words, x) }) })
}

func BenchmarkSyrk(b *testing.B) {
	const n, rows = 2048, 2048
	x := matrix(rand.New(rand.NewPCG(1, 2)), F32, rows, n, 0)
	b.Run("F32/2048", func(b *testing.B) {
		c := MatF32(n, n, make([]float32, n*n))
		benchPools(b, n*n*rows, func(p *Pool) { Syrk(p, c, x, false) })
	})
	words := MatU16(Pairs, rows/2, n, make([]uint16, rows*n))
	PairRows(nil, words, x)
	b.Run("BF16/2048", func(b *testing.B) {
		c := MatF32(n, n, make([]float32, n*n))
		benchPools(b, n*n*rows, func(p *Pool) { SyrkPairs(p, c, words, false) })
	})
	b.Run("TN/2048", func(b *testing.B) {
		c := MatF32(n, n, make([]float32, n*n))
		benchPools(b, 2*n*n*rows, func(p *Pool) { GemmTN(p, c, x, x, false) })
	})
	b.Run("BF16TN/2048", func(b *testing.B) {
		c := MatF32(n, n, make([]float32, n*n))
		benchPools(b, 2*n*n*rows, func(p *Pool) { GemmTNPairs(p, c, words, words, false) })
	})
	b.Run("BF16AddF64/2048", func(b *testing.B) {
		h := make([]float64, n*n)
		benchPools(b, n*n*rows, func(p *Pool) { SyrkPairsAddF64(p, h, n, words) })
	})
	b.Run("AddF64/2048", func(b *testing.B) {
		h := make([]float64, n*n)
		benchPools(b, n*n*rows, func(p *Pool) { SyrkAddF64(p, h, n, x) })
	})
}

func BenchmarkProduct64(b *testing.B) {
	const n = 1024
	rng := rand.New(rand.NewPCG(1, 2))
	x, y, c := make([]float64, n*n), make([]float64, n*n), make([]float64, n*n)
	for i := range x {
		x[i], y[i] = rng.NormFloat64(), rng.NormFloat64()
	}
	benchPools(b, 2*n*n*n, func(p *Pool) { GemmNT64(p, MatF64(n, n, c), MatF64(n, n, x), MatF64(n, n, y), false) })
}

func BenchmarkCholeskyUpperInverse(b *testing.B) {
	for _, n := range []int{1024, 4096} {
		x := matrix(rand.New(rand.NewPCG(1, 2)), F32, n+n/8, n, 0)
		h, u := make([]float64, n*n), make([]float64, n*n)
		SyrkAddF64(NewPool(2), h, n, x)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			benchPools(b, 2./3*float64(n)*float64(n)*float64(n), func(p *Pool) {
				copy(u, h)
				if err := CholeskyUpperInverse(p, u, n); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}
