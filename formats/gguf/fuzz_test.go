package gguf

import (
	"bytes"
	"testing"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safeio/safeiotest"
)

// FuzzKV parses arbitrary metadata between a fixed start and no tensors, and writes what it accepts again.
func FuzzKV(f *testing.F) {
	f.Add(uint64(1), pair("a", KindUint32, u32(7)))
	f.Add(uint64(1), array(KindString, 2, slicesConcat(str("x"), str(""))...))
	f.Add(uint64(1), array(KindArray, 1))
	f.Add(uint64(2), slicesConcat(align(64), pair("b", KindBool, []byte{1})))
	f.Add(uint64(3), slicesConcat(pair("f", KindFloat32, u32(0x7fa00000)), pair("g", KindFloat64, u64(1)), pair("i", KindInt8, []byte{0x80})))
	f.Fuzz(func(t *testing.T, keys uint64, kv []byte) {
		r := good()
		r.keys, r.kv, r.tensors, r.infos, r.data, r.align = keys, kv, 0, nil, nil, 0
		rewrite(t, r.bytes(), false)
	})
}

// FuzzOpen parses arbitrary bytes as a whole file and writes what it accepts again.
func FuzzOpen(f *testing.F) {
	f.Add(good().bytes())
	for _, c := range hostileCases() {
		r := good()
		c.make(r)
		if b := r.bytes(); len(b) < 4096 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, content []byte) { rewrite(t, content, true) })
}

// rewrite checks that an accepted file can be written again with the same content, and that the second writing changes
// nothing. Version 2, unpadded ends and the like disappear in the first.
func rewrite(t *testing.T, content []byte, data bool) {
	var p *parsed
	safeiotest.CheckAllocation(t, len(content), func() {
		p, _ = parse(bytes.NewReader(content), int64(len(content)), safeio.DefaultLimits())
	})
	if p == nil {
		return
	}
	first := again(t, p, content, data)
	q, err := parse(bytes.NewReader(first), int64(len(first)), safeio.DefaultLimits())
	if err != nil {
		t.Fatalf("the rewritten file is refused: %v", err)
	}
	for key, v := range p.KV.All() {
		w, ok := q.KV.Get(key)
		if !ok && !isSplitKey(key) {
			t.Fatalf("key %q is lost", key)
		}
		if ok && !bytes.Equal(appendValue(nil, v), appendValue(nil, w)) {
			t.Fatalf("key %q changed", key)
		}
	}
	if second := again(t, q, first, data); !bytes.Equal(first, second) {
		t.Fatal("writing twice gives two files")
	}
}

func isSplitKey(key string) bool {
	return key == keySplitNo || key == keySplitCount || key == keySplitTensors
}

// again lays a parsed file out and copies its data.
func again(t *testing.T, p *parsed, content []byte, data bool) []byte {
	plan, err := Plan(&p.Header, PlanOptions{Name: "again.gguf"})
	if err != nil {
		t.Fatalf("an accepted file cannot be written: %v", err)
	}
	out := make([]byte, plan.Files[0].Size)
	copy(out, plan.Files[0].Header)
	for i, to := range plan.Tensors {
		from := &p.Tensors[i]
		if data {
			copy(out[to.Offset:to.Offset+to.Bytes], content[p.data+from.Offset:])
		}
	}
	return out
}
