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
// # Unicode
//
// The reference libraries carry their own Unicode tables: Oniguruma's version 16 for \p{…} and \s, an older one for
// normalization. Ids of recently assigned characters depend on that, and they must not depend on the Go version that
// built this program, so the category table is embedded (categories.bin) and the normalizers correct x/text where it
// knows more characters than the reference.
//
// Text that is not valid UTF-8 is read with U+FFFD for every maximal invalid part, as all the reference readers do.
package tokenizer
