package tensorboard

import (
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the masked CRC-32C of TFRecord. The mask keeps the checksum of data
// that hold checksums themselves from being weak.
func Checksum(data []byte) uint32 {
	c := crc32.Checksum(data, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// appendRecord frames data.
func appendRecord(to, data []byte) []byte {
	start := len(to)
	to = binary.LittleEndian.AppendUint64(to, uint64(len(data)))
	to = binary.LittleEndian.AppendUint32(to, Checksum(to[start:]))
	to = append(to, data...)
	return binary.LittleEndian.AppendUint32(to, Checksum(data))
}
