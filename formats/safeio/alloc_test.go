package safeio

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio/safeiotest"
)

// The documents that cost the most per byte must stay within the meter at sizes where the slack no longer hides them.
func TestAllocationOfDenseDocuments(t *testing.T) {
	const n = 1 << 20
	var keys strings.Builder
	keys.WriteString(`{"":0`)
	for i := range n {
		keys.WriteString(`,"` + base36(i) + `":0`)
	}
	keys.WriteByte('}')
	documents := map[string]string{
		"short array elements": "[" + strings.Repeat("0,", 4*n) + "0]",
		"empty arrays":         "[" + strings.Repeat("[],", 2*n) + "[]]",
		"short keys":           keys.String(),
		"many small objects":   "[" + strings.Repeat(`{"a":0},`, n) + "0]",
		"objects of 13 keys":   "[" + strings.Repeat(`{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"g":0,"h":0,"i":0,"j":0,"k":0,"l":0,"m":0},`, n/16) + "0]",
		"escapes":              `"` + strings.Repeat(`\u0041`, n) + `"`,
	}
	for name, doc := range documents {
		safeiotest.CheckAllocation(t, len(doc), func() {
			_, err := ParseJSON(doc)
			require.NoError(t, err, name)
		})
	}
}

func base36(i int) string {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyz"
	s := ""
	for ; i > 0 || s == ""; i /= 36 {
		s = digits[i%36:i%36+1] + s
	}
	return s
}
