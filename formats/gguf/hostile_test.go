package gguf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safeio/safeiotest"
	"github.com/stretchr/testify/require"
)

// raw is a file as its author wants it, right or wrong.
type raw struct {
	magic         string
	version       uint32
	tensors, keys uint64 // counts in the header
	kv, infos     []byte
	align         int // of the data section; 0: no padding
	data          []byte
	padByte       byte
	cut           int // bytes taken off the end
}

func u32(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }
func u64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }
func str(s string) []byte { return append(u64(uint64(len(s))), s...) }

func pair(key string, k Kind, payload ...[]byte) []byte {
	return slicesConcat(append([][]byte{str(key), u32(uint32(k))}, payload...)...)
}

func slicesConcat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func info(name string, typ uint32, offset uint64, ne ...uint64) []byte {
	b := slicesConcat(str(name), u32(uint32(len(ne))))
	for _, n := range ne {
		b = append(b, u64(n)...)
	}
	return slicesConcat(b, u32(typ), u64(offset))
}

// good is a valid file: two keys, two tensors of 64 and 16 bytes.
func good() *raw {
	return &raw{magic: "GGUF", version: 3, tensors: 2, keys: 2, align: 32,
		kv:    slicesConcat(pair("general.architecture", KindString, str("llama")), pair("num", KindUint32, u32(7))),
		infos: slicesConcat(info("a", 0, 0, 16), info("b", 1, 64, 4, 2)),
		data:  make([]byte, 64+32)}
}

func (r *raw) bytes() []byte {
	b := slicesConcat([]byte(r.magic), u32(r.version), u64(r.tensors), u64(r.keys), r.kv, r.infos)
	if r.align > 0 {
		for len(b)%r.align != 0 {
			b = append(b, r.padByte)
		}
	}
	b = append(b, r.data...)
	return b[:len(b)-r.cut]
}

// oneKey is the valid file with one more pair.
func oneKey(k []byte) func(*raw) {
	return func(r *raw) { r.keys, r.kv = r.keys+1, append(r.kv, k...) }
}

// only replaces the tensors.
func only(data int, infos ...[]byte) func(*raw) {
	return func(r *raw) {
		r.tensors, r.infos, r.data = uint64(len(infos)), slicesConcat(infos...), make([]byte, data)
	}
}

func align(v uint32) []byte { return pair("general.alignment", KindUint32, u32(v)) }

func array(elem Kind, count uint64, body ...byte) []byte {
	return pair("x", KindArray, u32(uint32(elem)), u64(count), body)
}

type hostile struct {
	name string
	want error // class
	make func(*raw)
}

