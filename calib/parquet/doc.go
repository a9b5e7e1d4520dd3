// Package parquet reads one column of text, of token ids or of conversations from a Parquet file that may be hostile.
//
// The values are decoded by Arrow Go, which trusts what a file declares: sizes of tens of gigabytes from a file of two
// kilobytes, panics in worker goroutines, loops that never end. Nothing therefore reaches Arrow that this package has
// not proven first:
//
//   - The footer is walked here, not by Arrow: every length against the bytes left, the schema tree against its own
//     counts, every column chunk against the file ([Open]).
//   - Page headers are read here, and pages are decompressed here to exactly the size they declare ([Reader]).
//   - The content of a page is checked before Arrow sees it: levels within their maxima and complete, dictionary
//     indices inside of the dictionary, lengths inside of the page.
//
// Arrow receives finished pages through its PageReader interface and turns levels and values into slices, in the
// caller's goroutine and under the only recover of the project: a panic that gets through all of the above is a
// corrupt file, with the row group and the column named.
//
// Left out, and refused by name: encrypted files, external column chunks, LZO and LZ4, bit-packed levels, byte-array
// delta encoding (Arrow 17 decodes its second page wrongly), lists of lists.
package parquet
