package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"

	"github.com/llmquant/quantize/internal/kernel"
)

// version is set by -ldflags "-X main.version=…" in releases; builds from a checkout say what they were built from.
var version string

// build describes this binary.
type build struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	CPU      string `json:"cpu_kernels"`
}

func thisBuild() build {
	b := build{Name: "quantize", Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, CPU: kernel.Name()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func versionCommand(c *console) *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "version, commit, CPU kernels chosen",
		Flags: []cli.Flag{jsonFlag(c)},
		Action: func(*cli.Context) error {
			b := thisBuild()
			if c.json {
				return c.printJSON(b)
			}
			_, err := fmt.Fprintf(c.out, "quantize %s (%s, %s)\nCPU kernels: %s\n", b.Version, b.Go, b.Platform, b.CPU)
			return err
		},
	}
}
