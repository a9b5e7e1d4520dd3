package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// nearest returns the known word that a mistyped one is closest to, "" when none is close: a third of its letters may be
// wrong, missing, superfluous or swapped with their neighbour. Case and punctuation do not count.
func nearest(word string, known []string) string {
	best, least := "", len(word)/3+1
	for _, k := range known {
		if d := typos(letters.Replace(strings.ToLower(word)), letters.Replace(strings.ToLower(k))); d < least || d == least && best == "" {
			best, least = k, d
		}
	}
	return best
}

var letters = strings.NewReplacer("-", "", "_", "", ".", "")

// typos is the optimal string alignment distance of two words.
func typos(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// unknownf is the usage error for a word that is none of the known ones: it names the nearest, and lists all.
func unknownf(what, word string, known []string) error {
	text := fmt.Sprintf("unknown %s %q", what, word)
	if n := nearest(word, known); n != "" {
		text += fmt.Sprintf("; did you mean %s?", n)
	}
	return &usageError{text: text, hint: "known: " + strings.Join(known, ", ")}
}

// flagProblem puts the CLI library's complaint about a flag into the words of the other errors.
func flagProblem(ctx *cli.Context, err error) error {
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown || ctx == nil || ctx.Command == nil {
		return usagef("%v", err)
	}
	var known []string
	for _, f := range ctx.Command.Flags {
		for _, n := range f.Names() {
			if len(n) > 1 {
				known = append(known, "--"+n)
			}
		}
	}
	return unknownf("flag", "--"+strings.TrimLeft(name, "-"), known)
}

// commandNames lists the verbs that a user may give.
func commandNames() (names []string) {
	for _, c := range commands(&console{}) {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	return names
}
