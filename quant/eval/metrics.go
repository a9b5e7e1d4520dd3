package eval

import (
	"math"
	"sort"

	"gonum.org/v1/gonum/stat"

	"github.com/llmquant/quantize/calib/forward"
)

// KL sums up the divergence KL(base ‖ model) in nats over the scored tokens.
type KL struct {
	Mean   float64 `json:"mean"`
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// Interval is a value with its 95 % bootstrap interval.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// scores holds one entry per scored token, in stream order.
type scores struct {
	window, doc []int
	unit        []int // bootstrap unit: document, or window where there are few documents
	nll         []float64
	baseNLL     []float64 // nil without a base
	kl          []float64
	agree       []bool
	numUnits    int
}

func (s *scores) add(g forward.Score, window, doc int, base bool) {
	s.window, s.doc = append(s.window, window), append(s.doc, doc)
	s.nll = append(s.nll, g.NLL)
	if base {
		s.baseNLL, s.kl = append(s.baseNLL, g.BaseNLL), append(s.kl, math.Max(g.KL, 0))
		s.agree = append(s.agree, g.Top == g.BaseTop)
	}
}

// result sums up.
func (s *scores) result(o Options, base bool) *Result {
	last := len(s.nll) - 1 // documents behind the last scored token do not count
	s.unit, s.numUnits = s.doc, s.doc[last]+1
	r := &Result{Schema: "quantize-eval/1", SeqLen: o.SeqLen, Protocol: o.Protocol, Stride: o.Stride, Tokens: len(s.nll), Documents: s.numUnits, Gates: []Gate{}}
	if r.Documents < minDocuments {
		s.unit, s.numUnits = s.window, s.window[last]+1
	}
	r.CrossEntropy = mean(s.nll)
	r.Perplexity = math.Exp(r.CrossEntropy)
	if base {
		ce := mean(s.baseNLL)
		ppl, kl, agree, ratio := math.Exp(ce), s.klSummary(), s.agreement(), s.perplexityRatio()
		r.BaseCrossEntropy, r.BasePerplexity, r.KL, r.Top1Agreement, r.PerplexityRatio = &ce, &ppl, &kl, &agree, &ratio
	}
	return r
}

const (
	bootstrapRounds = 2000
	minDocuments    = 20 // with fewer documents windows are the bootstrap's units
)

// klSummary computes mean, quantiles and the interval of the mean.
func (s *scores) klSummary() KL {
	sorted := append([]float64(nil), s.kl...)
	sort.Float64s(sorted)
	interval := s.bootstrap(s.kl, s.kl, func(sum, _, n float64) float64 { return sum / n })
	return KL{
		Mean: mean(s.kl), Median: stat.Quantile(0.5, stat.Empirical, sorted, nil), P99: stat.Quantile(0.99, stat.Empirical, sorted, nil),
		Max: sorted[len(sorted)-1], Low: interval[0], High: interval[1],
	}
}

// perplexityRatio is perplexity(model)/perplexity(base) with a paired interval: both models' losses are resampled
// together, so what the text itself contributes cancels.
func (s *scores) perplexityRatio() Interval {
	ratio := func(a, b, n float64) float64 { return math.Exp((a - b) / n) }
	interval := s.bootstrap(s.nll, s.baseNLL, ratio)
	return Interval{Value: math.Exp(mean(s.nll) - mean(s.baseNLL)), Low: interval[0], High: interval[1]}
}

func (s *scores) agreement() float64 {
	n := 0
	for _, a := range s.agree {
		if a {
			n++
		}
	}
	return float64(n) / float64(len(s.agree))
}

// bootstrap resamples units with replacement and returns the 2.5 % and 97.5 % quantiles of f(Σa, Σb, tokens).
func (s *scores) bootstrap(a, b []float64, f func(sumA, sumB, n float64) float64) [2]float64 {
	sumA, sumB, count := make([]float64, s.numUnits), make([]float64, s.numUnits), make([]float64, s.numUnits)
	for i, u := range s.unit {
		sumA[u] += a[i]
		sumB[u] += b[i]
		count[u]++
	}
	rounds := make([]float64, 0, bootstrapRounds)
	rng := counter{key: uint64(s.numUnits)}
	for range bootstrapRounds {
		var ta, tb, tn float64
		for range s.numUnits {
			u := rng.below(s.numUnits)
			ta, tb, tn = ta+sumA[u], tb+sumB[u], tn+count[u]
		}
		if tn > 0 {
			rounds = append(rounds, f(ta, tb, tn))
		}
	}
	if len(rounds) == 0 {
		v := f(0, 0, 1)
		return [2]float64{v, v}
	}
	sort.Float64s(rounds)
	return [2]float64{stat.Quantile(0.025, stat.Empirical, rounds, nil), stat.Quantile(0.975, stat.Empirical, rounds, nil)}
}

func mean(x []float64) float64 {
	var sum float64
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// counter is a counter-based generator (SplitMix64): the same intervals on every run and machine.
type counter struct{ key, n uint64 }

func (c *counter) below(n int) int {
	c.n++
	z := c.key*0x9e3779b97f4a7c15 + c.n*0xd1342543de82ef95
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	return int(z % uint64(n))
}
