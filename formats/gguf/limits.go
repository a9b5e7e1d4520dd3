package gguf

// What a file may declare is bounded by safeio.Limits (keys, tensors, lengths); whatever they say, a length is also
// compared with the bytes left in the file before anything is allocated. The numbers below belong to the format.
const (
	magic           = "GGUF"
	writtenVersion  = 3
	defaultAlign    = 32
	minAlign        = 8
	maxDims         = 4
	maxKeyBytes     = 65_535
	maxShards       = 65_535 // split.count is a u16
	quantizeVersion = 2      // GGML_QNT_VERSION: layout generation of the block formats
)
