package formats

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/llmquant/quantize/formats/safeio"
)

// apart refuses an output that is an input, contains one or lies inside one. Files are compared by identity, not by
// spelling: links, "..", mounts and upper case cannot hide that two paths are one file.
func apart(out string, inputs []string) error {
	above := ancestors(filepath.Dir(out))
	target, _ := os.Stat(out) // nil: it does not exist yet
	for _, in := range inputs {
		info, err := os.Stat(in)
		if err != nil {
			return err
		}
		if target != nil && os.SameFile(info, target) {
			return overlap(out, in, "the output is the input")
		}
		if info.IsDir() && contains(above, info) {
			return overlap(out, in, "the output lies inside the input")
		}
		real, err := filepath.EvalSymlinks(in)
		if err != nil {
			return err
		}
		if target != nil && contains(ancestors(filepath.Dir(real)), target) {
			return overlap(out, in, "the input lies inside the output")
		}
	}
	return nil
}

func overlap(out, in, what string) error {
	return &safeio.Error{Op: "create", Path: out, Off: -1, Hint: "choose another output path",
		Err: safeio.Unsupportedf("%s (%s)", what, in)}
}

// ancestors describes every existing directory from dir up to the root, links resolved.
func ancestors(dir string) []fs.FileInfo {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	for !exists(dir) && filepath.Dir(dir) != dir {
		dir = filepath.Dir(dir)
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	var all []fs.FileInfo
	for {
		if info, err := os.Stat(dir); err == nil {
			all = append(all, info)
		}
		up := filepath.Dir(dir)
		if up == dir {
			return all
		}
		dir = up
	}
}

func contains(infos []fs.FileInfo, info fs.FileInfo) bool {
	for _, i := range infos {
		if os.SameFile(i, info) {
			return true
		}
	}
	return false
}
