package safeio

// Limits bounds what readers accept from a file. No content of a file can raise them; a library user may.
type Limits struct {
	SafetensorsHeader int64 // bytes of a safetensors header, the cap of the reference
	Tensors           int   // tensors of a checkpoint, all shards together
	TensorName        int   // bytes
	Rank              int   // dimensions of a tensor
	ConfigJSON        int64 // bytes of config.json and other small documents
	IndexJSON         int64 // bytes of model.safetensors.index.json
	TokenizerJSON     int64 // bytes of tokenizer.json
	Shards            int   // files of a checkpoint
	SideFiles         int   // files carried over next to the weights
	SideFile          int64 // bytes of one of them
	GGUFString        int64 // bytes, and never more than the file has left
	GGUFArray         int64 // elements, and never more than the file has left
	GGUFKeys          int   // metadata entries
	GGUFTensorName    int   // bytes
	GGUFRank          int
	GGUFDepth         int   // nesting of metadata arrays
	GGUFAlignment     int64 // bytes, at most; at least 8 and a power of two
}

// DefaultLimits returns the limits everything uses unless told otherwise: far above the largest public checkpoints
// (a test generates their headers), far below what would exhaust a machine.
func DefaultLimits() Limits {
	return Limits{
		SafetensorsHeader: 100_000_000,
		Tensors:           2_000_000,
		TensorName:        1024,
		Rank:              8,
		ConfigJSON:        16 << 20,
		IndexJSON:         256 << 20,
		TokenizerJSON:     256 << 20,
		Shards:            100_000,
		SideFiles:         10_000,
		SideFile:          4 << 30,
		GGUFString:        64 << 20,
		GGUFArray:         16 << 20,
		GGUFKeys:          100_000,
		GGUFTensorName:    63,
		GGUFRank:          4,
		GGUFDepth:         16,
		GGUFAlignment:     1 << 20,
	}
}