// hostileCases lists files that must be refused, with the class of the refusal.
func hostileCases() []hostile {
	corrupt, limit, unsupported := safeio.ErrCorrupt, safeio.ErrLimit, safeio.ErrUnsupported
	cases := []hostile{
		{"magic lower case", corrupt, func(r *raw) { r.magic = "gguf" }},
		{"magic of ggml", corrupt, func(r *raw) { r.magic = "lmgg" }},
		{"magic of ggjt", corrupt, func(r *raw) { r.magic = "tjgg" }},
		{"magic reversed", corrupt, func(r *raw) { r.magic = "FUGG" }},
		{"version 0", corrupt, func(r *raw) { r.version = 0 }},
		{"version 1", unsupported, func(r *raw) { r.version = 1 }},
		{"version 4", unsupported, func(r *raw) { r.version = 4 }},
		{"version max", unsupported, func(r *raw) { r.version = math.MaxUint32 }},
		{"big-endian 2", unsupported, func(r *raw) { r.version = 0x02000000 }},
		{"big-endian 3", unsupported, func(r *raw) { r.version = 0x03000000 }},
		{"big-endian, 256 times 3", unsupported, func(r *raw) { r.version = 0x00030000 }},

		{"tensor count negative", corrupt, func(r *raw) { r.tensors = 1 << 63 }},
		{"tensor count max", corrupt, func(r *raw) { r.tensors = math.MaxUint64 }},
		{"tensor count 2^40", corrupt, func(r *raw) { r.tensors = 1 << 40 }},
		{"tensor count one too many", corrupt, func(r *raw) { r.tensors = 3 }},
		{"tensor count one too few", corrupt, func(r *raw) { r.tensors = 1 }},
		{"key count negative", corrupt, func(r *raw) { r.keys = 1 << 63 }},
		{"key count max", corrupt, func(r *raw) { r.keys = math.MaxUint64 }},
		{"key count 2^32", corrupt, func(r *raw) { r.keys = 1 << 32 }},
		{"key count one too many", corrupt, func(r *raw) { r.keys = 3 }},
		{"key count one too few", corrupt, func(r *raw) { r.keys = 1 }},
		{"key count over the limit", limit, func(r *raw) {
			r.keys, r.kv = 100_001, nil
			for i := range 100_001 {
				r.kv = append(r.kv, pair(fmt.Sprint(i), KindBool, []byte{1})...)
			}
		}},

		{"key empty", corrupt, oneKey(pair("", KindUint8, []byte{1}))},
		{"key not utf-8", corrupt, oneKey(pair("a\xffb", KindUint8, []byte{1}))},
		{"key surrogate", corrupt, oneKey(pair("\xed\xa0\x80", KindUint8, []byte{1}))},
		{"key twice", corrupt, oneKey(pair("num", KindUint32, u32(8)))},
		{"key twice with other kinds", corrupt, oneKey(pair("num", KindString, str("8")))},
		{"key of 64 KiB", limit, oneKey(pair(strings.Repeat("k", 65536), KindUint8, []byte{1}))},
		{"key longer than the file", corrupt, oneKey(u64(1 << 20))},
		{"key length negative", corrupt, oneKey(u64(1 << 63))},
		{"key length max", corrupt, oneKey(u64(math.MaxUint64))},
		{"alignment twice", corrupt, func(r *raw) { oneKey(align(32))(r); oneKey(align(64))(r) }},

		{"kind 13", corrupt, oneKey(pair("x", 13, make([]byte, 8)))},
		{"kind negative", corrupt, oneKey(pair("x", math.MaxUint32, make([]byte, 8)))},
		{"bool 2", corrupt, oneKey(pair("x", KindBool, []byte{2}))},
		{"bool 255", corrupt, oneKey(pair("x", KindBool, []byte{255}))},
		{"string longer than the file", corrupt, oneKey(pair("x", KindString, u64(1<<30)))},
		{"string length max", corrupt, oneKey(pair("x", KindString, u64(math.MaxUint64)))},
		{"string length negative", corrupt, oneKey(pair("x", KindString, u64(1<<63)))},

		{"array of arrays", unsupported, oneKey(array(KindArray, 1))},
		{"array of arrays, empty", unsupported, oneKey(array(KindArray, 0))},
		{"array of kind 13", unsupported, oneKey(array(13, 1, 0))},
		{"array of kind max", unsupported, oneKey(array(math.MaxUint32, 1, 0))},
		{"array count max", corrupt, oneKey(array(KindUint8, math.MaxUint64))},
		{"array count negative", corrupt, oneKey(array(KindUint8, 1<<63))},
		{"array size overflows", corrupt, oneKey(array(KindUint64, 1<<61))},
		{"array size wraps to small", corrupt, oneKey(array(KindUint64, 1<<61+1, make([]byte, 8)...))},
		{"array longer than the file", corrupt, oneKey(array(KindUint32, 1<<20))},
		{"array of strings longer than the file", corrupt, oneKey(array(KindString, 1<<20))},
		{"array of strings, second cut", corrupt, oneKey(array(KindString, 2, slicesConcat(str("ok"), u64(1<<40))...))},
		{"array of bool 3", corrupt, oneKey(array(KindBool, 2, 1, 3))},
		{"array over the limit", limit, oneKey(array(KindUint8, 16<<20+1, make([]byte, 16<<20+1)...))},

		{"alignment 0", corrupt, oneKey(align(0))},
		{"alignment 3", corrupt, oneKey(align(3))},
		{"alignment 48", corrupt, oneKey(align(48))},
		{"alignment 1", limit, oneKey(align(1))},
		{"alignment 4", limit, oneKey(align(4))},
		{"alignment 2 MiB", limit, oneKey(align(2 << 20))},
		{"alignment 2^31", limit, oneKey(align(1 << 31))},
		{"alignment max", corrupt, oneKey(align(math.MaxUint32))},
		{"alignment as i32", corrupt, oneKey(pair("general.alignment", KindInt32, u32(32)))},
		{"alignment as u64", corrupt, oneKey(pair("general.alignment", KindUint64, u64(32)))},
		{"alignment as string", corrupt, oneKey(pair("general.alignment", KindString, str("32")))},
		{"alignment 64 with offsets for 32", corrupt, func(r *raw) {
			oneKey(align(64))(r)
			only(96, info("a", 0, 0, 8), info("b", 0, 32, 8))(r)
			r.align = 64
		}},

		{"name empty", corrupt, only(64, info("", 0, 0, 16))},
		{"name of 64 bytes", limit, only(64, info(strings.Repeat("n", 64), 0, 0, 16))},
		{"name of 1 MiB", limit, only(64, info(strings.Repeat("n", 1<<20), 0, 0, 16))},
		{"name not utf-8", corrupt, only(64, info("\xc3\x28", 0, 0, 16))},
		{"name twice", corrupt, only(128, info("a", 0, 0, 16), info("a", 0, 64, 16))},
		{"name length negative", corrupt, only(64, u64(1<<63), make([]byte, 24))},

		{"rank 5", corrupt, only(4, info("a", 0, 0, 1, 1, 1, 1, 1))},
		{"rank max", corrupt, only(64, slicesConcat(str("a"), u32(math.MaxUint32), make([]byte, 64)))},
		{"size negative", corrupt, only(64, info("a", 0, 0, 1<<63))},
		{"size max", corrupt, only(64, info("a", 0, 0, math.MaxUint64))},
		{"second size negative", corrupt, only(64, info("a", 0, 0, 16, 1<<63))},
		{"product overflows", corrupt, only(64, info("a", 0, 0, 1<<32, 1<<31))},
		{"product overflows to zero", corrupt, only(0, info("a", 0, 0, 1<<32, 1<<32))},
		{"product overflows in four", corrupt, only(64, info("a", 0, 0, 1<<16, 1<<16, 1<<16, 1<<16))},
		{"product overflows behind a zero", corrupt, only(0, info("a", 0, 0, 1<<62, 4, 0))},
		{"bytes overflow", corrupt, only(64, info("a", 0, 0, 1<<62))},
		{"bytes of blocks overflow", corrupt, only(64, info("a", 15, 0, 1<<62))},
		{"elements overflow, bytes of blocks do not", corrupt, only(64, info("a", 16, 0, 1<<62, 2))},
		{"sum of sizes overflows", corrupt, only(64, info("a", 24, 0, 1<<62), info("b", 24, 1<<62, 1<<62))},
		{"padding overflows", corrupt, only(64, info("a", 24, 0, math.MaxInt64))},
		{"row no multiple of the block", corrupt, only(18, info("a", 2, 0, 31))},
		{"row no multiple of the super-block", corrupt, only(144, info("a", 12, 0, 128))},
		{"row of one in blocks", corrupt, only(34, info("a", 8, 0, 1, 32))},

		{"type unknown", unsupported, only(64, info("a", 43, 0, 16))},
		{"type negative", unsupported, only(64, info("a", math.MaxUint32, 0, 16))},
		{"type Q4_2", unsupported, only(64, info("a", 4, 0, 32))},
		{"type Q4_3", unsupported, only(64, info("a", 5, 0, 32))},
		{"type Q4_0_4_4", unsupported, only(64, info("a", 31, 0, 32))},
		{"type Q4_0_4_8", unsupported, only(64, info("a", 32, 0, 32))},
		{"type Q4_0_8_8", unsupported, only(64, info("a", 33, 0, 32))},
		{"type IQ4_NL_4_4", unsupported, only(64, info("a", 36, 0, 32))},
		{"type IQ4_NL_8_8", unsupported, only(64, info("a", 38, 0, 32))},

		{"first offset not zero", corrupt, only(96, info("a", 0, 32, 16))},
		{"gap", corrupt, only(128, info("a", 0, 0, 8), info("b", 0, 64, 8))},
		{"overlap", corrupt, only(64, info("a", 0, 0, 16), info("b", 0, 32, 8))},
		{"same data twice", corrupt, only(64, info("a", 0, 0, 16), info("b", 0, 0, 16))},
		{"order reversed", corrupt, only(128, info("a", 0, 64, 16), info("b", 0, 0, 16))},
		{"offset unaligned", corrupt, only(68, info("a", 0, 0, 8), info("b", 0, 33, 8))},
		{"offset not padded", corrupt, only(24, info("a", 0, 0, 4), info("b", 0, 16, 2))},
		{"offset negative", corrupt, only(64, info("a", 0, 1<<63, 16))},
		{"offset past the file", corrupt, only(64, info("a", 0, 1<<40, 16))},
		{"tensor larger than the file", corrupt, only(64, info("a", 0, 0, 1<<20))},
		{"tensor of 2^50 bytes", corrupt, only(64, info("a", 0, 0, 1<<48))},
		{"data one byte short", corrupt, only(63, info("a", 0, 0, 16))},
		{"data missing", corrupt, only(0, info("a", 0, 0, 16))},
		{"last tensor missing", corrupt, func(r *raw) { r.data = r.data[:64] }},
		{"one byte after the data", corrupt, func(r *raw) { r.data = append(r.data, 0) }},
		{"half the padding", corrupt, func(r *raw) { r.cut = 8 }},
		{"a whole block after the data", corrupt, func(r *raw) { r.data = append(r.data, make([]byte, 32)...) }},
		{"another file after the data", corrupt, func(r *raw) { r.data = append(r.data, good().bytes()...) }},
		{"padding of the header not zero", corrupt, func(r *raw) { r.padByte = 1 }},
		{"no padding of the header", corrupt, func(r *raw) { r.align = 0 }},
		{"no tensors, data", corrupt, func(r *raw) { only(32)(r) }},
		{"no tensors, half a pad", corrupt, func(r *raw) { only(0)(r); r.cut = 1 }},
		{"zero-row tensor with data", corrupt, only(32, info("a", 0, 0, 8, 0))},
	}
	for _, cut := range []int{1, 3, 4, 7, 8, 15, 16, 20, 24, 32, 40, 44, 60, 64, 70, 76, 80, 90, 100, 110, 120, 140} {
		cases = append(cases, hostile{fmt.Sprintf("cut after %d bytes", cut), corrupt, func(r *raw) { r.cut = len(r.bytes()) - cut }})
	}
	return cases
}

