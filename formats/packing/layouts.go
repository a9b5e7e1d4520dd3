package packing

import (
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
)

// Layouts returns the layout table: every way this package can read a quantized linear, most common first. Rows with
// a nil Pack are read only.
func Layouts() []Layout {
	return []Layout{awq, gptq, gptqV2, compressedTensors, ctInt8, awqGemv, awqGemvFast}
}

// Lookup finds a layout by name.
func Lookup(name string) (Layout, error) {
	var names []string
	for _, l := range Layouts() {
		if l.Name == name {
			return l, nil
		}
		names = append(names, l.Name)
	}
	return Layout{}, safeio.Unsupportedf("no layout is called %q; there are %s", name, strings.Join(names, ", "))
}
