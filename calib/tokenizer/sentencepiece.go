package tokenizer

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math"

	"github.com/llmquant/quantize/formats/safeio"
)

// The kinds of SentencePiece pieces, which are also GGUF's token types.
const (
	TypeNormal      = 1
	TypeUnknown     = 2
	TypeControl     = 3 // never matched in text
	TypeUserDefined = 4 // always matched in text, before anything else
	TypeUnused      = 5
	TypeByte        = 6
)

// maxPiece bounds the length of a piece: that much text is hashed whenever two symbols meet. Known pieces stay below 200.
const maxPiece = 1024

// spPiece is one entry of the vocabulary of a SentencePiece model.
type spPiece struct {
	text  string
	score float32
	kind  int
}

// spModel is what counts of a tokenizer.model file.
type spModel struct {
	pieces       []spPiece
	modelType    uint64 // 1 unigram, 2 BPE
	byteFallback bool
	suffixSpace  bool // treat_whitespace_as_suffix
	bos, eos     int64
	pad, unk     int64
	unkSurface   string
	delimiter    bool // a pretokenization_delimiter is set
	charsmap     []byte
	dummyPrefix  bool
	removeExtra  bool
	escapeSpace  bool
	denormalizer bool
}

// ParseSentencePiece reads a tokenizer.model of SentencePiece with model type BPE. The file has no say in whether BOS
// is put before a text (Open does, with tokenizer_config.json), so Encode adds nothing here.
func ParseSentencePiece(model []byte) (*Tokenizer, error) {
	if limit := safeio.DefaultLimits().TokenizerJSON; int64(len(model)) > limit {
		return nil, parseError(safeio.Limitf("%d bytes are over the limit of %d for this file", len(model), limit))
	}
	if isRanks(model) {
		return nil, parseError(safeio.Unsupportedf("a file of tiktoken ranks (the tokenizer.json of the model is needed)"))
	}
	m, err := readSPModel(model)
	if err != nil {
		return nil, parseError(err)
	}
	t, err := m.build()
	if err != nil {
		return nil, parseError(err)
	}
	return t, nil
}

// isRanks recognizes the other kind of file that goes by the name tokenizer.model: lines of base64, blank, number.
func isRanks(data []byte) bool {
	line, _, _ := bytes.Cut(data[:min(len(data), 4096)], []byte("\n"))
	token, rank, found := bytes.Cut(line, []byte(" "))
	if !found || len(token) == 0 || len(rank) == 0 {
		return false
	}
	_, err := base64.StdEncoding.DecodeString(string(token))
	return err == nil && len(bytes.Trim(rank, "0123456789")) == 0
}

// readSPModel reads the ModelProto message. Fields that do not influence ids are passed over.
func readSPModel(data []byte) (*spModel, error) {
	m := &spModel{
		modelType: 1, bos: 1, eos: 2, pad: -1, unkSurface: " \u2047 ",
		dummyPrefix: true, removeExtra: true, escapeSpace: true, // the defaults of the format
	}
	err := protoFields(data, func(f protoField) error {
		switch f.num {
		case 1:
			return m.readPiece(f)
		case 2:
			return f.message(m.readTrainer)
		case 3:
			return f.message(m.readNormalizer)
		case 5:
			return f.message(func(g protoField) error {
				m.denormalizer = m.denormalizer || g.num == 2 && len(g.bytes) > 0
				return nil
			})
		}
		return nil
	})
	return m, err
}

// readPiece reads one SentencePiece message.
func (m *spModel) readPiece(f protoField) error {
	if len(m.pieces) == maxVocab {
		return safeio.Limitf("more than %d pieces", maxVocab)
	}
	p := spPiece{kind: TypeNormal}
	err := f.message(func(g protoField) (err error) {
		switch g.num {
		case 1:
			p.text, err = g.str()
		case 2:
			p.score, err = g.float()
		case 3:
			var kind uint64
			kind, err = g.uint()
			p.kind = int(min(kind, 100))
		}
		return err
	})
	if err != nil {
		return err
	}
	switch {
	case p.text == "":
		return safeio.Corruptf("piece %d is empty", len(m.pieces))
	case len(p.text) > maxPiece:
		return safeio.Limitf("piece %d is longer than %d bytes", len(m.pieces), maxPiece)
	case p.kind < TypeNormal || p.kind > TypeByte:
		return safeio.Corruptf("piece %d has the unknown type %d", len(m.pieces), p.kind)
	case math.IsNaN(float64(p.score)):
		return safeio.Corruptf("the score of piece %d is not a number", len(m.pieces))
	}
	m.pieces = append(m.pieces, p)
	return nil
}

// readTrainer reads what encoding depends on from the TrainerSpec message.
func (m *spModel) readTrainer(f protoField) (err error) {
	switch f.num {
	case 3:
		m.modelType, err = f.uint()
	case 24:
		m.suffixSpace, err = f.bool()
	case 35:
		m.byteFallback, err = f.bool()
	case 40:
		m.unk, err = f.int()
	case 41:
		m.bos, err = f.int()
	case 42:
		m.eos, err = f.int()
	case 43:
		m.pad, err = f.int()
	case 44:
		m.unkSurface, err = f.str()
	case 53:
		m.delimiter = len(f.bytes) > 0
	}
	return err
}

