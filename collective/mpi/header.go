//go:build mpi

package mpi

import (
	"encoding/binary"
	"fmt"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/internal/call"
	"github.com/lethe-go/lethe/device"
)

// A header message is a call.Header of headerBytes, and behind it what the sender has for
// the receiver if that is at most inlineBytes: few bytes travel once. Both together fit
// into what implementations of MPI send eagerly through shared memory, 4 KiB.
const (
	headerBytes   = 256
	inlineBytes   = 3584
	headerVersion = 1
	nodeAt        = 76
)

// encodeHeader writes h to headerBytes bytes. A long name of a node loses its beginning.
func encodeHeader(b []byte, h *call.Header) {
	b[0], b[1], b[2], b[3] = byte(h.Kind), byte(h.DType), byte(h.Rank), headerVersion
	binary.LittleEndian.PutUint32(b[4:], uint32(h.Root))
	for i, v := range [...]int{h.Sequence, h.Sends, h.Expects} {
		binary.LittleEndian.PutUint64(b[8+8*i:], uint64(v))
	}
	for i, v := range h.Dims {
		binary.LittleEndian.PutUint64(b[32+8*i:], uint64(v))
	}
	node := h.Node
	if n := len(node) - (headerBytes - nodeAt); n > 0 {
		node = node[n:]
	}
	binary.LittleEndian.PutUint32(b[nodeAt-4:], uint32(copy(b[nodeAt:headerBytes], node)))
}

// decodeHeader reads a header without its node, which nodeOf reads: only errors need it.
func decodeHeader(b []byte) (h call.Header, err error) {
	h.Kind, h.DType, h.Rank = collective.Kind(b[0]), device.DType(b[1]), int8(b[2])
	if b[3] != headerVersion || h.Kind >= collective.Kinds || h.Rank < 0 || h.Rank > device.MaxRank {
		return h, fmt.Errorf("a header of another version or program: % x", b[:4])
	}
	h.Root = int(int32(binary.LittleEndian.Uint32(b[4:])))
	for i, v := range [...]*int{&h.Sequence, &h.Sends, &h.Expects} {
		*v = int(binary.LittleEndian.Uint64(b[8+8*i:]))
	}
	for i := range h.Dims {
		h.Dims[i] = int(binary.LittleEndian.Uint64(b[32+8*i:]))
	}
	return h, nil
}

func nodeOf(b []byte) string {
	n := min(int(binary.LittleEndian.Uint32(b[nodeAt-4:])), headerBytes-nodeAt)
	return string(b[nodeAt : nodeAt+n])
}
