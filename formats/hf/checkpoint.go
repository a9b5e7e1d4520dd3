package hf

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safetensors"
	"github.com/llmquant/quantize/formats/tensor"
)

// Checkpoint is an opened, fully checked model directory. It is safe for concurrent use.
type Checkpoint struct {
	root    *safeio.Root
	config  safeio.Value
	quant   *Quantization
	shards  []*safetensors.File
	stats   []fs.FileInfo // of the shards when opened
	names   []string      // base names of the shards
	infos   []tensor.Info
	home    map[string]int32 // tensor name to shard
	side    []File
	skipped []string
}

var _ tensor.Source = (*Checkpoint)(nil)

// Open opens a model directory, a cached repository of the Hub or one of its snapshots; or a single safetensors file, whose
// directory then supplies the rest (config.json may be missing there).
func Open(path string, limits safeio.Limits) (*Checkpoint, error) {
	only := ""
	if isFile(path) {
		path, only = filepath.Split(path)
		path = filepath.Join(path, ".")
	}
	root, err := locate(path)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{root: root, home: map[string]int32{}}
	if err := c.open(only, limits); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Checkpoint) open(single string, limits safeio.Limits) error {
	names, err := c.root.Names()
	if err != nil {
		return err
	}
	if err := c.readConfig(names, single != "", limits); err != nil {
		return err
	}
	l := &layout{shards: []string{single}}
	if single == "" {
		if l, err = choose(c.root, names, c.staleIndex(names), limits); err != nil {
			return err
		}
	}
	c.skipped = l.skipped
	if err := c.openShards(l, limits); err != nil {
		return err
	}
	if err := c.compareIndex(l.home); err != nil {
		return err
	}
	if single != "" {
		return nil // a file by itself has no company to carry over
	}
	return c.listSide(names, limits)
}

// readConfig reads config.json and the description of the quantization, which may lie in a file of its own.
func (c *Checkpoint) readConfig(names []string, optional bool, limits safeio.Limits) error {
	if !slices.Contains(names, ConfigName) {
		if optional {
			return nil
		}
		if len(only(names, weights)) == 0 {
			return noWeights(c.root, names)
		}
		return &safeio.Error{Op: "open", Path: c.root.Path("."), Off: -1, Hint: "copy config.json from the model's page next to its weights",
			Err: &fs.PathError{Op: "find", Path: ConfigName, Err: fs.ErrNotExist}}
	}
	var err error
	if c.config, err = c.readJSON(ConfigName, limits); err != nil {
		return err
	}
	if c.config.Kind() != safeio.Object {
		return safeio.WithPath(safeio.Corruptf("the document is %s, not an object", c.config.Kind()), c.root.Path(ConfigName))
	}
	c.quant, err = detect(c.config, func(name string) (safeio.Value, error) {
		if !slices.Contains(names, name) {
			return safeio.Value{}, nil
		}
		return c.readJSON(name, limits)
	}, c.root.Path)
	return err
}

func (c *Checkpoint) readJSON(name string, limits safeio.Limits) (safeio.Value, error) {
	data, err := c.root.ReadFile(name, limits.ConfigJSON)
	if err != nil {
		return safeio.Value{}, err
	}
	v, err := safeio.ParseJSON(data)
	if err != nil {
		return safeio.Value{}, safeio.WithPath(err, c.root.Path(name))
	}
	return v, nil
}

// staleIndex recognises the index that ExLlamaV2 copies from the source model although its own files have other names:
// none of the files it names is there.
func (c *Checkpoint) staleIndex(names []string) func([]string) bool {
	return func(shards []string) bool {
		if c.quant == nil || c.quant.Method != "exl2" {
			return false
		}
		return len(without(shards, names)) == len(shards)
	}
}

