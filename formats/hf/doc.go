// Package hf reads checkpoints as the Hugging Face libraries lay them out: a directory with config.json, safetensors
// files (one, or shards with an index) and the files a model needs besides its weights. It knows the Hub's cache
// directories, where files are links into a blob store, and tells what quantized a checkpoint.
//
// A checkpoint is read the same way by everybody or not at all: the index and the files must agree both ways, a shard
// set must be complete, and where two loaders would choose different files (a single file next to an index that does
// not name it) opening fails. File names from an index are plain base names below one os.Root. Pickle files are never
// opened.
package hf
