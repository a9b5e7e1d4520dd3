// Package gguf reads and writes the GGUF container of ggml and llama.cpp, and maps Hugging Face checkpoints onto it
// and back.
//
// A file is a header (typed metadata in file order, tensor descriptions) followed by tensor data, every tensor padded
// to the file's alignment:
//
//	"GGUF" | version u32 | tensors i64 | keys i64 | keys … | tensor infos … | padding | data
//
// Three views of one file, each built on the one before:
//
//   - File: the container as stored. Names, shapes in ggml order (columns first), ggml type ids, raw bytes. Open checks
//     everything once: counts against the bytes left, sizes against overflow and against the file, offsets against the
//     only layout llama.cpp accepts (each tensor directly after the padded end of the one before), names and keys
//     against duplicates, split sets for completeness.
//   - Header: what File and the writer share. Metadata is an ordered list with typed getters; Plan turns a Header into
//     the final bytes and offsets of one file or a split set before any tensor data exists.
//   - HF: a supported decoder family in Hugging Face names and row order. FromHF computes the Header and the row
//     mappings of a conversion; File.HF is the inverse as a tensor.Source, ToHF adds config.json and the tokenizer.
//
// The output of FromHF equals that of llama.cpp's converter byte for byte on the families it knows, except for the
// differences listed in doc comments starting with "Differs from the reference".
//
// Reading follows llama.cpp's limits or is stricter; see limits.go. Version 3 is written, 2 and 3 are read, big-endian
// files and version 1 are refused by name.
package gguf
