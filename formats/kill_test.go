package formats

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/llmquant/quantize/formats/safeio"
	"github.com/llmquant/quantize/formats/safeio/safeiotest"
)

// childOut makes this test binary a process that performs the tiny run, slowly, so that the tests below can kill it.
const childOut = "QUANTIZE_TEST_JOB_OUT"

func TestMain(m *testing.M) {
	out := os.Getenv(childOut)
	if out == "" {
		os.Exit(m.Run())
	}
	fs := fast()
	fs.Sync = func(*os.File) error { time.Sleep(200 * time.Microsecond); return nil }
	if err := (tinyRun{out: out, fs: fs, force: os.Getenv("QUANTIZE_TEST_JOB_FORCE") != ""}).do(&testing.T{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func child(out string, force bool) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childOut+"="+out)
	if force {
		cmd.Env = append(cmd.Env, "QUANTIZE_TEST_JOB_FORCE=1")
	}
	var text bytes.Buffer
	cmd.Stderr = &text
	return cmd, &text
}

// A process that is killed at a random moment, some of them again while resuming, leaves either nothing or everything
// under the final name, and the next process ends in the golden tree: no lock, no torn line stands in its way.
func TestKillAndResume(t *testing.T) {
	rounds := 12
	if os.Getenv("QUANTIZE_LONG") != "" {
		rounds = 300
	}
	want, complete := golden(t, false), goldenOut(t, false)
	rng := rand.New(rand.NewPCG(1, 2))
	killed := 0
	for round := range rounds {
		force := round%3 == 2
		out := filepath.Join(memDir(t), "golden", "out")
		if force {
			replaceable(t, tinyRun{out: out})
		}
		old := digestOut(t, out)
		for range 1 + round%2 { // every second round kills the resumed process as well
			cmd, _ := child(out, force)
			require.NoError(t, cmd.Start())
			time.Sleep(time.Duration(rng.IntN(40_000)) * time.Microsecond)
			_ = cmd.Process.Kill() // it may have ended
			if cmd.Wait() != nil {
				killed++
			}
			now := digestOut(t, out)
			require.True(t, now == "" || now == old || now == complete, "round %d", round)
		}
		if now := digestOut(t, out); now == complete && exists(out+".partial") && !force {
			j, err := OpenJob(t.Context(), tinyRun{out: out}.options(t))
			require.NoError(t, err)
			require.True(t, j.Published(), "the rest of the publication is done by opening")
		} else if now != complete || force {
			cmd, text := child(out, force)
			require.NoError(t, cmd.Run(), "round %d: %s", round, text)
		}
		require.Equal(t, want, digestTree(t, filepath.Dir(out)), "round %d", round)
	}
	t.Logf("%d processes killed", killed)
}

// Several processes start at once: one runs, the others end with the lock's owner or the finished output as the reason.
func TestConcurrentProcesses(t *testing.T) {
	want := golden(t, false)
	out := filepath.Join(memDir(t), "golden", "out")
	const n = 4
	var cmds [n]*exec.Cmd
	var texts [n]*bytes.Buffer
	for i := range n {
		cmds[i], texts[i] = child(out, false)
		require.NoError(t, cmds[i].Start())
	}
	published := 0
	for i, cmd := range cmds {
		if cmd.Wait() == nil {
			published++
			continue
		}
		text := texts[i].String()
		require.True(t, strings.Contains(text, "is working on this output") || strings.Contains(text, "already exists"), text)
	}
	require.Equal(t, 1, published)
	require.Equal(t, want, digestTree(t, filepath.Dir(out)))
}

// The journal may end anywhere and with anything: what is whole counts, the rest is done again.
func TestTornJournal(t *testing.T) {
	want := golden(t, false)
	r := tinyRun{out: filepath.Join(memDir(t), "golden", "out"), fs: fast()}
	r.fs.Rename = func(from, to string) error {
		if strings.HasPrefix(filepath.Base(from), blobPrefix) {
			return os.Rename(from, to)
		}
		return os.ErrPermission // stop in front of the publication
	}
	require.ErrorIs(t, r.do(t), os.ErrPermission)
	journal, err := os.ReadFile(filepath.Join(r.out+".partial", "journal"))
	require.NoError(t, err)
	lines, err := parseJournal(journal)
	require.NoError(t, err)
	require.Greater(t, len(lines), 8)
	require.EqualValues(t, len(journal), lines[len(lines)-1].end)
	for cut := 0; cut < len(journal); cut += 23 {
		for _, tail := range []string{"", "\x00\x00\x00\x00", "0000000a 12345678 {\"start\":1}\n", string(journal[cut/2:])} {
			again := tinyRun{out: filepath.Join(memDir(t), "golden", "out"), fs: fast()}
			require.NoError(t, os.CopyFS(again.out+".partial", os.DirFS(r.out+".partial")))
			require.NoError(t, os.WriteFile(filepath.Join(again.out+".partial", "journal"), append(journal[:cut:cut], tail...), 0o644))
			require.NoError(t, again.do(t), "cut at %d, then %.20q", cut, tail)
			require.Equal(t, want, digestTree(t, filepath.Dir(again.out)))
			os.RemoveAll(filepath.Dir(filepath.Dir(again.out)))
		}
	}
}

// A file that was removed or changed its size behind our back costs everything, but only work.
func TestLostFiles(t *testing.T) {
	want := golden(t, false)
	for _, damage := range []func(dir string) error{
		func(dir string) error {
			return os.Remove(filepath.Join(dir, "new", "model-00002-of-00003.safetensors"))
		},
		func(dir string) error {
			return os.Truncate(filepath.Join(dir, "new", "model-00002-of-00003.safetensors"), 77)
		},
		func(dir string) error { return os.RemoveAll(filepath.Join(dir, "new")) },
		func(dir string) error { return os.Remove(filepath.Join(dir, "blob-000002")) },
		func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "blob-000009"), []byte("orphan"), 0o644)
		},
	} {
		r := tinyRun{out: filepath.Join(memDir(t), "golden", "out"), fs: fast()}
		r.fs.Rename = func(string, string) error { return os.ErrPermission } // in front of the third layer
		require.ErrorIs(t, r.do(t), os.ErrPermission)
		require.NoError(t, damage(r.out+".partial"))
		r.fs = fast()
		require.NoError(t, r.do(t))
		require.Equal(t, want, digestTree(t, filepath.Dir(r.out)))
	}
}

