package gguf

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
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

// FuzzImatrix reads arbitrary bytes as an importance matrix and writes what it accepts again.
func FuzzImatrix(f *testing.F) {
	m := smallImatrix()
	if b, err := m.EncodeGGUF(); err == nil {
		f.Add(b)
	}
	f.Add(m.EncodeLegacy())
	f.Add([]byte("\x01\x00\x00\x00\x01\x00\x00\x00a\x03\x00\x00\x00\x01\x00\x00\x00\x00\x00\x80\x3f"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(dir, fmt.Sprint(os.Getpid()))
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		var m *Imatrix
		safeiotest.CheckAllocation(t, len(content), func() { m, _ = OpenImatrix(path) })
		if m == nil {
			return
		}
		if !m.Legacy {
			again, err := m.EncodeGGUF()
			if err != nil {
				return // a name that is too long with its ending, for instance
			}
			if err := (&Imatrix{}).readGGUF(bytes.NewReader(again), int64(len(again))); err != nil {
				t.Fatalf("the rewritten matrix is refused: %v", err)
			}
			return
		}
		again := m.EncodeLegacy()
		if err := (&Imatrix{}).readLegacy(bytes.NewReader(again), int64(len(again))); err != nil {
			t.Fatalf("the rewritten matrix is refused: %v", err)
		}
	})
}

// FuzzTokenizer reads an arbitrary tokenizer.json; what it accepts fills every row.
func FuzzTokenizer(f *testing.F) {
	f.Add([]byte(bpe()), []byte(`{"bos_token": "<s>", "added_tokens_decoder": {"3": {"content": "x"}}}`))
	f.Add([]byte(llama3(bosTemplate)), []byte(`{"chat_template": [{"name": "a", "template": "b"}]}`))
	f.Add([]byte(spm("null", "null")), []byte(`{}`))
	f.Fuzz(func(t *testing.T, text, config []byte) {
		safeiotest.CheckAllocation(t, len(text)+len(config), func() {
			info, err := ReadTokenizer(map[string][]byte{"tokenizer.json": text, "tokenizer_config.json": config}, 9)
			if err != nil {
				return
			}
			if len(info.Tokens) != 9 {
				t.Fatalf("%d tokens", len(info.Tokens))
			}
			for id, tok := range info.Tokens {
				if tok.Type < TokenNormal || tok.Type > TokenByte {
					t.Fatalf("token %d has the type %d", id, tok.Type)
				}
			}
		})
	})
}

// FuzzModelID takes arbitrary names apart.
func FuzzModelID(f *testing.F) {
	for _, id := range []string{"org/Name-7B-Instruct-v0.2", "a-8x7b", "x-7b1", "-", "--q4_K", "a-_1K", "é-1T"} {
		f.Add(id, int64(7e9))
	}
	f.Fuzz(func(t *testing.T, id string, params int64) {
		m := parseModelID(id, params)
		title(m.name)
		title(m.organization)
	})
}
