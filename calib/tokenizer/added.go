package tokenizer

import (
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/llmquant/quantize/formats/safeio"
)

// AddedToken is a token that is looked for in text before the model splits it.
type AddedToken struct {
	ID         int32
	Content    string
	Special    bool // skipped when text is shown to people; control token in GGUF
	Normalized bool // matched in the normalized text, in its own normalized form
	LStrip     bool // takes the white space before it along
	RStrip     bool // takes the white space behind it along
	SingleWord bool // only where no word character touches it
}

// maxAddedToken bounds the length of an added token: matching costs at most that many steps per byte of text.
const maxAddedToken = 256

// addedSet finds the leftmost, longest added token in text. It is a trie over bytes whose edges are sorted by node.
type addedSet struct {
	begins [256]bool // first bytes of tokens
	single int       // the only first byte, -1 when there are several
	root   [256]int32
	nodes  []trieNode
	edges  []trieEdge
	tokens []AddedToken
	t      *categories
}

// trieNode is a prefix of some tokens, edges[first:first+n] are its continuations.
type trieNode struct {
	first, n int32 // its edges
	token    int32 // index into tokens, -1 for none
}

// trieEdge leads from a node to the one that is b longer.
type trieEdge struct {
	b  byte
	to int32
}

// newAddedSet builds the set of tokens whose match texts are given; nil when there are none.
func newAddedSet(tokens []AddedToken, texts []string) (*addedSet, error) {
	if len(tokens) == 0 {
		return nil, nil
	}
	order := make([]int, len(tokens))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return texts[order[a]] < texts[order[b]] })
	set := &addedSet{tokens: tokens, single: -1, t: loadCategories()}
	for k, i := range order {
		switch {
		case texts[i] == "":
			return nil, safeio.Corruptf("the added token with id %d is empty", tokens[i].ID)
		case len(texts[i]) > maxAddedToken:
			return nil, safeio.Limitf("the added token with id %d is longer than %d bytes", tokens[i].ID, maxAddedToken)
		case k > 0 && texts[i] == texts[order[k-1]]:
			return nil, safeio.Corruptf("two added tokens match the same text %q", clip(texts[i]))
		}
	}
	set.build(order, texts)
	return set, nil
}

// trieRange is a node still to be expanded: the texts order[lo:hi] share their first depth bytes.
type trieRange struct {
	node, lo, hi, depth int
}

// build expands the trie breadth first, so that the edges of one node lie together.
func (set *addedSet) build(order []int, texts []string) {
	set.nodes = append(set.nodes, trieNode{token: -1})
	queue := []trieRange{{0, 0, len(order), 0}}
	for len(queue) > 0 {
		q := queue[0]
		queue = queue[1:]
		lo := q.lo
		if len(texts[order[lo]]) == q.depth { // sorted: the text that ends here comes first
			set.nodes[q.node].token = int32(order[lo])
			lo++
		}
		set.nodes[q.node].first = int32(len(set.edges))
		for lo < q.hi {
			b := texts[order[lo]][q.depth]
			hi := lo + sort.Search(q.hi-lo, func(k int) bool { return texts[order[lo+k]][q.depth] > b })
			to := len(set.nodes)
			set.nodes = append(set.nodes, trieNode{token: -1})
			set.edges = append(set.edges, trieEdge{b, int32(to)})
			queue = append(queue, trieRange{to, lo, hi, q.depth + 1})
			lo = hi
		}
		set.nodes[q.node].n = int32(len(set.edges)) - set.nodes[q.node].first
	}
	for _, e := range set.edges[:set.nodes[0].n] {
		set.begins[e.b] = true
		set.root[e.b] = e.to
		set.single = int(e.b)
	}
	if set.nodes[0].n > 1 {
		set.single = -1
	}
}

// longest returns the index of the longest token that starts at i, where one may begin, and its end; -1 when none does.
func (set *addedSet) longest(s string, i int) (token int32, end int) {
	token = -1
	node := &set.nodes[set.root[s[i]]]
	for i++; ; i++ {
		if node.token >= 0 {
			token, end = node.token, i
		}
		if i == len(s) {
			return token, end
		}
		next := int32(-1)
		for _, e := range set.edges[node.first : node.first+node.n] {
			if e.b == s[i] {
				next = e.to
				break
			}
		}
		if next < 0 {
			return token, end
		}
		node = &set.nodes[next]
	}
}

// at is longest for any position.
func (set *addedSet) at(s string, i int) (token int32, end int) {
	if set == nil || !set.begins[s[i]] {
		return -1, 0
	}
	return set.longest(s, i)
}

// candidate returns the next position at or after i where a token may begin, len(s) when none can.
func (set *addedSet) candidate(s string, i int) int {
	if set.single >= 0 {
		at := strings.IndexByte(s[i:], byte(set.single))
		if at < 0 {
			return len(s)
		}
		return i + at
	}
	for i < len(s) && !set.begins[s[i]] {
		i++
	}
	return i
}

// split calls text for the stretches between added tokens and token for each of them, from left to right.
func (set *addedSet) split(s string, text func(start, end int), token func(id int32)) {
	if set == nil {
		text(0, len(s))
		return
	}
	done := 0 // everything before is dealt with
	for i := set.candidate(s, 0); i < len(s); i = set.candidate(s, i) {
		k, end := set.longest(s, i)
		if k < 0 {
			i++
			continue
		}
		tok := &set.tokens[k]
		start := i
		i = end
		if tok.SingleWord && (set.wordBefore(s[:start]) || set.wordAfter(s[end:])) {
			continue
		}
		if tok.LStrip { // not further than what an earlier token took
			start = max(set.trimEnd(s, start), done)
		}
		if tok.RStrip {
			end = set.t.run(s, end, classSpace)
		}
		if done < start {
			text(done, start)
		}
		token(tok.ID)
		done = end
	}
	if done != len(s) {
		text(done, len(s))
	}
}

// trimEnd returns the end of s[:i] without its trailing white space.
func (set *addedSet) trimEnd(s string, i int) int {
	for i > 0 {
		r, n := utf8.DecodeLastRuneInString(s[:i])
		if !set.t.is(r, classSpace) {
			break
		}
		i -= n
	}
	return i
}

// wordBefore and wordAfter look at the character that touches a token from outside; text that begins or ends there
// does not.
func (set *addedSet) wordBefore(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && set.t.isWord(r)
}

// wordAfter: see wordBefore.
func (set *addedSet) wordAfter(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && set.t.isWord(r)
}

// isWord reports \w: letters, marks, decimal digits, letter numbers, connectors, the joiners, and the circled and
// squared letters that Unicode counts as alphabetic.
func (t *categories) isWord(r rune) bool {
	return t.is(r, classL|classM|1<<catNd|1<<catNl|1<<catPc) || r == '\u200c' || r == '\u200d' ||
		'\u24b6' <= r && r <= '\u24e9' || '\U0001f130' <= r && r <= '\U0001f149' ||
		'\U0001f150' <= r && r <= '\U0001f169' || '\U0001f170' <= r && r <= '\U0001f189'
}