// framedJournal frames texts with the right lengths and checksums.
func framedJournal(texts ...string) []byte {
	var framed []byte
	var sum uint32
	for _, text := range texts {
		sum = chainSum(sum, []byte(text))
		framed = fmt.Appendf(framed, "%08x %08x %s\n", len(text), sum, text)
	}
	return framed
}

// A whole line that says something impossible was written by no crash: the journal is refused as a whole.
func TestJournalRefuses(t *testing.T) {
	const start, sum = `{"start":{"version":2,"key":"k","describe":{},"plan":"p"}}`, `"0123456789abcdef"`
	lines, err := parseJournal(framedJournal(start, `{"unit":{"name":"u","tensors":[{"name":"t","crc":`+sum+`}],"state":""}}`,
		`{"blob":{"name":"b","file":"blob-1","size":0,"crc":`+sum+`}}`, `{"publish":{"files":null}}`))
	require.NoError(t, err)
	require.Len(t, lines, 4)
	for name, texts := range map[string][]string{
		"no start":            {`{"publish":{"files":null}}`},
		"two starts":          {start, start},
		"not JSON":            {start, `{"unit"`},
		"not an object":       {start, `[]`},
		"null":                {start, `null`},
		"empty":               {start, `{}`},
		"two parts":           {start, `{"publish":{"files":null},"unit":{"name":"u","tensors":[],"state":""}}`},
		"unknown part":        {start, `{"more":{}}`},
		"unknown member":      {start, `{"publish":{"files":null,"more":1}}`},
		"duplicate":           {start, `{"publish":{"files":null,"files":["x"]}}`},
		"wrong type":          {start, `{"publish":{"files":[1]}}`},
		"part is null":        {start, `{"publish":null}`},
		"short checksum":      {start, `{"unit":{"name":"u","tensors":[{"name":"t","crc":"01"}],"state":""}}`},
		"checksum not hex":    {start, `{"unit":{"name":"u","tensors":[{"name":"t","crc":"` + strings.Repeat("x", 16) + `"}],"state":""}}`},
		"state not base64":    {start, `{"unit":{"name":"u","tensors":[],"state":"*"}}`},
		"blob checksum":       {start, `{"blob":{"name":"b","file":"blob-1","size":0,"crc":""}}`},
		"blob size":           {start, `{"blob":{"name":"b","file":"blob-1","size":-1,"crc":` + sum + `}}`},
		"blob path":           {start, `{"blob":{"name":"b","file":"../x","size":0,"crc":` + sum + `}}`},
		"published path":      {start, `{"publish":{"files":["../x"]}}`},
		"published twice":     {start, `{"publish":{"files":["x","X"]}}`},
		"upper-case spelling": {start, `{"PUBLISH":{"files":null}}`},
	} {
		_, err := parseJournal(framedJournal(texts...))
		require.ErrorIs(t, err, safeio.ErrCorrupt, name)
		r := tinyRun{out: filepath.Join(memDir(t), "out"), fs: fast()}
		require.NoError(t, os.MkdirAll(r.out+".partial", 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(r.out+".partial", "journal"), framedJournal(texts...), 0o644))
		err = r.do(t)
		require.ErrorIs(t, err, safeio.ErrCorrupt, name)
		require.ErrorContains(t, err, "journal")
		require.DirExists(t, r.out+".partial", "it is for the user to remove")
	}
	_, err = parseJournal(framedJournal(strings.Replace(start, `"version":2`, `"version":1`, 1)))
	require.ErrorIs(t, err, safeio.ErrUnsupported)
}

