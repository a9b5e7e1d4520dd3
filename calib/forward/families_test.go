package forward

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/internal/kernel"
)

// familyDirs lists the tiny models of testdata/families.
func familyDirs(t testing.TB) []string {
	root := filepath.Join(repoRoot(t), "testdata", "families")
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	var dirs []string
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, filepath.Join(root, e.Name()))
		}
	}
	require.GreaterOrEqual(t, len(dirs), 13)
	return dirs
}

// TestFamilies compares every variant with Transformers: hidden states, logits, and the greedy continuation through
// the cache.
func TestFamilies(t *testing.T) {
	for _, dir := range familyDirs(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			src, m := openModel(t, dir)
			ref := openTensors(t, filepath.Join(dir, "expected.safetensors"))
			ids := tensorI32(t, ref, "ids")
			r := NewRunner(m, kernel.NewPool(2), 2, 24)
			worst := 0.0
			hidden := runAll(t, r, src, m, ids, nil, func(layer int, h kernel.Mat) {
				if name := fmt.Sprintf("hidden.%d", layer); layer < len(m.Blocks)-1 {
					d := distance(h, tensorF32(t, ref, name))
					require.Less(t, d, closeEnough, name)
					worst = max(worst, d)
				}
			})
			head, err := LoadHead(src, m, LoadOptions{})
			require.NoError(t, err)
			logits := kernel.MatF32(len(ids), m.Vocab, make([]float32, len(ids)*m.Vocab))
			r.Logits(head, logits, hidden)
			d := distance(logits, tensorF32(t, ref, "logits"))
			require.Less(t, d, closeEnough)
			t.Logf("largest relative distance %.2g", max(worst, d))

			if _, ok := ref.Lookup("greedy"); !ok {
				return
			}
			want := tensorI32(t, ref, "greedy")
			dec := NewDecoder(src, m, head, func(layer int) (*Block, error) { return Load(src, m, layer, LoadOptions{}) }, nil, 9+len(want))
			got, err := dec.Greedy(context.Background(), ids[:9], len(want), nil)
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

// TestDecoderStepsMatchWindows: the cache gives the same logits as a window, however the text is cut into steps.
func TestDecoderStepsMatchWindows(t *testing.T) {
	for _, dir := range familyDirs(t) {
		src, m := openModel(t, dir)
		if m.Rope.Type == "dynamic" {
			continue // its frequencies depend on the capacity
		}
		ids := tensorI32(t, openTensors(t, filepath.Join(dir, "expected.safetensors")), "ids")[:24]
		head, err := LoadHead(src, m, LoadOptions{})
		require.NoError(t, err)
		r := NewRunner(m, nil, 1, 24)
		hidden := runAll(t, r, src, m, ids, nil, nil)
		want := kernel.MatF32(24, m.Vocab, make([]float32, 24*m.Vocab))
		r.Logits(head, want, hidden)
		dec := NewDecoder(src, m, head, func(layer int) (*Block, error) { return Load(src, m, layer, LoadOptions{}) }, nil, 24)
		for _, step := range [][2]int{{0, 7}, {7, 8}, {8, 9}, {9, 20}, {20, 24}} {
			got, err := dec.Step(context.Background(), ids[step[0]:step[1]])
			require.NoError(t, err)
			require.Equal(t, want.Row(step[1]-1), got, "%s: tokens %v", filepath.Base(dir), step)
		}
		_, err = dec.Step(context.Background(), ids[:1])
		require.ErrorContains(t, err, "capacity")
	}
}
