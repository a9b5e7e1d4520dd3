package calib

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// fuzzFile reads data as a file of this name under the allocation meter.
func fuzzFile(f *testing.F, name string) {
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		// Small limits: what may grow, must stop growing here.
		limits := Limits{Total: 4 << 20, Free: 1 << 20, Line: 1 << 20, Document: 2 << 20}
		var docs []Document
		used := allocated(func() { docs, _, _ = documents(Options{Limits: limits}, path) })
		for _, d := range docs {
			if d.Text == "" && len(d.IDs) == 0 && len(d.Messages) == 0 {
				t.Errorf("an empty document was not skipped")
			}
		}
		if used > uint64(64<<20+64*len(data)) {
			t.Errorf("%d bytes of input allocate %d", len(data), used)
		}
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("%d bytes of input take %v", len(data), d)
		}
	})
}

var lineSeeds = []string{
	`{"text":"a"}` + "\n" + `{"text":null}` + "\n\n" + `"b"`, `[1,2,3]`, `{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}`,
	`{"conversations":[{"from":"human","value":"q"}]}`, `{"input_ids":[1,-1]}`, `{"text":{"a":[[[]]]}}`, "\ufeff\"\\ud83d\\ude00\"", `{"a":1}{"a":2}`,
}

func FuzzLines(f *testing.F) {
	for _, s := range lineSeeds {
		f.Add([]byte(s))
	}
	fuzzFile(f, "a.jsonl")
}

func FuzzJSON(f *testing.F) {
	for _, s := range append(lineSeeds, `["a", "b" ]`, `[{"text":"x"},{"text":"y"}]`, `["a",]`, `[`, ` "x" 5 `) {
		f.Add([]byte(s))
	}
	fuzzFile(f, "a.json")
}

func FuzzCompressed(f *testing.F) {
	for _, s := range lineSeeds {
		f.Add([]byte(gz(s)))
		f.Add([]byte(zst(s)))
	}
	f.Add([]byte(zst(string(make([]byte, 8<<20)))))
	f.Add([]byte("\x28\xb5\x2f\xfd\xe0\x00\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00"))
	fuzzFile(f, "a.jsonl.gz")
}
