package kernel

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Pool bounds how many goroutines compute at the same time. A nil Pool stands for one thread.
//
// Run may be nested and may be called from several goroutines: helpers are taken from one budget of Threads-1, and where
// none is free the caller simply does the work itself. So code inside Run should pass the same Pool on.
type Pool struct {
	threads int
	tokens  chan struct{} // one per helper goroutine that may still be started
	set     *set          // nil for the active one

	mu   sync.Mutex
	free [][]uint64 // scratch memory that no call uses at the moment
}

// NewPool returns a pool of the given number of threads, at least one.
func NewPool(threads int) *Pool {
	p := &Pool{threads: max(threads, 1)}
	p.tokens = make(chan struct{}, p.threads-1)
	for range p.threads - 1 {
		p.tokens <- struct{}{}
	}
	return p
}

// Threads is the number of goroutines that may compute at the same time.
func (p *Pool) Threads() int {
	if p == nil {
		return 1
	}
	return p.threads
}

// Run calls f(i) once for every i in [0, n), in any order, and returns when all calls have. Indices are handed out one by
// one, so calls of unequal length balance. A panic in f is raised again on the caller's goroutine.
func (p *Pool) Run(n int, f func(i int)) {
	if p == nil || p.threads == 1 || n <= 1 {
		for i := range n {
			f(i)
		}
		return
	}
	var (
		next atomic.Int64
		wg   sync.WaitGroup
		once sync.Once
		fail any
	)
	work := func() {
		defer func() {
			if r := recover(); r != nil {
				next.Store(int64(n)) // the others stop at their next index
				once.Do(func() { fail = r })
			}
		}()
		for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
			f(int(i))
		}
	}
	for range min(n, p.threads) - 1 {
		if !p.takeToken() {
			break
		}
		wg.Go(func() {
			defer func() { p.tokens <- struct{}{} }()
			work()
		})
	}
	work()
	wg.Wait()
	if fail != nil {
		panic(fail)
	}
}

func (p *Pool) takeToken() bool {
	select {
	case <-p.tokens:
		return true
	default:
		return false
	}
}

// kernels is the kernel set that products of this pool use.
func (p *Pool) kernels() *set {
	if p == nil || p.set == nil {
		return active()
	}
	return p.set
}

// take returns scratch memory of unspecified content for the given number of bytes, aligned to a cache line. It reuses the
// smallest buffer that is large enough; where all are too small, one of them makes room for the new one.
func (p *Pool) take(bytes int) []uint64 {
	const line = 64
	n := (bytes + 7) / 8
	words := p.reuse(n)
	if len(words) < n {
		words = make([]uint64, n+line/8)
		skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(words))) % line / 8)
		words = words[skip:]
	}
	return words
}

func (p *Pool) reuse(n int) []uint64 {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		return nil
	}
	best := 0
	for i, w := range p.free {
		fits, better := len(w) >= n, len(w) < len(p.free[best])
		if bestFits := len(p.free[best]) >= n; fits && (!bestFits || better) || !bestFits && better {
			best = i
		}
	}
	words := p.free[best]
	p.free = slices.Delete(p.free, best, best+1)
	return words
}

// give returns memory of take for later calls.
func (p *Pool) give(words []uint64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.free = append(p.free, words)
	p.mu.Unlock()
}

// floats views scratch memory as n numbers.
func floats[T real](words []uint64, n int) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(words))), n)
}
