package quant

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/packing"
	"github.com/llmquant/quantize/internal/kernel"
	"github.com/llmquant/quantize/internal/testmodel"
	"github.com/llmquant/quantize/quant/gptq"
)

// goldenFile holds one hash per model, method and layout. After an intended change of the arithmetic:
//
//	QUANTIZE_UPDATE=1 go test -run 'GoldenHashes$' ./quant
var goldenFile = filepath.Join("testdata", "hashes.json")

// combination is one entry of the matrix that must give one hash each.
type combination struct {
	model  string
	recipe Recipe
}

func (c combination) String() string {
	s := c.recipe.Allocation.(Uniform).Scheme
	name := fmt.Sprintf("%s %s %s %s", c.model, c.recipe.Method, c.recipe.Layout, SchemeName(s))
	if c.recipe.BF16 {
		name += " bf16"
	}
	return name
}

// combinations lists every method in every layout it can be written in, and the families once per method.
func combinations() (all []combination) {
	int8Row := packing.Scheme{Grid: "int", Bits: 8, GroupSize: -1, Sym: true}
	for _, layout := range []string{"awq", "compressed-tensors", "gptq", "gptq_v2"} {
		s := int4
		s.Sym = layout == "gptq_v2"
		all = append(all, combination{"llama", NewAWQ(s, layout, AWQOptions{})}, combination{"llama", NewRTN(s, layout)},
			combination{"llama", NewGPTQ(s, layout, gptq.Best())})
	}
	for _, model := range []string{"qwen2", "qwen3moe"} {
		all = append(all, combination{model, NewAWQ(int4, "awq", AWQOptions{})}, combination{model, NewRTN(int4Sym, "gptq")},
			combination{model, NewGPTQ(int4Sym, "gptq", gptq.Best())})
	}
	for _, model := range []string{"llama", "qwen3moe"} {
		for _, r := range []Recipe{NewAWQ(int4, "awq", AWQOptions{}), NewGPTQ(int4Sym, "gptq", gptq.Normal())} {
			r.BF16 = true
			all = append(all, combination{model, r})
		}
	}
	return append(all, combination{"llama", NewAWQ(int8Row, "compressed-tensors", AWQOptions{Surrogate: true})},
		combination{"llama", NewGPTQ(packing.Scheme{Grid: "int", Bits: 3, GroupSize: 64, Sym: true}, "gptq", gptq.Best(), AWQScaling{})})
}

