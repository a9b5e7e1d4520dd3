package safeio

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxName is the longest base name written or accepted from a file. Names of 255 bytes are legal on most systems;
// the rest is room for ".partial" and shard numbers.
const MaxName = 200

// CheckName accepts a plain base name: what an index may say a shard is called. Anything that means something to a
// path (separators, "..", a drive, a device name) on any operating system is refused on all of them.
func CheckName(name string) error {
	switch {
	case name == "" || name == "." || name == "..":
		return Corruptf("%q is not a file name", name)
	case len(name) > MaxName:
		return Limitf("the file name %q is longer than %d bytes", clip(name), MaxName)
	case !utf8.ValidString(name):
		return Corruptf("the file name %q is not valid UTF-8", clip(name))
	case strings.ContainsAny(name, `/\`):
		return Corruptf("the file name %q contains a path separator; only plain names are allowed", clip(name))
	case strings.ContainsAny(name, `:*?"<>|`) || strings.ContainsFunc(name, unicode.IsControl):
		return Corruptf("the file name %q contains a character that is not allowed", clip(name))
	case strings.HasSuffix(name, ".") || strings.HasSuffix(name, " ") || name[0] == ' ':
		return Corruptf("the file name %q begins or ends with a space or ends with a dot", clip(name))
	case isDevice(name):
		return Corruptf("the file name %q is a device name on Windows", clip(name))
	}
	return nil
}

// devices are the names that Windows takes for devices whatever their extension.
var devices = [...]string{"CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"}

func isDevice(name string) bool {
	stem, _, _ := strings.Cut(strings.ToUpper(name), ".")
	stem = strings.TrimRight(stem, " ")
	for _, d := range devices {
		if stem == d {
			return true
		}
	}
	port, isPort := strings.CutPrefix(stem, "COM")
	if !isPort {
		port, isPort = strings.CutPrefix(stem, "LPT")
	}
	return isPort && len([]rune(port)) == 1 && strings.Contains("0123456789¹²³", port)
}

// CheckNames checks the names of files that will lie in one directory: plain, and distinct even where the file system
// ignores case.
func CheckNames(names []string) error {
	seen := make(map[string]string, len(names))
	for _, name := range names {
		if err := CheckName(name); err != nil {
			return err
		}
		folded := strings.ToLower(strings.ToUpper(name))
		if other, ok := seen[folded]; ok {
			return Corruptf("the file names %q and %q collide on a file system that ignores case", other, name)
		}
		seen[folded] = name
	}
	return nil
}
