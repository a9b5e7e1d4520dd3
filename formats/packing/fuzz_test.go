package packing

import (
	"bytes"
	"testing"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/tensor"
)

// FuzzUnpack throws any bytes under any shape at every layout: no panic, and whatever is accepted packs into the same
// bytes again where the layout is a bijection.
func FuzzUnpack(f *testing.F) {
	f.Add(uint8(0), uint8(4), int32(32), true, uint8(8), int32(32), int32(64), []byte("qweightqzerosscales"))
	f.Add(uint8(1), uint8(3), int32(-1), false, uint8(8), int32(32), int32(32), bytes.Repeat([]byte{1, 2, 3}, 500))
	f.Add(uint8(3), uint8(2), int32(1<<30), false, uint8(9), int32(1<<27), int32(1<<27), []byte{})
	f.Add(uint8(6), uint8(4), int32(64), true, uint8(8), int32(4), int32(64), bytes.Repeat([]byte{0x3c}, 4000))
	f.Fuzz(func(t *testing.T, row, bits uint8, size int32, sym bool, scale uint8, out, in int32, data []byte) {
		layouts := Layouts()
		layout := layouts[int(row)%len(layouts)]
		s := Scheme{Grid: "int", Bits: int(bits), GroupSize: int(size), Sym: sym, ScaleType: tensor.DType(scale % 18)}
		if layout.Check(s, int(out), int(in)) != nil {
			if _, err := layout.Unpack(s, int(out), int(in), func(string) []byte { return data }); err == nil {
				t.Fatal("unpacked what Check refuses")
			}
			return
		}
		files := cut(layout.Plan("m", s, int(out), int(in)), data)
		l, err := layout.Unpack(s, int(out), int(in), files.source("m"))
		if err != nil || layout.Pack == nil || Validate(l, &layout) != nil {
			return
		}
		again, err := tryPack(layout, l)
		if err != nil {
			t.Fatal(err)
		}
		back, err := layout.Unpack(s, int(out), int(in), again.source("m"))
		if err != nil || !bytes.Equal(back.Codes, l.Codes) {
			t.Fatalf("second reading differs: %v", err)
		}
	})
}

// cut hands out the fuzzer's bytes to the planned tensors, each of its planned size while that stays small.
func cut(plan []tensor.Info, data []byte) stored {
	s := stored{}
	for _, info := range plan {
		e := s[info.Name]
		e.Info = info
		if n, ok := info.Bytes(); ok && n < 1<<16 && len(data) > 0 {
			e.data = bytes.Repeat(data, int(n)/len(data)+1)[:n]
		} else {
			e.data = data
		}
		s[info.Name] = e
	}
	return s
}

// FuzzDetect gives Detect configs and shapes that no writer would make.
func FuzzDetect(f *testing.F) {
	f.Add(`{"quant_method":"gptq","checkpoint_format":"gptq","bits":4,"group_size":128,"dynamic":{"-:m":{}}}`, int64(8), int64(32), int64(1), int64(4), uint8(11))
	f.Add(`{"quant_method":"awq","version":"gemv_fast","group_size":-1,"bits":4}`, int64(8), int64(64), int64(8), int64(32), uint8(7))
	f.Add(`{"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{"g":{"targets":["re:m.*","Linear"],"weights":{"num_bits":3,"group_size":0}}}}`, int64(1), int64(3), int64(1), int64(1), uint8(11))
	f.Fuzz(func(t *testing.T, config string, rows, cols, groups, zeroWords int64, word uint8) {
		v, err := safeio.ParseJSON(config)
		if err != nil || v.Kind() != safeio.Object {
			return
		}
		c, err := ParseConfig(v)
		if err != nil {
			return
		}
		infos := map[string]tensor.Info{
			"qweight": {DType: tensor.DType(word % 18), Shape: []int64{rows, cols}}, "weight_packed": {DType: tensor.I32, Shape: []int64{rows, cols}},
			"weight": {DType: tensor.I8, Shape: []int64{rows, cols}}, "qzeros": {DType: tensor.I32, Shape: []int64{groups, zeroWords}},
			"scales": {DType: tensor.F16, Shape: []int64{groups, cols}}, "weight_scale": {DType: tensor.BF16, Shape: []int64{rows, groups}},
			"weight_shape": {DType: tensor.I64, Shape: []int64{2}},
		}
		m := Module{Name: "m",
			Info: func(s string) (tensor.Info, bool) { i, ok := infos[s]; return i, ok },
			Read: func(string) ([]byte, error) { return make([]byte, word), nil },
		}
		found, ok, err := Detect(c, m)
		if err == nil && ok && found.Layout.Check(found.Scheme, found.Out, found.In) != nil {
			t.Fatal("Detect accepted what Check refuses")
		}
	})
}
