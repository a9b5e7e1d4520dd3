package mixture

import "github.com/llmquant/quantize/formats/gguf"

// fileSet is a set of file type ids.
type fileSet uint64

func of(ids ...uint32) fileSet {
	var s fileSet
	for _, id := range ids {
		s |= 1 << id
	}
	return s
}

const every fileSet = 1<<fileTypes - 1

func (s fileSet) has(id uint32) bool { return id < fileTypes && s&(1<<id) != 0 }

// view is what a rule may look at.
type view struct {
	*Arch
	cat     category
	file    uint32
	imatrix bool
	counter int // tensors of the category seen so far
	layer   int // counter, or the number in "blk.N." in mixtures of experts
	layers  int // number of layers, or of attention value tensors for their category
	ne      []int64
	current gguf.Type
}

type condition func(*view) bool

// rule gives a type to the tensors of a category under some file types. The first rule that applies wins.
type rule struct {
	files fileSet
	when  condition // nil: always
	then  gguf.Type
}

func (r *rule) applies(v *view) bool { return r.files.has(v.file) && (r.when == nil || r.when(v)) }

// The conditions. "Experts" tests are for exactly eight, the shape of the first mixtures of experts.
func gqa4(v *view) bool         { return v.GQA() >= 4 }
func eightExperts(v *view) bool { return v.Experts == 8 }
func falcon(v *view) bool       { return v.Name == "falcon" }
func noImatrix(v *view) bool    { return !v.imatrix }
func firstEighth(v *view) bool  { return v.layer < v.layers/8 }
func sixteenth(v *view) bool    { return v.layer < v.layers/16 }
func middle(v *view) bool       { return v.layer >= v.layers/8 && v.layer < 7*v.layers/8 }

// moreBits picks the first and last eighth of the layers and every third in between.
func moreBits(v *view) bool {
	n := v.layers
	return v.layer < n/8 || v.layer >= 7*n/8 || (v.layer-n/8)%3 == 2
}

func first(n int) condition { return func(v *view) bool { return v.counter < n } }

func not(c condition) condition { return func(v *view) bool { return !c(v) } }

func all(cs ...condition) condition {
	return func(v *view) bool {
		for _, c := range cs {
			if !c(v) {
				return false
			}
		}
		return true
	}
}

func either(a, b condition) condition { return func(v *view) bool { return a(v) || b(v) } }

func unaligned(v *view) bool { return v.ne[0]%v.current.BlockElems() != 0 }

func isType(ts ...gguf.Type) condition {
	return func(v *view) bool {
		for _, t := range ts {
			if v.current == t {
				return true
			}
		}
		return false
	}
}

// stacked finds matrices of experts. The 3-D attention tensors of DeepSeek-style models count as well, except in the
// one architecture the reference exempts.
func stacked(v *view) bool {
	feedForward := v.cat == up || v.cat == gate || v.cat == down
	return len(v.ne) > 2 && v.ne[2] > 1 && (v.Name != "bailingmoe3" || feedForward)
}

// lowBits are the file types below three bits with their own, shorter table.
var lowBits = of(iq1_S, iq1_M, iq2_XXS, iq2_XS, iq2_S, iq2_M)

// headRules: the output matrix, or the embedding when no output matrix exists.
var headRules = []rule{
	{of(mxfp4_MOE), nil, gguf.Q8_0},
	{every, either(falcon, unaligned), gguf.Q8_0},
	{lowBits | of(iq3_XXS), nil, gguf.Q5_K},
	{every, isType(gguf.Q8_0), gguf.Q8_0},
	{every, nil, gguf.Q6_K},
}

// expertFile is MXFP4_MOE for all tensors but the head.
var expertFile = []rule{
	{every, stacked, gguf.MXFP4},
	{every, nil, gguf.Q8_0},
}

var embeddingRules = []rule{
	{of(iq1_S, iq1_M, iq2_XXS, iq2_XS), nil, gguf.Q2_K},
	{of(iq2_S, iq2_M, iq3_XXS), nil, gguf.IQ3_S},
	{of(tq1_0, tq2_0, q2_0), nil, gguf.Q4_K},
}

var lowRules = [categories][]rule{
	values: {
		{every, func(v *view) bool { return v.GQA() >= 4 || v.Experts >= 4 }, gguf.Q4_K},
		{of(iq2_S, iq2_M), nil, gguf.IQ3_S},
		{every, nil, gguf.Q2_K},
	},
	keys: {{every, eightExperts, gguf.Q4_K}},
	down: {
		{of(iq2_S, iq2_M), firstEighth, gguf.IQ3_S},
		{every, firstEighth, gguf.Q2_K},
	},
	attnOut: {
		{every, eightExperts, gguf.Q5_K},
		{of(iq1_S, iq1_M), nil, gguf.IQ2_XXS},
		{of(iq2_S, iq2_M), nil, gguf.IQ3_S},
	},
}