// readNormalizer does the same for the NormalizerSpec message.
func (m *spModel) readNormalizer(f protoField) (err error) {
	switch f.num {
	case 2:
		m.charsmap = f.bytes
	case 3:
		m.dummyPrefix, err = f.bool()
	case 4:
		m.removeExtra, err = f.bool()
	case 5:
		m.escapeSpace, err = f.bool()
	}
	return err
}

// modelTypes are the names of the model types, for the refusal.
var modelTypes = map[uint64]string{1: "unigram", 3: "word", 4: "char"}

// build checks the model and prepares encoding.
func (m *spModel) build() (*Tokenizer, error) {
	switch {
	case m.modelType != 2:
		return nil, safeio.Unsupportedf("the SentencePiece model type %d %s (only BPE is)", m.modelType, modelTypes[m.modelType])
	case m.suffixSpace:
		return nil, safeio.Unsupportedf("treat_whitespace_as_suffix of SentencePiece")
	case m.denormalizer:
		return nil, safeio.Unsupportedf("a denormalizer of SentencePiece")
	case len(m.pieces) == 0:
		return nil, safeio.Corruptf("the model has no pieces")
	}
	e := &spEngine{model: m, normal: make(map[string]int32, len(m.pieces)), unk: -1}
	for i := range e.bytes {
		e.bytes[i] = -1
	}
	if err := e.addPieces(); err != nil {
		return nil, err
	}
	if len(m.charsmap) > 0 {
		charsmap, err := newCharsmap(m.charsmap)
		if err != nil {
			return nil, err
		}
		e.charsmap = charsmap
	}
	e.cutWords()
	e.pool.New = func() any { return &spState{e: e} }
	return m.tokenizer(e)
}

// tokenizer wraps the engine with its vocabulary and special ids.
func (m *spModel) tokenizer(e *spEngine) (*Tokenizer, error) {
	v := &vocabulary{tokens: make([]string, len(m.pieces)), used: make([]bool, len(m.pieces)), ids: make(map[string]int32, len(m.pieces)), count: len(m.pieces)}
	for i, p := range m.pieces {
		v.tokens[i], v.used[i] = p.text, true
		if id, known := v.ids[p.text]; !known || m.pieces[id].kind == TypeNormal {
			v.ids[p.text] = int32(i) // control and byte pieces win, as in SentencePiece's PieceToId
		}
	}
	t := &Tokenizer{vocab: v, engine: e}
	t.about = m.about(e)
	return t, nil
}

// about describes the model; ids that the trainer section names count only when they exist.
func (m *spModel) about(e *spEngine) about {
	id := func(n int64) int32 {
		if n < 0 || n >= int64(len(m.pieces)) {
			return -1
		}
		return int32(n)
	}
	a := newAbout()
	a.special = [numSpecial]int32{specialBOS: id(m.bos), specialEOS: id(m.eos), specialPAD: id(m.pad), specialUNK: e.unk, specialSEP: -1, specialMASK: -1, specialCLS: -1}
	a.sentencePiece = m
	return a
}

// addPieces fills the look-up tables and checks what SentencePiece checks.
func (e *spEngine) addPieces() error {
	var user []AddedToken
	var texts []string
	reserved := map[string]int32{} // control, unknown and byte pieces: text never becomes one
	for i, p := range e.model.pieces {
		table := reserved
		if p.kind == TypeNormal || p.kind == TypeUserDefined || p.kind == TypeUnused {
			table = e.normal
			e.longest = max(e.longest, len(p.text))
		}
		if _, dup := table[p.text]; dup {
			return safeio.Corruptf("the piece %q occurs twice", clip(p.text))
		}
		table[p.text] = int32(i)
		switch p.kind {
		case TypeUnknown:
			if e.unk >= 0 {
				return safeio.Corruptf("the pieces %d and %d are both the unknown piece", e.unk, i)
			}
			e.unk = int32(i)
		case TypeUserDefined:
			user = append(user, AddedToken{ID: int32(i), Content: p.text})
			texts = append(texts, p.text)
		case TypeUnused:
			e.unused = true
		case TypeByte:
			b, ok := byteToken(p.text)
			if !ok || p.text != fmt.Sprintf("<0x%02X>", b) || !e.model.byteFallback || e.bytes[b] >= 0 {
				return safeio.Corruptf("the byte piece %q is not expected", clip(p.text))
			}
			e.bytes[b] = int32(i)
		}
	}
	if e.unk < 0 {
		return safeio.Corruptf("the model has no unknown piece")
	}
	if e.model.byteFallback {
		for b, id := range e.bytes {
			if id < 0 {
				return safeio.Corruptf("the model has no piece for the byte %#02x", b)
			}
		}
	}
	var err error
	e.user, err = newAddedSet(user, texts)
	return err
}
