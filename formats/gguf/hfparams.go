package gguf

import (
	"math"

	"github.com/llmquant/quantize/formats/arch"
	"github.com/llmquant/quantize/formats/safeio"
)

// params are the numbers of a supported model as its metadata state them, range-checked.
type params struct {
	*family

	blocks, hidden, inner, heads, kvHeads, dim, context, vocab int

	dimStated                bool // key_length is stated
	eps, theta               float64
	count, used, expertInner int // experts, of them used, inner size of one; 0 in dense models
	ropeType                 string
	factor                   float64
	original                 int
	attnBiases, mlpBiases    bool
	tied                     bool
}

// The ranges of counts: far above any model, far below what arithmetic on them could overflow.
const (
	mostBlocks = 1 << 16
	mostCount  = 1 << 20
	mostVocab  = 1 << 24
	mostTokens = math.MaxInt32
	mostPlaces = 1 << 18 // tensors in Hugging Face names; the largest published models have 70,000
)

// readParams reads the metadata of a supported architecture.
func (f *File) readParams() (*params, error) {
	name, err := f.Architecture()
	if err != nil {
		return nil, err
	}
	fam, err := familyOf(name)
	if err != nil {
		return nil, err
	}
	p := &params{family: fam, factor: 1}
	kv := &f.KV
	for _, n := range []struct {
		key      string
		to       *int
		most     int64
		optional bool
	}{
		{"block_count", &p.blocks, mostBlocks, false},
		{"embedding_length", &p.hidden, mostCount, false},
		{"feed_forward_length", &p.inner, mostCount, false},
		{"attention.head_count", &p.heads, mostCount, false},
		{"attention.head_count_kv", &p.kvHeads, mostCount, true},
		{"context_length", &p.context, mostTokens, false},
		{"attention.key_length", &p.dim, mostCount, true},
		{"expert_count", &p.count, mostCount, true},
		{"expert_used_count", &p.used, mostCount, true},
		{"expert_feed_forward_length", &p.expertInner, mostCount, true},
		{"rope.scaling.original_context_length", &p.original, mostTokens, true},
	} {
		key := name + "." + n.key
		if n.optional && !kv.Has(key) {
			continue
		}
		v, err := kv.Int(key, 0, n.most)
		if err != nil {
			return nil, err
		}
		*n.to = int(v)
	}
	if err := p.readReals(kv); err != nil {
		return nil, err
	}
	return p, p.settle(f)
}

// readReals reads the floating-point numbers and what scaling they belong to.
func (p *params) readReals(kv *Metadata) error {
	var err error
	if p.eps, err = kv.Float(p.arch + ".attention.layer_norm_rms_epsilon"); err != nil {
		return err
	}
	p.theta = 10000
	if key := p.arch + ".rope.freq_base"; kv.Has(key) {
		if p.theta, err = kv.Float(key); err != nil {
			return err
		}
	}
	if key := p.arch + ".rope.scaling.type"; kv.Has(key) {
		if p.ropeType, err = kv.String(key); err != nil {
			return err
		}
		if p.ropeType == "none" {
			p.ropeType = ""
		}
	}
	if key := p.arch + ".rope.scaling.factor"; kv.Has(key) {
		if p.factor, err = kv.Float(key); err != nil {
			return err
		}
	}
	for _, x := range []float64{p.eps, p.theta, p.factor} {
		if !(x > 0) || math.IsInf(x, 0) {
			return safeio.Corruptf("the metadata state the number %g where a positive one is expected", x)
		}
	}
	return nil
}

// settle fills in what the metadata leave open and checks that the numbers fit each other and the tensors.
func (p *params) settle(f *File) error {
	p.dimStated = p.dim > 0
	if p.kvHeads == 0 {
		p.kvHeads = p.heads
	}
	switch {
	case p.blocks == 0 || p.hidden == 0 || p.heads == 0:
		return safeio.Corruptf("the metadata state %d blocks of width %d with %d heads", p.blocks, p.hidden, p.heads)
	case p.heads%p.kvHeads != 0:
		return safeio.Corruptf("%d heads do not divide into %d key-value heads", p.heads, p.kvHeads)
	case !p.dimStated && p.hidden%p.heads != 0:
		return safeio.Corruptf("a width of %d does not divide into %d heads", p.hidden, p.heads)
	case p.experts && (p.count == 0 || p.used == 0 || p.used > p.count):
		return safeio.Corruptf("a mixture of experts states %d experts, %d of them used", p.count, p.used)
	case !p.experts && p.count > 0:
		return safeio.Unsupportedf("architecture %q with %d experts", p.arch, p.count)
	case p.ropeType != "" && p.ropeType != "linear" && p.ropeType != "yarn":
		return safeio.Unsupportedf("rope scaling %q; supported: linear, yarn, llama3", p.ropeType)
	}
	if !p.dimStated {
		p.dim = p.hidden / p.heads
	}
	if key := p.arch + ".attention.value_length"; f.KV.Has(key) {
		if n, err := f.KV.Int(key, 0, mostCount); err != nil || int(n) != p.dim {
			return safeio.Unsupportedf("keys of %d channels with values of %d", p.dim, n)
		}
	}
	embed, ok := f.Lookup(nameEmbed)
	if !ok {
		return safeio.Corruptf("the file has no tensor %q", nameEmbed)
	}
	if embed.NE[0] != int64(p.hidden) || embed.NE[1] < 1 || embed.NE[1] > mostVocab {
		return safeio.Corruptf("the embedding has %d rows of %d, the metadata state a width of %d", embed.NE[1], embed.NE[0], p.hidden)
	}
	p.vocab = int(embed.NE[1])
	_, head := f.Lookup(nameHead)
	_, bias := f.Lookup(block(0, stems[arch.RoleQ]+".bias"))
	_, mlp := f.Lookup(block(0, stems[arch.RoleGate]+".bias"))
	p.tied, p.attnBiases, p.mlpBiases = !head, bias, mlp
	if p.experts && p.expertInner == 0 {
		if t, ok := f.Lookup(block(0, stems[arch.RoleGate]+expertSuffix+".weight")); ok {
			p.expertInner = int(min(t.NE[1], mostCount))
		}
	}
	return nil
}