var rules = [categories][]rule{
	values: {
		{of(q2_K), gqa4, gguf.Q4_K},
		{of(q2_K), nil, gguf.Q3_K},
		{of(q2_K_S), gqa4, gguf.Q4_K},
		{of(iq3_XXS), gqa4, gguf.Q4_K},
		{of(iq3_XXS), noImatrix, gguf.IQ3_S},
		{of(iq3_XXS), nil, gguf.IQ3_XXS},
		{of(iq3_XS, iq3_S), gqa4, gguf.Q4_K},
		{of(iq3_M), nil, gguf.Q4_K},
		{of(q3_K_M), first(2), gguf.Q5_K},
		{of(q3_K_M), nil, gguf.Q4_K},
		{of(q3_K_L), nil, gguf.Q5_K},
		{of(iq4_NL, iq4_XS), gqa4, gguf.Q5_K},
		{of(q4_K_M, q5_K_M), moreBits, gguf.Q6_K},
		{of(q4_K_S), first(4), gguf.Q5_K},
	},
	keys: {
		{every, eightExperts, gguf.Q8_0},
		{of(iq3_XS), nil, gguf.IQ3_XXS},
		{of(iq3_XXS), nil, gguf.IQ2_S},
	},
	queries: {
		{of(iq3_XS), nil, gguf.IQ3_XXS},
		{of(iq3_XXS), nil, gguf.IQ2_S},
	},
	down: {
		{of(q2_K), nil, gguf.Q3_K},
		{of(q2_K_S), firstEighth, gguf.Q4_K},
		{of(iq3_XXS), all(noImatrix, firstEighth), gguf.Q4_K},
		{of(iq3_XXS), noImatrix, gguf.Q3_K},
		{of(q3_K_M), sixteenth, gguf.Q5_K},
		{of(q3_K_M), either(not(falcon), moreBits), gguf.Q4_K},
		{of(iq3_M), firstEighth, gguf.Q4_K},
		{of(iq3_M), all(eightExperts, moreBits), gguf.Q4_K},
		{of(q3_K_L), falcon, gguf.Q4_K},
		{of(q3_K_L), nil, gguf.Q5_K},
		{of(q4_K_M), all(falcon, sixteenth), gguf.Q6_K},
		{of(q4_K_M), all(falcon, moreBits), gguf.Q5_K},
		{of(q4_K_M), all(not(falcon), moreBits), gguf.Q6_K},
		{of(iq4_NL, iq4_XS), all(noImatrix, firstEighth), gguf.Q5_K},
		{of(q5_K_M), moreBits, gguf.Q6_K},
		{of(q4_K_S), all(not(falcon), firstEighth), gguf.Q5_K},
		// Q4_0 and Q5_0 go astray in the first down projections when an importance matrix weights them.
		{of(q4_0), all(not(noImatrix), firstEighth), gguf.Q4_1},
		{of(q5_0), all(not(noImatrix), firstEighth), gguf.Q5_1},
	},
	attnOut: {
		{of(q3_K_L), falcon, gguf.Q4_K},
		{every, falcon, sameType},
		{of(q2_K, iq3_XS, iq3_XXS, q3_K_S, q3_K_M, iq4_NL, q4_K_S, q4_K_M, iq3_S, iq3_M, iq4_XS), eightExperts, gguf.Q5_K},
		{every, eightExperts, sameType},
		{of(q2_K), nil, gguf.Q3_K},
		{of(iq3_XXS), nil, gguf.IQ3_S},
		{of(q3_K_M, iq3_M), nil, gguf.Q4_K},
		{of(q3_K_L), nil, gguf.Q5_K},
	},
	gate: {{of(iq3_XS), middle, gguf.IQ3_XXS}},
	up:   {{of(iq3_XS), middle, gguf.IQ3_XXS}},
}

// valuesAfter runs one after the other on the result for attention values.
var valuesAfter = []rule{
	{every, all(func(v *view) bool { return v.Large() }, isType(gguf.Q3_K, gguf.Q4_K)), gguf.Q5_K},
	{every, eightExperts, gguf.Q8_0},
}

// sameType in a rule keeps the type reached so far and ends the search.
const sameType gguf.Type = 1 << 31

// apply returns the type of the first rule that applies, the current type when none does.
func apply(rules []rule, v *view) gguf.Type {
	for i := range rules {
		if r := &rules[i]; r.applies(v) {
			if r.then == sameType {
				break
			}
			return r.then
		}
	}
	return v.current
}
