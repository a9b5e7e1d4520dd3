package formats

import (
	"encoding/hex"
	"fmt"
	"hash/crc32"
)

// checksum tells whether bytes on disk are still those that were written: CRC-32 and CRC-32C side by side. Their
// polynomials have no factor in common, so together they are one CRC of 64 bits. It guards against disks and file systems,
// not against people, and both parts run at the speed of memory, where a cryptographic sum would cost more than most of
// what is summed. Files as a whole are identified by SHA-256.
type checksum struct{ ieee, castagnoli uint32 }

// Write implements io.Writer.
func (c *checksum) Write(p []byte) (int, error) {
	const piece = 1 << 14 // stays in the first-level cache for the second pass
	for rest := p; len(rest) > 0; {
		n := min(len(rest), piece)
		c.ieee = crc32.Update(c.ieee, crc32.IEEETable, rest[:n])
		c.castagnoli = crc32.Update(c.castagnoli, castagnoli, rest[:n])
		rest = rest[n:]
	}
	return len(p), nil
}

// String is what the journal holds.
func (c *checksum) String() string { return fmt.Sprintf("%08x%08x", c.ieee, c.castagnoli) }

func isSum(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 8
}
