package safetensors

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
)

// The headers we plan are the reference library's byte for byte: every file that it wrote with the usual metadata can
// be planned again from its tensor list alone. (GPTQModel writes files by itself in another order; its goldens stay out.)
func TestPlanMatchesReferenceHeaders(t *testing.T) {
	files, err := filepath.Glob("../../testdata/*/model.safetensors")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	shared, err := filepath.Glob("../../../shared/golden/[abl]*/*/model.safetensors")
	require.NoError(t, err)
	same := 0
	for _, path := range append(files, shared...) {
		f, err := Open(path, safeio.DefaultLimits())
		require.NoError(t, err, path)
		defer f.Close()
		if format, err := safeio.At(f.Metadata(), "format", safeio.Value.Str); err != nil || format != "pt" || f.Metadata().Len() != 1 {
			continue // written by another tool
		}
		plan, index, err := Plan(f.Tensors(), 0, nil)
		require.NoError(t, err)
		require.Nil(t, index)
		head := make([]byte, len(plan.Files[0].Header))
		file, err := os.Open(path)
		require.NoError(t, err)
		defer file.Close()
		_, err = file.ReadAt(head, 0)
		require.NoError(t, err)
		require.Equal(t, string(head), string(plan.Files[0].Header), path)
		require.Equal(t, f.Size(), plan.Files[0].Size)
		same++
	}
	require.Positive(t, same)
}
