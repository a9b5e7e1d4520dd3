package gguf

import (
	"encoding/binary"
	"math"

	"github.com/llmquant/quantize/formats/safeio"
)

// readSentencePiece reads the pieces of a tokenizer.model (sentencepiece_model.proto: field 1 of the message, each piece
// with text 1, score 2 and type 3). Pieces beyond the embedding are dropped, as in the reference.
func readSentencePiece(model []byte, vocab int) (*TokenizerInfo, error) {
	t := &TokenizerInfo{Model: ModelSentencePiece, Pre: "default"}
	err := protoFields(model, func(field int, _ uint64, data []byte) error {
		if field != 1 || data == nil {
			return nil
		}
		piece := Token{Type: TokenNormal}
		err := protoFields(data, func(field int, number uint64, data []byte) error {
			switch field {
			case 1:
				piece.Text = string(data)
			case 2:
				piece.Score = math.Float32frombits(uint32(number))
			case 3:
				if number != uint64(TokenUser) { // llama.cpp has these as normal pieces
					piece.Type = TokenType(number)
				}
			}
			return nil
		})
		if err == nil && (piece.Type < TokenNormal || piece.Type > TokenByte) {
			err = safeio.Corruptf("piece %d has the unknown type %d", len(t.Tokens), piece.Type)
		}
		t.Tokens = append(t.Tokens, piece)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(t.Tokens) == 0 {
		return nil, safeio.Corruptf("no pieces: not a SentencePiece model")
	}
	t.Tokens = t.Tokens[:min(len(t.Tokens), vocab)]
	t.pad(vocab, -10000)
	return t, nil
}

// protoFields calls f for each field of a protocol buffer message: with the number of a varint or fixed field, or with
// the bytes of a length-delimited one (never nil then).
func protoFields(b []byte, f func(field int, number uint64, data []byte) error) error {
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 || tag>>3 == 0 || tag>>3 > 1<<29 {
			return safeio.Corruptf("a field has no valid tag")
		}
		b = b[n:]
		var number uint64
		var data []byte
		size := 0
		switch tag & 7 {
		case 0:
			if number, size = binary.Uvarint(b); size <= 0 {
				return safeio.Corruptf("a number is cut off")
			}
		case 1:
			if size = 8; len(b) >= size {
				number = binary.LittleEndian.Uint64(b)
			}
		case 5:
			if size = 4; len(b) >= size {
				number = uint64(binary.LittleEndian.Uint32(b))
			}
		case 2:
			length, n := binary.Uvarint(b)
			if n <= 0 || length > uint64(len(b)-n) {
				return safeio.Corruptf("a field of %d bytes is cut off", length)
			}
			data = b[n : n+int(length) : n+int(length)]
			size = n + int(length)
		default:
			return safeio.Corruptf("a field has the unknown wire type %d", tag&7)
		}
		if size > len(b) {
			return safeio.Corruptf("a field is cut off")
		}
		b = b[size:]
		if err := f(int(tag>>3), number, data); err != nil {
			return err
		}
	}
	return nil
}

// addTokens overlays added_tokens.json and tokenizer_config.json on a SentencePiece vocabulary.
func (t *TokenizerInfo) addTokens(side map[string][]byte, vocab int) error {
	old, err := sideJSON(side, "added_tokens.json")
	if err != nil {
		return err
	}
	for text, v := range old.Members() {
		id, err := v.Int()
		if err != nil || id < 0 {
			return &safeio.Error{Op: "convert: added_tokens.json", Off: -1, Err: safeio.Corruptf("the token %q has no valid id", text)}
		}
		if id < int64(vocab) {
			t.Tokens[id] = Token{text, -1000, TokenUser}
		}
	}
	config, err := sideJSON(side, "tokenizer_config.json")
	if err != nil {
		return err
	}
	return eachAdded(config, func(id int64, v safeio.Value) error {
		content, err := safeio.At(v, "content", safeio.Value.Str)
		if err != nil {
			return err
		}
		special, err := safeio.Or(v, "special", false, safeio.Value.Bool)
		if err == nil && id < int64(vocab) {
			t.Tokens[id] = added(content, special, -1000)
		}
		return err
	})
}
