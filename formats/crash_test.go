package formats

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
)

// recorder runs on a real directory and notes every call of the seam, so that the state of a disk after a power loss at
// any of them can be reconstructed: what was synced is there, everything later survives by coin toss.
type recorder struct {
	root string
	ops  []op
}

type opKind string

const (
	opCreate  opKind = "create"
	opWrite   opKind = "write"
	opSync    opKind = "sync"
	opRename  opKind = "rename"
	opSyncDir opKind = "syncdir"
	opMark    opKind = "mark" // Finish has returned
)

// op is one call. Paths are relative to the root; data is what was written, or for a sync the whole content.
type op struct {
	kind    opKind
	path    string
	to      string
	off     int64
	data    []byte
	entries []string // of a directory when it was synced
}

func (r *recorder) fs() *safeio.FS {
	real := fast()
	note := func(err error, o op) error {
		if err == nil {
			o.path = r.rel(o.path)
			r.ops = append(r.ops, o)
		}
		return err
	}
	return &safeio.FS{
		Create: func(path string, size int64) (*os.File, error) {
			f, err := real.Create(path, size)
			return f, note(err, op{kind: opCreate, path: path, off: size})
		},
		WriteAt: func(f *os.File, p []byte, off int64) (int, error) {
			n, err := real.WriteAt(f, p, off)
			return n, note(err, op{kind: opWrite, path: f.Name(), off: off, data: append([]byte(nil), p...)})
		},
		Sync: func(f *os.File) error {
			data, err := os.ReadFile(f.Name())
			return note(err, op{kind: opSync, path: f.Name(), data: data})
		},
		Rename: func(from, to string) error {
			return note(real.Rename(from, to), op{kind: opRename, path: from, to: r.rel(to)})
		},
		SyncDir: func(path string) error {
			entries, err := os.ReadDir(path)
			o := op{kind: opSyncDir, path: path}
			for _, e := range entries {
				o.entries = append(o.entries, e.Name())
			}
			return note(err, o)
		},
		Lock: real.Lock, Free: real.Free,
	}
}

func (r *recorder) rel(path string) string {
	rel, err := filepath.Rel(r.root, path)
	if err != nil {
		panic(err)
	}
	return rel
}

func (r *recorder) run(t *testing.T, force, single bool) error {
	tiny := tinyRun{out: filepath.Join(r.root, "golden", "out"), fs: r.fs(), force: force, single: single}
	tiny.mark = func(unit string) { r.ops = append(r.ops, op{kind: opMark, path: unit}) }
	return tiny.do(t)
}

// node is a file or directory of the simulated disk.
type node struct {
	live, disk map[string]*node // entries of a directory as the process saw them, and as they survive
	data       []byte           // durable content of a file
	pending    []op             // writes since its last sync, and the creation that gave it its size
}

// change is one change of the name space. A rename is atomic, as on every journaling file system: it survives whole or not.
type change struct {
	from, to         *node // directories; from is nil for a creation, to for a removal
	fromName, toName string
	child            *node // created
	durable          map[*node]bool
}

// disk is the simulation: changes are applied to the live tree at once, and to the surviving tree at the end.
type disk struct {
	root    *node
	changes []*change
}

func newDir() *node { return &node{live: map[string]*node{}, disk: map[string]*node{}} }

// dir returns the directory at path. Directories themselves are made outside the seam: they are there as soon as used.
func (d *disk) dir(path string) *node {
	at := d.root
	if path == "." {
		return at
	}
	for _, name := range strings.Split(path, "/") {
		if at.live[name] == nil {
			at.live[name] = newDir()
			at.disk[name] = at.live[name]
			d.changes = append(d.changes, &change{to: at, toName: name, child: at.live[name], durable: map[*node]bool{at: true}})
		}
		at = at.live[name]
	}
	return at
}

func (d *disk) create(path string, n *node, durable bool) {
	to, name := d.dir(filepath.Dir(path)), filepath.Base(path)
	to.live[name] = n
	d.changes = append(d.changes, &change{to: to, toName: name, child: n, durable: map[*node]bool{to: durable}})
}