// treeHash condenses an artifact.
func treeHash(t testing.TB, dir string) string {
	sums := digests(t, dir)
	names := make([]string, 0, len(sums))
	for name := range sums {
		names = append(names, name)
	}
	sort.Strings(names)
	h := sha256.New()
	for _, name := range names {
		fmt.Fprintln(h, name, sums[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// hashOfRun quantizes and returns the artifact's hash.
func hashOfRun(t testing.TB, dir string, r Recipe, threads int) string {
	o := options(t)
	o.Threads = threads
	_, out := runTiny(t, dir, r, o)
	return treeHash(t, out)
}

// One hash per model, method and layout, whatever the number of threads.
func TestGoldenHashes(t *testing.T) {
	golden := openGolden(t)
	dirs := map[string]string{}
	for name, c := range models() {
		dirs[name] = writeModel(t, c)
	}
	for i, c := range combinations() {
		threads := []int{[]int{1, 2, 3, 5, 8}[i%5]}
		switch {
		case os.Getenv("QUANTIZE_LONG") != "":
			threads = []int{1, 2, 3, 5, 8}
		case c.model != "llama":
			threads = []int{1, 8}
		}
		if childKernel() {
			threads = threads[:1]
			if kernel.Features() == "generic" && i >= 3 && c.model == "llama" && os.Getenv("QUANTIZE_LONG") == "" {
				continue // slow, and other layouts hold the same codes
			}
		}
		for _, n := range threads {
			golden.compare(c.String(), hashOfRun(t, dirs[c.model], c.recipe, n), n)
		}
	}
	// GGUF files that are filled block by block; those that llama-quantize can make are compared with its own.
	dir := tinyGGUF(t)
	for name, r := range map[string]GGUFRecipe{
		"gguf gptq Q4_K_M": {Mixture: ggufType(t, "Q4_K_M").Mixture, Rounder: GPTQ{Options: gptq.Best()}},
		"gguf awq Q4_0":    {Mixture: ggufType(t, "Q4_0").Mixture, Transforms: []Transform{AWQScaling{}}},
		"gguf smooth Q8_0": {Mixture: ggufType(t, "Q8_0").Mixture, Transforms: []Transform{Smooth{}}},
	} {
		if childKernel() && kernel.Features() == "generic" && os.Getenv("QUANTIZE_LONG") == "" {
			golden.seen[name] = true
			continue
		}
		_, out := runGGUF(t, openModel(t, dir), r, Options{Threads: 3, Calib: windows(1, 64, 2000)})
		golden.compare(name, fileSum(t, out), 3)
	}
	for _, model := range []string{"llama", "qwen3moe"} {
		golden.seen[model+" exl2 exl2 4 bpw"] = true
		if dir := dirs[model]; !childKernel() || kernel.Features() != "generic" || os.Getenv("QUANTIZE_LONG") != "" {
			golden.compare(model+" exl2 exl2 4 bpw", hashOfRun(t, dir, mixed(t, dir, 4, 2), 2), 2)
		}
	}
	golden.close()
}

// golden is the file of hashes, read, or made anew.
type golden struct {
	t      *testing.T
	update bool
	hashes map[string]string
	seen   map[string]bool
}

func openGolden(t *testing.T) *golden {
	g := &golden{t: t, update: os.Getenv("QUANTIZE_UPDATE") != "", hashes: map[string]string{}, seen: map[string]bool{}}
	if !g.update {
		readJSON(t, goldenFile, &g.hashes)
	}
	return g
}

func (g *golden) compare(name, hash string, threads int) {
	if g.update && g.hashes[name] == "" {
		g.hashes[name] = hash
	}
	g.seen[name] = true
	assert.Equal(g.t, g.hashes[name], hash, "%s with %d threads, %s kernels: the bytes changed; see goldenFile", name, threads, kernel.Features())
}

// close checks that every entry belongs to something, and writes the file when it is to be updated.
func (g *golden) close() {
	for name := range g.hashes {
		require.True(g.t, g.seen[name] || childKernel(), "%s belongs to nothing", name)
	}
	if !g.update {
		return
	}
	text, err := json.MarshalIndent(g.hashes, "", "  ")
	require.NoError(g.t, err)
	require.NoError(g.t, os.MkdirAll(filepath.Dir(goldenFile), 0o755))
	require.NoError(g.t, os.WriteFile(goldenFile, append(text, '\n'), 0o644))
}

// kernelVar forces a kernel set; it is read once per process.
const kernelVar = "QUANTIZE_KERNEL"

func childKernel() bool { return os.Getenv(kernelVar) != "" }

// The same hashes come from every kernel set that this processor has, the portable one included.
func TestGoldenHashesOnOtherKernels(t *testing.T) {
	if childKernel() {
		t.Skip("this process has its kernels chosen already")
	}
	others := slices.DeleteFunc(kernel.Names(), func(name string) bool { return name == kernel.Name() })
	for _, name := range others {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run", "^(TestGoldenHashes|TestKernelIsForced)$", "-test.v")
			cmd.Env = append(os.Environ(), kernelVar+"="+name)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
			require.Contains(t, string(out), "kernels: "+name)
			require.Equal(t, 2, strings.Count(string(out), "--- PASS"))
		})
	}
}

func TestKernelIsForced(t *testing.T) {
	if want := os.Getenv(kernelVar); want != "" {
		require.Equal(t, want, kernel.Name())
	}
	t.Logf("kernels: %s", kernel.Name())
}

// The directory's own name and place, the size of shards' files and a memory limit are no part of any weight's bytes.
func TestPlaceDoesNotMatter(t *testing.T) {
	c := testmodel.Llama()
	want := hashOfRun(t, writeModel(t, c), AWQ(4, 32), 2)
	elsewhere := filepath.Join(t.TempDir(), "another name", "x")
	require.NoError(t, os.MkdirAll(filepath.Dir(elsewhere), 0o755))
	require.NoError(t, c.Write(elsewhere))
	o := options(t)
	o.Memory, o.Out = 1<<30, filepath.Join(t.TempDir(), "b", "c")
	_, err := Run(context.Background(), openModel(t, elsewhere), AWQ(4, 32), o)
	require.NoError(t, err)
	require.Equal(t, want, treeHash(t, o.Out))

	c.MaxShard = 40_000 // the source's shards are not the artifact's
	require.Equal(t, want, hashOfRun(t, writeModel(t, c), AWQ(4, 32), 3))
}
