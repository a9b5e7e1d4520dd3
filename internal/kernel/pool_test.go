package kernel

import (
	"sync/atomic"
	"testing"
)

func TestPoolRunsEveryIndexOnce(t *testing.T) {
	for _, p := range []*Pool{nil, NewPool(0), NewPool(1), NewPool(3)} {
		for _, n := range []int{0, 1, 2, 100} {
			seen := make([]atomic.Int32, n)
			p.Run(n, func(i int) { seen[i].Add(1) })
			for i := range seen {
				if c := seen[i].Load(); c != 1 {
					t.Errorf("%d threads: index %d ran %d times", p.Threads(), i, c)
				}
			}
		}
	}
}

// TestPoolBoundsNestedRuns counts how many calls are active at once when Run is used inside Run.
func TestPoolBoundsNestedRuns(t *testing.T) {
	p := NewPool(3)
	var active, most, calls atomic.Int32
	p.Run(8, func(int) {
		p.Run(8, func(int) {
			now := active.Add(1)
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			calls.Add(1)
			active.Add(-1)
		})
	})
	if calls.Load() != 64 || most.Load() > 3 {
		t.Errorf("%d calls, at most %d at once; want 64, at most 3", calls.Load(), most.Load())
	}
}

func TestPoolPassesPanicsOn(t *testing.T) {
	p := NewPool(2)
	for range 10 { // the budget of helpers must survive
		func() {
			defer func() {
				if r := recover(); r != "boom" {
					t.Fatalf("recovered %v", r)
				}
			}()
			p.Run(50, func(i int) {
				if i == 17 {
					panic("boom")
				}
			})
		}()
	}
	if len(p.tokens) != 1 {
		t.Errorf("%d helpers left, want 1", len(p.tokens))
	}
}

func TestPoolScratch(t *testing.T) {
	p := NewPool(1)
	small, large := p.take(100), p.take(100000)
	p.give(large)
	p.give(small)
	if got := p.take(90); &got[0] != &small[0] {
		t.Error("a small request did not get the small buffer")
	}
	if got := p.take(100000); &got[0] != &large[0] {
		t.Error("a large request did not get the large buffer")
	}
	if len(p.free) != 0 {
		t.Errorf("%d buffers left", len(p.free))
	}
}