func TestHostileFilesAreRefused(t *testing.T) {
	cases := hostileCases()
	require.GreaterOrEqual(t, len(cases), 110)
	names := map[string]bool{}
	for _, c := range cases {
		require.False(t, names[c.name], c.name)
		names[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			r := good()
			c.make(r)
			content := r.bytes()
			safeiotest.CheckAllocation(t, len(content), func() {
				_, err := parse(bytes.NewReader(content), int64(len(content)), safeio.DefaultLimits())
				require.ErrorIs(t, err, c.want)
				require.NotContains(t, err.Error(), "%!")
			})
		})
	}
	t.Logf("%d cases", len(cases))
}

func TestGoodFilesAreAccepted(t *testing.T) {
	for name, change := range map[string]func(*raw){
		"as it is":               func(*raw) {},
		"version 2":              func(r *raw) { r.version = 2 },
		"last tensor not padded": func(r *raw) { r.cut = 16 },
		"alignment 8": func(r *raw) {
			oneKey(align(8))(r)
			only(80, info("a", 0, 0, 16), info("b", 1, 64, 4, 2))(r)
			r.align = 8
		},
		"alignment 64": func(r *raw) {
			oneKey(align(64))(r)
			only(128, info("a", 0, 0, 8), info("b", 0, 64, 8))(r)
			r.align = 64
		},
		"alignment 4096":          func(r *raw) { oneKey(align(4096))(r); only(4096, info("a", 0, 0, 8))(r); r.align = 4096 },
		"no tensors":              only(0),
		"no tensors, no padding":  func(r *raw) { only(0)(r); r.align = 0 },
		"zero rows":               only(0, info("a", 0, 0, 8, 0)),
		"zero columns":            only(0, info("a", 12, 0, 0, 8)),
		"scalar":                  only(32, info("a", 0, 0)),
		"four dimensions":         only(32, info("a", 24, 0, 2, 2, 2, 4)),
		"name of 63 bytes":        only(64, info(strings.Repeat("n", 63), 0, 0, 16)),
		"empty array":             oneKey(array(KindString, 0)),
		"empty string":            oneKey(pair("x", KindString, str(""))),
		"value not utf-8":         oneKey(pair("x", KindString, str("\xff\xfe"))),
		"array of every number":   oneKey(array(KindFloat64, 2, make([]byte, 16)...)),
		"run-time type in a file": only(64, info("a", 9, 0, 32)),
	} {
		r := good()
		change(r)
		content := r.bytes()
		_, err := parse(bytes.NewReader(content), int64(len(content)), safeio.DefaultLimits())
		require.NoError(t, err, name)
	}
}

// The largest models there are stay within the limits: 1,000 layers of 512 unstacked experts, a vocabulary of a million.
func TestLargestModelsPass(t *testing.T) {
	r := good()
	oneKey(array(KindString, 1<<20, bytes.Repeat(str("token"), 1<<20)...))(r)
	r.tensors, r.infos, r.data = 0, nil, nil
	for layer := range 1000 {
		for part := range 200 {
			r.infos = append(r.infos, info(fmt.Sprintf("blk.%d.ffn_up.%d.weight", layer, part), 0, 0, 8, 0)...)
			r.tensors++
		}
	}
	content := r.bytes()
	safeiotest.CheckAllocation(t, len(content), func() {
		p, err := parse(bytes.NewReader(content), int64(len(content)), safeio.DefaultLimits())
		require.NoError(t, err)
		require.Len(t, p.Tensors, 200_000)
	})
}
