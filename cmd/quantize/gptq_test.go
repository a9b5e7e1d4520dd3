package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The flags of --method gptq: what they choose shows in the plan, and what they cannot do is a usage error.
func TestGPTQFlags(t *testing.T) {
	args := []string{golm, "--method", "gptq", "--calib", data("golm-calib-ids.jsonl"), "--samples", "4", "--seq-len", "64", "--dry-run"}
	plain := quantize(t, args...).ok(t).out
	require.Contains(t, plain, "loads in: vllm")
	for _, order := range []string{"group", "natural", "static"} {
		require.Contains(t, quantize(t, append(args, "--act-order", order)...).ok(t).out, "loads in: vllm", order)
	}
	indexed := quantize(t, append(args, "--act-order", "g_idx")...).ok(t).out
	require.Contains(t, indexed, "loads in: transformers")
	require.Contains(t, indexed, "not in vllm 0.32, sglang 0.5, tgi 3: not known to load groups in activation order")
	quantize(t, append(args, "--hessian-dtype", "f32")...).ok(t)
	for _, effort := range []string{"plain", "normal", "best"} {
		quantize(t, append(args, "--effort", effort)...).ok(t)
	}

	quantize(t, append(args, "--calib-dtype", "bf16")...).ok(t)
	quantize(t, append(args, "--calib-dtype", "bf16", "--format", "gguf")...).ok(t)
	rtn := []string{golm, "--method", "rtn", "--dry-run", "--calib-dtype", "bf16"}
	quantize(t, rtn...).fails(t, exitUsage, "--calib-dtype means nothing")
	for _, wrong := range [][]string{
		{"--calib-dtype", "f16"}, {"--effort", "none"}, {"--method", "awq", "--effort", "best"}, {"--act-order", "sideways"}, {"--hessian-dtype", "f16"}, {"--act-order", "g_idx", "--format", "awq"},
		{"--act-order", "g_idx", "--format", "gguf"}, {"--method", "awq", "--act-order", "static"},
	} {
		quantize(t, append(args, wrong...)...).fails(t, exitUsage)
	}
}
