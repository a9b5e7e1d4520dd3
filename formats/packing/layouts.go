package packing

// Layouts returns the layout table: every way this package can read a quantized linear, most common first. Rows with
// a nil Pack are read only.
func Layouts() []Layout {
	return []Layout{awq, gptq, gptqV2, compressedTensors, ctInt8, awqGemv, awqGemvFast, exl2}
}

// Lookup finds a layout by name.
func Lookup(name string) (layout *Layout, ok bool) {
	for _, l := range Layouts() {
		if l.Name == name {
			return &l, true
		}
	}
	return nil, false
}
