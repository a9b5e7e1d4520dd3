//go:build ignore

// Gen writes text.zst, the calibration text built into the program: own/*.txt, text made up by rule below, and prose and
// code from the Go source tree. Run it in this directory with the Go release named in README.md: go run gen.go
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"html"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"sort"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Quotas in bytes. What is written by hand is used whole.
const (
	proseQuota = 560 << 10
	codeQuota  = 330 << 10
	ruleQuota  = 380 << 10
	docSize    = 3000 // bytes, about
)

// skipped packages are the evaluation text of the project's test models, which must not be calibrated on, and code
// that is mostly tables.
var skipped = regexp.MustCompile(`^(bufio|debug/elf|go/doc/comment|go/parser|net/netip|net/smtp|runtime/cgo|vendor|cmd|syscall|unicode|simd)(/|$)|internal|testdata|_asm`)

func main() {
	log.SetFlags(0)
	kinds := [][]string{own(), byRule(), prose(), code()}
	var out bytes.Buffer
	for i, d := range interleave(kinds) {
		if i > 0 {
			out.WriteString("\n\f\n")
		}
		out.WriteString(strings.TrimSpace(d))
	}
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	check(err)
	data := z.EncodeAll(out.Bytes(), nil)
	check(os.WriteFile("text.zst", data, 0o644))
	for i, k := range kinds {
		log.Printf("%-6s %4d documents %7d bytes", []string{"own", "rule", "prose", "code"}[i], len(k), size(k))
	}
	log.Printf("%d bytes, %d compressed", out.Len(), len(data))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func size(docs []string) int {
	n := 0
	for _, d := range docs {
		n += len(d)
	}
	return n
}

// interleave spreads every kind evenly, so that any stretch of the text holds all of them.
func interleave(kinds [][]string) []string {
	type placed struct {
		at   float64
		text string
	}
	var all []placed
	for k, docs := range kinds {
		for i, d := range docs {
			all = append(all, placed{(float64(i) + 0.5 + 0.01*float64(k)) / float64(len(docs)), d})
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].at < all[j].at })
	out := make([]string, len(all))
	for i, p := range all {
		out[i] = p.text
	}
	return out
}

// chunks cuts text at blank lines into documents of about docSize bytes.
func chunks(text string) []string {
	var out []string
	var b strings.Builder
	for _, para := range strings.Split(text, "\n\n") {
		if b.Len() > 0 && b.Len()+len(para) > docSize {
			out = append(out, b.String())
			b.Reset()
		}
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString(para)
	}
	return append(out, b.String())
}

// own takes the files of own/ in turn, so that languages, code and prose alternate.
func own() []string {
	names, err := filepath.Glob("own/*.txt")
	check(err)
	var kinds [][]string
	for _, n := range names {
		data, err := os.ReadFile(n)
		check(err)
		kinds = append(kinds, chunks(strings.TrimSpace(string(data))))
	}
	return interleave(kinds)
}

// spread takes documents from the groups in turn until the quota is reached: every package is heard before one is
// heard twice.
func spread(groups [][]string, quota int) []string {
	var out []string
	for round, n := 0, 0; n < quota; round++ {
		took := false
		for _, g := range groups {
			if round < len(g) && n < quota {
				out = append(out, g[round])
				n += len(g[round])
				took = true
			}
		}
		if !took {
			break
		}
	}
	// Rounds would put all beginnings first; mix them.
	r := rand.New(rand.NewPCG(7, 7))
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// packages lists the directories of the standard library that serve.
func packages() []string {
	root := filepath.Join(runtime.GOROOT(), "src")
	var out []string
	check(filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if rel != "." && skipped.MatchString(filepath.ToSlash(rel)) {
			return filepath.SkipDir
		}
		out = append(out, path)
		return nil
	}))
	sort.Strings(out)
	return out
}

// sources lists the Go files of a directory that carry the notice of the Go authors and were not generated.
func sources(dir string) []string {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	check(err)
	var out []string
	for _, n := range names {
		data, err := os.ReadFile(n)
		check(err)
		head := string(data[:min(len(data), 400)])
		if strings.Contains(head, "The Go Authors") && !strings.Contains(head, "DO NOT EDIT") && !strings.HasSuffix(n, "_test.go") &&
			!strings.Contains(filepath.Base(n), "table") {
			out = append(out, n)
		}
	}
	return out
}

// prose is documentation: package comments and what they say about every exported name, and the language
// specification without its markup.
func prose() []string {
	var groups [][]string
	for _, dir := range packages() {
		fset := token.NewFileSet()
		var files []*ast.File
		for _, n := range sources(dir) {
			f, err := parser.ParseFile(fset, n, nil, parser.ParseComments)
			check(err)
			if len(files) == 0 || f.Name.Name == files[0].Name.Name {
				files = append(files, f)
			}
		}
		if len(files) == 0 {
			continue
		}
		p, err := doc.NewFromFiles(fset, files, dir)
		check(err)
		if text := packageText(p); len(text) > 400 {
			groups = append(groups, chunks(text))
		}
	}
	spec, err := os.ReadFile(filepath.Join(runtime.GOROOT(), "doc", "go_spec.html"))
	check(err)
	groups = append(groups, chunks(plain(string(spec))))
	return spread(groups, proseQuota)
}

func packageText(p *doc.Package) string {
	var b strings.Builder
	add := func(name, text string) {
		if strings.TrimSpace(text) == "" {
			return
		}
		pr := &comment.Printer{TextWidth: -1}
		fmt.Fprintf(&b, "%s%s\n", name, pr.Text(p.Parser().Parse(text)))
	}
	add("", p.Doc)
	for _, f := range p.Funcs {
		add("", f.Doc)
	}
	for _, t := range p.Types {
		add("", t.Doc)
		for _, f := range append(t.Funcs, t.Methods...) {
			add("", f.Doc)
		}
	}
	return b.String()
}

var (
	tag   = regexp.MustCompile(`(?s)<!--.*?-->|<[^>]*>`)
	blank = regexp.MustCompile(`\n[ \t]*\n\s*`)
)

func plain(page string) string {
	return strings.TrimSpace(blank.ReplaceAllString(html.UnescapeString(tag.ReplaceAllString(page, "")), "\n\n"))
}

var notice = regexp.MustCompile(`(?s)^// Copyright .*?LICENSE file\.\n+`)

// code is source text, cut between top-level declarations.
func code() []string {
	var groups [][]string
	for _, dir := range packages() {
		var docs []string
		for _, n := range sources(dir) {
			data, err := os.ReadFile(n)
			check(err)
			docs = append(docs, declarations(notice.ReplaceAllString(string(data), ""))...)
		}
		if len(docs) > 0 {
			groups = append(groups, docs)
		}
	}
	return spread(groups, codeQuota)
}

func declarations(src string) []string {
	var out []string
	for len(src) > docSize {
		i := strings.Index(src[docSize:], "\n}\n")
		if i < 0 || i > docSize {
			break
		}
		out = append(out, src[:docSize+i+2])
		src = src[docSize+i+3:]
	}
	if len(src) < 2*docSize && len(src) > docSize/4 {
		out = append(out, src)
	}
	return out
}
