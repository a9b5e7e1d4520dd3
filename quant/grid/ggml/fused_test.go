package ggml

import (
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNoFusedOperations compiles the package for targets on which Go fuses multiplications with additions and reads the
// assembly: one fused operation in an encoder can change bytes. With QUANTIZE_LONG=1 only, it needs the go command.
func TestNoFusedOperations(t *testing.T) {
	if !long() {
		t.Skip("set QUANTIZE_LONG=1")
	}
	gocmd, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command")
	}
	fused := regexp.MustCompile(`(?m)^.*\t(V?FN?M(ADD|SUB)\w*|XSN?M(ADD|SUB)\w*)\t.*$`)
	for _, env := range [][]string{
		{"GOARCH=arm64"}, {"GOARCH=riscv64"}, {"GOARCH=ppc64le"}, {"GOARCH=s390x"}, {"GOARCH=amd64", "GOAMD64=v3"},
	} {
		cmd := exec.Command(gocmd, "build", "-gcflags=-S", "-tags", "noasm", ".")
		cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%v: %s", env, out)
		require.NotEmpty(t, out, env)
		require.Empty(t, fused.FindAllString(string(out), 5), env)
	}
}
