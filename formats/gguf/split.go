package gguf

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// split is what a file says about its place in a split set.
type split struct {
	no, count int
	tensors   int64
}

const (
	keySplitNo      = "split.no"
	keySplitCount   = "split.count"
	keySplitTensors = "split.tensors.count"
)

// splitOf reads the keys of a split set. A file without them, or merged from a set, stands alone.
func splitOf(kv *Metadata) (split, error) {
	if !kv.Has(keySplitCount) {
		return split{count: 1}, nil
	}
	count, err := kv.Int(keySplitCount, 0, maxShards)
	if err != nil || count <= 1 { // llama-gguf-split --merge leaves 0
		return split{count: 1}, err
	}
	s := split{count: int(count)}
	no, err := kv.Int(keySplitNo, 0, count-1)
	if err != nil {
		return s, err
	}
	s.no = int(no)
	s.tensors, err = kv.Int(keySplitTensors, 0, math.MaxInt32)
	return s, err
}

// SplitName returns the name of file no (from 0) of count files.
func SplitName(prefix string, no, count int) string {
	return fmt.Sprintf("%s-%05d-of-%05d.gguf", prefix, no+1, count)
}

// ParseSplitName takes a name of that form apart.
func ParseSplitName(name string) (prefix string, no, count int, ok bool) {
	rest, ok := strings.CutSuffix(name, ".gguf")
	const tail = len("-00001-of-00003")
	if !ok || len(rest) <= tail {
		return "", 0, 0, false
	}
	prefix, rest = rest[:len(rest)-tail], rest[len(rest)-tail:]
	no, err1 := strconv.Atoi(rest[1:6])
	count, err2 := strconv.Atoi(rest[10:])
	ok = rest[0] == '-' && rest[6:10] == "-of-" && err1 == nil && err2 == nil && no >= 1 && no <= count
	if !ok || SplitName(prefix, no-1, count) != name {
		return "", 0, 0, false
	}
	return prefix, no - 1, count, true
}