func (c *Checkpoint) openShards(l *layout, limits safeio.Limits) error {
	if len(l.shards) > limits.Shards {
		return fail(c.root, safeio.Limitf("%d files are over the limit of %d", len(l.shards), limits.Shards), "")
	}
	for i, name := range l.shards {
		f, info, err := c.root.Open(name)
		if errors.Is(err, fs.ErrNotExist) && l.home != nil {
			return &safeio.Error{Op: "open", Path: c.root.Path(name), Off: -1, Hint: "download the missing file",
				Err: safeio.Corruptf("%s names this file, but it is not there", indexName)}
		}
		if err != nil {
			return err
		}
		shard, err := safetensors.OpenFile(f, info.Size(), c.root.Path(name), limits)
		if err != nil {
			return err
		}
		c.shards, c.stats, c.names = append(c.shards, shard), append(c.stats, info), append(c.names, name)
		if len(c.infos)+len(shard.Tensors()) > limits.Tensors {
			return fail(c.root, safeio.Limitf("more than %d tensors", limits.Tensors), "")
		}
		for _, t := range shard.Tensors() {
			if other, ok := c.home[t.Name]; ok {
				return &safeio.Error{Op: "open", Path: c.root.Path(name), Tensor: t.Name, Off: -1, Err: safeio.Corruptf("it is in %q as well", c.names[other])}
			}
			c.home[t.Name] = int32(i)
		}
		c.infos = append(c.infos, shard.Tensors()...)
	}
	return nil
}

// compareIndex proves that the index and the files name the same tensors in the same places.
func (c *Checkpoint) compareIndex(index map[string]string) error {
	if index == nil {
		return nil
	}
	for _, t := range c.infos { // in storage order, so that the message does not depend on a map
		have := c.names[c.home[t.Name]]
		said, ok := index[t.Name]
		if !ok {
			return &safeio.Error{Op: "open", Path: c.root.Path(have), Tensor: t.Name, Off: -1, Err: safeio.Corruptf("%s does not list it", indexName)}
		}
		if said != have {
			return &safeio.Error{Op: "open", Path: c.root.Path(have), Tensor: t.Name, Off: -1, Err: safeio.Corruptf("%s says that it lies in %q", indexName, said)}
		}
	}
	if len(index) == len(c.infos) {
		return nil
	}
	var missing []string
	for name := range index {
		if _, ok := c.home[name]; !ok {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return &safeio.Error{Op: "open", Path: c.root.Path(index[missing[0]]), Tensor: missing[0], Off: -1,
		Err: safeio.Corruptf("%s lists it (%d such tensors in all), but no file holds it", indexName, len(missing))}
}

// listSide finds what an output must carry over, and names what is left behind.
func (c *Checkpoint) listSide(names []string, limits safeio.Limits) error {
	for _, name := range names {
		k := classify(name)
		if k == weights || k == derived || k == private {
			continue
		}
		info, err := c.root.Stat(name)
		switch {
		case err != nil:
			return err
		case info.IsDir():
			c.skipped = append(c.skipped, name+"/")
			continue
		case k != side:
			c.skipped = append(c.skipped, name)
			continue
		case !info.Mode().IsRegular():
			return &safeio.Error{Op: "open", Path: c.root.Path(name), Off: -1, Err: safeio.Corruptf("it is neither a file nor a directory")}
		case info.Size() > limits.SideFile || len(c.side) == limits.SideFiles:
			return &safeio.Error{Op: "open", Path: c.root.Path(name), Off: -1,
				Err: safeio.Limitf("side files are limited to %d files of %d bytes", limits.SideFiles, limits.SideFile)}
		}
		c.side = append(c.side, c.file(name, info))
	}
	slices.Sort(c.skipped)
	return nil
}

// file describes a file that is streamed later; it must not have changed by then.
func (c *Checkpoint) file(name string, was fs.FileInfo) File {
	return File{Name: name, Size: was.Size(), Open: func() (io.ReadCloser, error) {
		f, now, err := c.root.Open(name)
		if err != nil {
			return nil, err
		}
		if err := safeio.Unchanged(c.root.Path(name), was, now); err != nil {
			f.Close()
			return nil, err
		}
		return f, nil
	}}
}

// Close closes all files.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, s := range c.shards {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, c.root.Close())...)
}

// Dir returns the directory with the files, links resolved.
func (c *Checkpoint) Dir() string {
	return strings.TrimSuffix(c.root.Path("."), string(filepath.Separator))
}