func (d *disk) file(path string) *node { return d.dir(filepath.Dir(path)).live[filepath.Base(path)] }

func (d *disk) apply(o op) {
	switch o.kind {
	case opCreate:
		d.create(o.path, &node{pending: []op{o}}, false)
	case opWrite:
		f := d.file(o.path)
		f.pending = append(f.pending, o)
	case opSync:
		*d.file(o.path) = node{data: o.data}
	case opRename:
		c := &change{from: d.dir(filepath.Dir(o.path)), fromName: filepath.Base(o.path),
			to: d.dir(filepath.Dir(o.to)), toName: filepath.Base(o.to), durable: map[*node]bool{}}
		c.to.live[c.toName] = c.from.live[c.fromName]
		delete(c.from.live, c.fromName)
		d.changes = append(d.changes, c)
	case opSyncDir:
		d.syncDir(d.dir(o.path), o.entries)
	}
}

// syncDir makes a directory's changes durable. Removals do not pass the seam; the listing tells them.
func (d *disk) syncDir(dir *node, entries []string) {
	for name := range dir.live {
		if !slices.Contains(entries, name) {
			delete(dir.live, name)
			d.changes = append(d.changes, &change{from: dir, fromName: name})
		}
	}
	for _, c := range d.changes {
		if c.from == dir || c.to == dir {
			if c.durable == nil {
				c.durable = map[*node]bool{}
			}
			c.durable[dir] = true
		}
	}
}

// survive decides which changes reached the disk: those whose directories were all synced, of the others every second one.
func (d *disk) survive(rng *rand.Rand) {
	for _, c := range d.changes {
		certain := (c.from == nil || c.durable[c.from]) && (c.to == nil || c.durable[c.to])
		if !certain && rng.IntN(2) == 0 {
			continue
		}
		child := c.child
		if c.from != nil {
			child = c.from.disk[c.fromName]
			delete(c.from.disk, c.fromName)
		}
		if c.to != nil && child != nil {
			c.to.disk[c.toName] = child
		}
	}
}

// write materialises a node. Writes that were not synced reached the disk by coin toss, some of them torn.
func (n *node) write(t *testing.T, path string, rng *rand.Rand) {
	if n.disk != nil {
		require.NoError(t, os.MkdirAll(path, 0o755))
		for _, name := range slices.Sorted(maps.Keys(n.disk)) {
			n.disk[name].write(t, filepath.Join(path, name), rng)
		}
		return
	}
	data := append([]byte(nil), n.data...)
	grow := func(size int64) { data = append(data, make([]byte, max(0, size-int64(len(data))))...) }
	for _, o := range n.pending {
		p := o.data
		switch rng.IntN(6) {
		case 0, 1, 2:
			continue
		case 3:
			p = p[:rng.IntN(len(p)+1)]
		}
		if o.kind == opCreate {
			grow(o.off)
			continue
		}
		grow(o.off + int64(len(p)))
		copy(data[o.off:], p)
	}
	require.NoError(t, os.WriteFile(path, data, 0o644))
}

// crash builds in dir the disk as it may look after a power loss behind these operations.
func crash(t *testing.T, dir string, before map[string]string, ops []op, rng *rand.Rand) {
	d := &disk{root: newDir()}
	for _, path := range slices.Sorted(maps.Keys(before)) {
		d.create(path, &node{data: []byte(before[path])}, true)
	}
	for _, o := range ops {
		if o.kind != opMark {
			d.apply(o)
		}
	}
	d.survive(rng)
	d.root.write(t, dir, rng)
}

