package formats

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// Meta describes the view.
func (v *denseView) Meta() *Meta { return &v.meta }

// Close closes the checkpoint.
func (v *denseView) Close() error { return v.stored.Close() }

// Tensors lists what the view shows, in storage order.
func (v *denseView) Tensors() []tensor.Info { return v.infos }

// Lookup finds a tensor by name.
func (v *denseView) Lookup(name string) (tensor.Info, bool) {
	i, ok := v.index[name]
	if !ok {
		return tensor.Info{}, false
	}
	return v.infos[i], true
}

// ReadTensor fills dst with bytes of a tensor as the view shows it.
func (v *denseView) ReadTensor(name string, dst []byte, off int64) error {
	info, ok := v.Lookup(name)
	if !ok {
		return v.fail(name, safeio.Corruptf("no such tensor"))
	}
	module, isWeight := strings.CutSuffix(name, weightSuffix)
	found, quantized := v.linears[module]
	total, ok := info.Bytes()
	if !ok || off < 0 || off > total || int64(len(dst)) > total-off {
		return v.fail(name, safeio.Corruptf("bytes %d to %d were asked for, the tensor has %d", off, off+int64(len(dst)), total))
	}
	if !isWeight || !quantized {
		return v.stored.ReadTensor(name, dst, off)
	}
	l, err := v.cache.get(module, func() (*packing.Linear, error) { return v.unpack(module, found) })
	if err == nil {
		err = decodeRange(l, dst, off)
	}
	if err != nil {
		return v.fail(name, err)
	}
	return nil
}

func (v *denseView) fail(name string, err error) error {
	return &safeio.Error{Op: "read", Path: v.meta.Path, Tensor: name, Off: -1, Err: err}
}

// unpack reads the pieces of a linear.
func (v *denseView) unpack(module string, found packing.Found) (*packing.Linear, error) {
	var failed error
	l, err := found.Unpack(func(suffix string) []byte {
		data, err := v.readAll(module + "." + suffix)
		if err != nil {
			failed = err
			return nil
		}
		return data
	})
	if failed != nil {
		return nil, failed // what Unpack made of the missing piece is not the cause
	}
	return l, err
}

// decodeRange writes bytes [off, off+len(dst)) of the float32 matrix, little-endian. Neither end need be a whole row or
// even a whole element.
func decodeRange(l *packing.Linear, dst []byte, off int64) error {
	const elem = 4
	rowBytes := int64(l.In) * elem
	if rowBytes == 0 {
		return nil
	}
	row := make([]float32, l.In)
	text := make([]byte, rowBytes)
	for len(dst) > 0 {
		r := off / rowBytes
		if err := l.Dequantize(row, int(r), 1); err != nil {
			return err
		}
		for i, x := range row {
			binary.LittleEndian.PutUint32(text[elem*i:], math.Float32bits(x))
		}
		n := copy(dst, text[off-r*rowBytes:])
		dst, off = dst[n:], off+int64(n)
	}
	return nil
}

// linearCache keeps the linears that were read last, so that reading in pieces decodes once.
type linearCache struct {
	mu      sync.Mutex
	entries []*cached // least recently used first
}

// cacheBytes bounds what the cache keeps, in bytes of codes; the linear in use always stays.
const cacheBytes = 256 << 20

type cached struct {
	module string
	once   sync.Once
	linear *packing.Linear
	err    error
}

func newLinearCache() *linearCache { return &linearCache{} }

// get returns a linear, decoding it with load unless it is there. Readers of the same linear wait for one load.
func (c *linearCache) get(module string, load func() (*packing.Linear, error)) (*packing.Linear, error) {
	c.mu.Lock()
	i := slices.IndexFunc(c.entries, func(e *cached) bool { return e.module == module })
	var e *cached
	if i < 0 {
		e = &cached{module: module}
	} else {
		e = c.entries[i]
		c.entries = slices.Delete(c.entries, i, i+1)
	}
	c.entries = append(c.entries, e)
	c.mu.Unlock()
	e.once.Do(func() {
		l, err := load()
		c.mu.Lock()
		defer c.mu.Unlock()
		e.linear, e.err = l, err
		c.evict(e)
	})
	return e.linear, e.err
}

// evict drops what was not used for longest until the rest fits. Failures are not kept: the next read tries again.
func (c *linearCache) evict(current *cached) {
	total := 0
	kept := c.entries[:0:0]
	for _, e := range slices.Backward(c.entries) {
		size := 0
		if e.linear != nil {
			size = len(e.linear.Codes) + len(e.linear.Blocks) + 4*(len(e.linear.Scales)+len(e.linear.Zeros)+len(e.linear.GIdx))
		}
		if total += size; e.err == nil && (e == current || total <= cacheBytes) {
			kept = append(kept, e)
		}
	}
	slices.Reverse(kept)
	c.entries = kept
}
