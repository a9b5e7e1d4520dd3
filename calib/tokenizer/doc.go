// Package tokenizer turns text into the token ids that a model was trained on: exactly those, or it refuses by name.
//
// Two kinds of files are read. A tokenizer.json of the tokenizers library with a BPE model (byte-level as in GPT-2,
// Llama 3 and Qwen, or on characters with byte fallback as in Llama 2, Mistral and Gemma), and the tokenizer.model of
// SentencePiece with model type BPE. Whatever such a file asks for and this package does not reproduce bit for bit
// (another model type, an unknown normalizer, a split pattern outside the closed list, dropout) is an error of class
// safeio.ErrUnsupported that names the component. A wrong id never surfaces as an error later: it only makes the
// calibration quietly worse, so there is no "close enough".
//
// # How text becomes ids
//
//	text ─ added tokens (raw) ─ normalizer ─ added tokens (normalized) ─ pre-tokenizer steps ─ words ─ BPE ─ ids
//	                                                                     └ template: BOS … EOS around everything
//
// Split patterns are regular expressions in the files. They are never compiled: patterns from files have been used to
// stall tokenizers. A pattern is cut at its top-level bars and every alternative has to be one of those listed in
// alternatives.go, each with a scanner written by hand that runs in linear time. The table says what is understood;
// anything else is refused.
//
// Merging is a linear scan for short words and a heap for long ones, O(n log n); nothing recurses on text. Words are
// remembered in a cache of fixed size per concurrent caller, without locks and without pointers.
//
// # What is read
//
// From a tokenizer.json: BPE with merges in either spelling, unk_token, fuse_unk, byte_fallback and ignore_merges; added
// tokens with all their flags; the normalizers NFC, NFD, NFKC, NFKD, Prepend, Replace (literal), Strip; the
// pre-tokenizers ByteLevel, Split, Digits, Punctuation, Metaspace, Whitespace, WhitespaceSplit; the post-processors
// TemplateProcessing, ByteLevel, BertProcessing, RobertaProcessing; the decoders ByteLevel, ByteFallback, Fuse, Strip,
// Replace, Metaspace; Sequences of each. From a tokenizer.model: pieces of all types, byte fallback, the flags of the
// normalizer and its precompiled character map.
//
// Refused by name, for example: the models Unigram, WordPiece and WordLevel, dropout, subword prefixes and suffixes,
// Lowercase, StripAccents, BertNormalizer, Precompiled in a tokenizer.json, Replace with a regular expression, unknown
// split patterns, unknown fields of any component, SentencePiece models of the other types, files of tiktoken ranks.
//
// The reference is tokenizers 0.23.3 and sentencepiece 0.2.3. Where the library's behavior looks odd (a Prepend acts on
// every stretch between added tokens; an unknown character may be emitted behind the bytes of a later one) it is kept.
//
// # Limits
//
// Files may be damaged or hostile: no input makes a reader panic, and what it allocates is bounded by the size of the
// file. Encoding takes time proportional to n log n and memory proportional to n for a text of n bytes, with a factor
// that the file can raise only within the limits in this package (added tokens of 256 bytes, replacements that lengthen
// text at most 64 times, 32 components). A text is a document: up to 256 MiB.
//
// # Unicode
//
// The reference libraries carry their own Unicode tables: Oniguruma's version 16 for \p{…} and \s, an older one for
// normalization. Ids of recently assigned characters depend on that, and they must not depend on the Go version that
// built this program, so the category table is embedded (categories.bin) and the normalizers correct x/text where it
// knows more characters than the reference.
//
// Text that is not valid UTF-8 is read with U+FFFD for every maximal invalid part, as all the reference readers do.
package tokenizer