// A power loss may come at any moment, and any write or rename that was not synced may be lost, torn or kept. Whatever is
// left then resumes to the golden tree, units whose Finish had returned are not done again, and nothing incomplete ever
// stands under the final name.
func TestPowerLoss(t *testing.T) {
	seeds := 3
	if os.Getenv("QUANTIZE_LONG") != "" {
		seeds = 30
	}
	for _, v := range []struct{ force, single bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		t.Run(fmt.Sprintf("force=%v single=%v", v.force, v.single), func(t *testing.T) {
			t.Parallel()
			r := &recorder{root: memDir(t)}
			before := map[string]string{}
			if v.force {
				replaceable(t, tinyRun{out: filepath.Join(r.root, "golden", "out"), single: v.single})
				before = map[string]string{"golden/out/config.json": "old"}
				if v.single {
					before = map[string]string{"golden/out": "old"}
				}
			}
			old := digestOut(t, filepath.Join(r.root, "golden", "out"))
			require.NoError(t, r.run(t, v.force, v.single))
			want, complete := golden(t, v.single), goldenOut(t, v.single)
			for n := range r.ops {
				for seed := range seeds {
					survivor := &recorder{root: memDir(t)}
					crash(t, survivor.root, before, r.ops[:n+1], rand.New(rand.NewPCG(uint64(n), uint64(seed))))
					out := filepath.Join(survivor.root, "golden", "out")
					now := digestOut(t, out)
					require.True(t, now == "" && (!v.force || exists(out+".partial")) || now == old || now == complete,
						"after operation %d, seed %d, something else stands under the final name", n, seed)
					if err := survivor.run(t, v.force, v.single); now != complete || v.force {
						require.NoError(t, err, "operation %d, seed %d", n, seed)
					}
					require.Equal(t, want, digestTree(t, filepath.Dir(out)), "operation %d, seed %d", n, seed)
					if now != complete {
						require.Empty(t, intersection(marks(r.ops[:n+1]), marks(survivor.ops)), "units done twice after operation %d, seed %d", n, seed)
					}
					os.RemoveAll(survivor.root)
				}
			}
		})
	}
}

func marks(ops []op) map[string]bool {
	m := map[string]bool{}
	for _, o := range ops {
		if o.kind == opMark {
			m[o.path] = true
		}
	}
	return m
}

func intersection(a, b map[string]bool) []string {
	var both []string
	for k := range a {
		if b[k] {
			both = append(both, k)
		}
	}
	return both
}

// The order of calls that makes the above true, stated directly: data is durable before a journal line speaks of it, the
// line before anything else is written, everything before the first rename, each rename before the next one.
func TestOrderOfSyncs(t *testing.T) {
	for _, force := range []bool{false, true} {
		r := &recorder{root: memDir(t)}
		if force {
			replaceable(t, tinyRun{out: filepath.Join(r.root, "golden", "out")})
		}
		require.NoError(t, r.run(t, force, false))
		dirty := map[string]bool{} // files with unsynced writes
		fresh := map[string]bool{} // directories with unsynced entries
		renames := 0
		for i, o := range r.ops {
			journal := filepath.Base(o.path) == "journal"
			switch o.kind {
			case opCreate:
				fresh[filepath.Dir(o.path)] = true
				dirty[o.path] = true
			case opWrite:
				if journal {
					delete(dirty, o.path)                          // its own creation
					if bytes.Contains(o.data, []byte(`{"blob"`)) { // it speaks of the blob alone; the next layer's data may be under way
						require.Empty(t, slices.DeleteFunc(slices.Collect(maps.Keys(dirty)), func(path string) bool { return !strings.Contains(path, "blob") }))
					} else {
						require.Empty(t, dirty, "operation %d: a journal line before its data is durable", i)
					}
					require.Empty(t, fresh, "operation %d: a journal line before its files' names are durable", i)
				} else {
					require.False(t, dirty[filepath.Join("golden", "out.partial", "journal")], "operation %d: written before the journal is durable", i)
				}
				dirty[o.path] = true
			case opSync:
				delete(dirty, o.path)
			case opSyncDir:
				delete(fresh, o.path)
			case opRename:
				if !strings.HasPrefix(filepath.Base(o.path), blobPrefix) {
					renames++ // of the publication
				}
				require.Empty(t, dirty, "operation %d: renamed before everything is durable", i)
				require.Empty(t, fresh, "operation %d: renamed before the last rename or file name is durable", i)
				fresh[filepath.Dir(o.path)], fresh[filepath.Dir(o.to)] = true, true
			}
		}
		require.Empty(t, dirty)
		require.Empty(t, fresh, "the last rename is durable when Publish returns")
		require.Equal(t, map[bool]int{false: 1, true: 2}[force], renames)
	}
}