// FuzzJournal frames every line of the input with a right length and checksum, so that mutations reach the records, and
// parses the input as it is as well.
func FuzzJournal(f *testing.F) {
	var texts []byte
	for _, r := range []record{
		{Start: &startRecord{journalVersion, "key", map[string]string{"method": "awq"}, "plan"}},
		{Blob: &blobRecord{"hidden", "blob-000001", 12, strings.Repeat("ab", 8)}},
		{Unit: &unitRecord{"layer 0", []tensorSum{{"a", strings.Repeat("01", 8)}}, "e30="}},
		{Publish: &publishRecord{[]string{"a.gguf"}}},
	} {
		line, _, err := encodeLine(r, 0)
		require.NoError(f, err)
		texts = append(texts, line[linePrefix:]...)
		f.Add(texts, uint16(len(texts)/2))
	}
	f.Add([]byte(`{"start":{"version":2,"key":"","describe":null,"plan":""}}`), uint16(3))
	f.Add([]byte(`{"start":{"version":1}}`+"\n"+`{"blob":{"name":"","file":"../x","size":-1,"crc":""}}`), uint16(3))
	f.Fuzz(func(t *testing.T, data []byte, cut uint16) {
		checkJournal(t, data, cut)
		checkJournal(t, framedJournal(strings.Split(string(data), "\n")...), cut)
	})
}

// checkJournal: errors have a class, the lines that are read are where they say, a cut journal is read as a prefix.
func checkJournal(t *testing.T, data []byte, cut uint16) {
	var lines []parsedLine
	var err error
	safeiotest.CheckAllocation(t, len(data), func() { lines, err = parseJournal(data) })
	if err != nil {
		require.True(t, errors.Is(err, safeio.ErrCorrupt) || errors.Is(err, safeio.ErrUnsupported) || errors.Is(err, safeio.ErrLimit), err)
		return
	}
	var at int64
	var sum uint32
	for _, l := range lines {
		text, length := nextLine(data[at:], sum)
		require.NotNil(t, text)
		sum, at = chainSum(sum, text), at+int64(length)
		require.Equal(t, l.sum, sum)
		require.Equal(t, l.end, at)
	}
	shorter, err := parseJournal(data[:min(int(cut), len(data))])
	require.NoError(t, err)
	require.LessOrEqual(t, len(shorter), len(lines))
}
