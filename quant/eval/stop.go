package eval

import (
	"io"
	"math"

	"github.com/llmquant/quantize/formats"
	"github.com/llmquant/quantize/formats/safeio"
)

// mostStopText bounds the files that name the tokens that end a text.
const mostStopText = 16 << 20

// StopIDs returns the tokens that end a text: eos_token_id, one number or a list, of generation_config.json and of
// config.json. What cannot be read names none, for nothing but the length of a continuation depends on it.
func StopIDs(model formats.Checkpoint) (ids []int32) {
	meta := model.Meta()
	texts := [][]byte{meta.Config}
	for _, f := range meta.Side {
		if f.Name != "generation_config.json" {
			continue
		}
		if r, err := f.Open(); err == nil {
			text, _ := io.ReadAll(io.LimitReader(r, mostStopText))
			r.Close()
			texts = append(texts, text)
		}
	}
	for _, text := range texts {
		v, err := safeio.ParseJSON(text)
		if err != nil {
			continue
		}
		eos := v.Get("eos_token_id")
		list, err := eos.Ints()
		if n, single := eos.Int(); single == nil {
			list, err = []int64{n}, nil
		}
		for _, id := range list {
			if err == nil && id >= 0 && id <= math.MaxInt32 {
				ids = append(ids, int32(id))
			}
		}
	}
	return ids
}
