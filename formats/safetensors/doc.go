// Package safetensors reads and lays out files of the safetensors format:
//
//	8 bytes   little-endian length n of the header
//	n bytes   JSON: {"__metadata__": {string: string}, name: {"dtype", "shape", "data_offsets": [begin, end]}, …}
//	rest      the tensors' bytes, row-major, little-endian
//
// Everything is checked once, when a file is opened: the header against the file's size, every size against its shape,
// and that the tensors cover the data exactly, in some order, without overlap, holes or a tail. After Open succeeds no
// read can leave the file, and no other reader of the format can see different tensors in it.
//
// Nothing here writes. Plan computes a complete output (headers, offsets, index) for the job of package formats.
package safetensors
