// Package calib turns the user's own data into what calibration and evaluation work on: token windows.
//
// Data comes in files (Parquet, JSON Lines, JSON, plain text; also inside gzip or zstd), in directories of them, or from
// the text built into the program. Whatever the file, it yields documents ([Document]): a text, a list of token ids, or
// a conversation. Documents are rendered and tokenized in parallel, in their order ([Source.Tokens]), and joined:
//
//	set, err := calib.Load(ctx, []string{"data.parquet"}, calib.Options{Samples: 128, SeqLen: 512}, tok, vocab)
//	stream, err := calib.ReadStream(ctx, paths, calib.Options{}, tok, vocab) // everything, for evaluation
//
// A [Set] holds the first Samples windows and says exactly what it left out; nothing is dropped without being counted.
// The sha256 of every input is computed on the way, for reports and for the keys of resumable runs.
//
// Every file is taken for hostile: no length in it is believed, lines and documents are bounded, compressed data may not
// grow without end, a pipe or device under a file name is refused instead of waited for. The errors are
// *safeio.Error with the file and the line or row, of class ErrCorrupt, ErrUnsupported or ErrLimit.
package calib
