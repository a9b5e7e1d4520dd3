package calib

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
)

// format is a kind of file.
type format uint8

const (
	unknown format = iota
	plainText
	jsonLines
	jsonValue
	parquetFile
	builtIn
)

// endings maps file name endings to formats; compression endings are cut off before.
var endings = map[string]format{
	".txt": plainText, ".text": plainText, ".md": plainText, ".jsonl": jsonLines, ".ndjson": jsonLines, ".json": jsonValue,
	".parquet": parquetFile,
}

var compressions = [...]string{".gz", ".zst"}

// known names the endings for messages.
const known = "known are .parquet, .jsonl, .ndjson, .json, .txt, .text and .md, the last six also with .gz or .zst"

// DefaultName stands among paths for the text built into the program.
const DefaultName = "default"

// metadata are JSON files that data sets keep beside their data; in a directory they are passed over.
var metadata = [...]string{"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"}

// maxDirDepth bounds how deep directories are searched.
const maxDirDepth = 16

// Source is a sequence of inputs. It is used by one goroutine and can be read once.
type Source struct {
	opts   Options
	inputs []input
	stats  []FileStat
	total  int64 // bytes decompressed so far
}

type input struct {
	path, name string
	format     format // by name; content may tell otherwise
	compressed bool   // by name
}

// OpenSource finds the files behind paths: files in the order given, directories replaced by the files below them in
// order of their names. Nothing is read yet, but what does not exist or cannot be data is refused here.
func OpenSource(paths []string, o Options) (*Source, error) {
	o.Limits = o.Limits.withDefaults()
	s := &Source{opts: o}
	for _, p := range paths {
		if err := s.add(p); err != nil {
			return nil, err
		}
	}
	if len(s.inputs) == 0 {
		return nil, readError("", safeio.Corruptf("no input file is given"))
	}
	return s, nil
}

// add appends the files behind one path.
func (s *Source) add(path string) error {
	if path == DefaultName {
		s.inputs = append(s.inputs, input{path: path, name: "built-in text", format: builtIn})
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		before := len(s.inputs)
		if err := s.addDir(path, "", 0); err != nil {
			return err
		}
		if len(s.inputs) == before {
			return readError(path, safeio.Unsupportedf("the directory has no data files; %s", known))
		}
		return nil
	}
	s.inputs = append(s.inputs, newInput(path, filepath.Base(path)))
	return nil
}

// newInput reads format and compression off the name, without regard to case.
func newInput(path, name string) input {
	in := input{path: path, name: name}
	stem := strings.ToLower(name)
	for _, c := range compressions {
		if cut, ok := strings.CutSuffix(stem, c); ok {
			stem, in.compressed = cut, true
			break
		}
	}
	in.format = endings[filepath.Ext(stem)]
	return in
}

// addDir adds the data files of a directory. Hidden entries and links to directories are passed over; links to files
// are followed, as a Hub cache needs.
func (s *Source) addDir(dir, prefix string, depth int) error {
	if depth > maxDirDepth {
		return readError(dir, safeio.Limitf("directories are nested deeper than %d levels", maxDirDepth))
	}
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return err
	}
	for _, e := range entries {
		path, name := filepath.Join(dir, e.Name()), prefix+e.Name()
		switch {
		case strings.HasPrefix(e.Name(), "."), slices.Contains(metadata[:], e.Name()):
		case e.IsDir():
			if err := s.addDir(path, name+"/", depth+1); err != nil {
				return err
			}
		default:
			if in := newInput(path, name); in.format != unknown && isFile(path) {
				s.inputs = append(s.inputs, in)
			}
		}
	}
	return nil
}

// isFile follows links; what hangs or is missing is passed over in directories, and refused only when named.
func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// Files describes the inputs read so far, in order. It is complete when Documents or Tokens has ended without error.
func (s *Source) Files() []FileStat { return s.stats }

// errStop ends reading when the consumer has had enough.
var errStop = errors.New("stop")

// Documents yields the documents of all inputs in order. After an error it stops.
func (s *Source) Documents(ctx context.Context) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		for _, in := range s.inputs {
			r := &fileReader{src: s, in: in, stat: FileStat{Name: in.name}, yield: yield, ctx: ctx}
			err := r.read()
			switch {
			case errors.Is(err, errStop):
				return
			case err != nil:
				yield(Document{}, locate(in.path, err))
				return
			}
			s.stats = append(s.stats, r.stat)
		}
	}
}

// locate names the file in an error that does not yet.
func locate(path string, err error) error {
	var e *safeio.Error
	var p *fs.PathError
	if errors.As(err, &e) && e.Path != "" || errors.As(err, &p) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	named := &safeio.Error{Op: "read calibration data", Path: path, Off: -1, Err: err}
	if e != nil {
		named.Hint = e.Hint
	}
	return named
}

// readError is an error about a file, or about the data as a whole.
func readError(path string, err error) error {
	return &safeio.Error{Op: "read calibration data", Path: path, Off: -1, Err: err}
}

// inRow names the row of an error.
func inRow(what string, row int64, err error) error { return fmt.Errorf("%s %d: %w", what, row, err) }
