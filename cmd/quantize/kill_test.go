package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/internal/testmodel"
)

// victim is a command line that is killed at random moments. OUT stands for the output.
type victim struct {
	name   string
	args   []string
	single bool // the output is a file
}

// victims are runs of the built program: calibrated and plain, directories and, with QUANTIZE_LONG, GPTQ and GGUF.
func victims(t *testing.T) []victim {
	binary(t) // not part of the time that is measured
	c := testmodel.Llama()
	c.Layers = 8
	model, calib := write(t, c), ids(t, 16, 64, 128)
	common := []string{model, "--group-size", "32", "--max-shard-size", "50KB", "--no-progress", "-o", "OUT"}
	calibrated := append([]string{"--calib", calib, "--samples", "16", "--seq-len", "64"}, common...)
	all := []victim{
		{"awq", append([]string{"--method", "awq"}, calibrated...), false},
		{"rtn", append([]string{"--method", "rtn"}, common...), false},
		{"exl2", exl2Victim(t), false},
	}
	if os.Getenv("QUANTIZE_LONG") != "" {
		all = append(all, victim{"gptq", append([]string{"--method", "gptq"}, calibrated...), false},
			victim{"kquant", []string{golm, "--method", "kquant", "--type", "Q4_0", "-o", "OUT.gguf"}, true})
	}
	return all
}

// exl2Victim measures into a file beside the output, chooses, and quantizes.
func exl2Victim(t *testing.T) []string {
	c := testmodel.Llama()
	c.Layers = 3
	return []string{write(t, c), "--method", "exl2", "--bpw", "5", "--calib", ids(t, 8, 64, 128), "--samples", "8", "--seq-len", "64",
		"--measurement", "OUT.m.json", "--choice", "OUT.c.json", "--max-shard-size", "30KB", "--no-progress", "-o", "OUT"}
}

// command replaces OUT.
func (v victim) command(out string) []string {
	args := make([]string, len(v.args))
	for i, a := range v.args {
		args[i] = strings.Replace(a, "OUT", out, 1)
	}
	return args
}

// finish runs the command to its end and returns the directory that holds all it left, and how long it took.
func (v victim) finish(t *testing.T, out string) time.Duration {
	began := time.Now()
	cmd, _, errs := process(t, v.command(out)...)
	require.NoError(t, cmd.Run(), "%s: %s", v.name, errs)
	return time.Since(began)
}

// killAfter starts the command and kills it after a while; it says whether the process was still there.
func (v victim) killAfter(t *testing.T, out string, d time.Duration) bool {
	cmd, _, _ := process(t, v.command(out)...)
	require.NoError(t, cmd.Start())
	time.Sleep(d)
	_ = cmd.Process.Kill() // it may have ended
	return cmd.Wait() != nil
}

// final is the name under which the output appears.
func (v victim) final(out string) string {
	if v.single {
		out += ".gguf"
	}
	return out
}

func (v victim) published(out string) bool { return exists(v.final(out)) }

// Killed at any moment, also while resuming, a run leaves nothing or everything under the final name, and the same
// command ends in the bytes of an uninterrupted run. make crash kills 100 times per method.
func TestKillAndResume(t *testing.T) {
	rounds := 4
	if os.Getenv("QUANTIZE_LONG") != "" {
		rounds = 100
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for _, v := range victims(t) {
		t.Run(v.name, func(t *testing.T) {
			whole := filepath.Join(t.TempDir(), "out")
			took := v.finish(t, whole)
			want := tree(t, filepath.Dir(whole))
			killed, again := 0, 0
			for round := range rounds {
				out := filepath.Join(t.TempDir(), "out")
				kills := 1
				if round%3 == 2 {
					kills = 2
				}
				for k := range kills {
					if v.killAfter(t, out, time.Duration(rng.Int64N(int64(took)))) {
						killed++
						again += k
					}
					if v.published(out) {
						break
					}
				}
				switch {
				case !v.published(out):
					v.finish(t, out)
				case exists(v.final(out) + ".partial"): // killed in its last moments: the next run completes what is left, or finds it complete
					cmd, _, errs := process(t, v.command(out)...)
					_ = cmd.Run()
					require.Contains(t, []int{0, exitExists}, cmd.ProcessState.ExitCode(), "%s", errs)
				}
				requireSameTree(t, want, filepath.Dir(out), v.name, round)
			}
			t.Logf("%d killed, %d of them while resuming; an undisturbed run takes %v", killed, again, took.Round(time.Millisecond))
		})
	}
}

// A byte of a finished layer that changes between the kill and the next run is noticed, and the layer done again.
func TestDamageBetweenKillAndResume(t *testing.T) {
	for _, v := range victims(t) {
		if v.single {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			whole := filepath.Join(t.TempDir(), "out")
			v.finish(t, whole)
			want := tree(t, filepath.Dir(whole))
			out := filepath.Join(t.TempDir(), "out")
			cmd, _, errs := process(t, v.command(out)...)
			require.NoError(t, cmd.Start())
			journal := filepath.Join(out+".partial", "journal")
			for range 100_000 {
				if text, err := os.ReadFile(journal); err == nil && bytes.Contains(text, []byte(`"layer 1"`)) {
					break
				}
				time.Sleep(100 * time.Microsecond)
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if v.published(out) {
				t.Skip("the run was faster than the kill")
			}
			text, err := os.ReadFile(journal)
			require.NoError(t, err, errs)
			require.Contains(t, string(text), `"layer 1"`)
			files, err := filepath.Glob(filepath.Join(out+".partial", "new", "*.safetensors"))
			require.NoError(t, err)
			require.Greater(t, len(files), 1)
			for _, f := range files[:2] { // embeddings and the first layers
				flip(t, f, -1)
			}
			v.finish(t, out)
			requireSameTree(t, want, filepath.Dir(out), v.name)
		})
	}
}
