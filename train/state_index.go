package train

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

const (
	statePrefix = "step-"
	indexFile   = "state.json"

	// stateVersion is the version of the format that is written. A change that
	// an older reader would misread counts it up.
	stateVersion = 1
)

// tensorFile is the name of the file that a process writes.
func tensorFile(rank int) string { return fmt.Sprintf("tensors-%05d.safetensors", rank) }

func stateName(step int) string { return fmt.Sprintf("%s%08d", statePrefix, step) }

func parseStateName(name string) (step int, ok bool) {
	step, err := strconv.Atoi(strings.TrimPrefix(name, statePrefix))
	return step, err == nil && step >= 0 && name == stateName(step)
}

func isStateName(name string) bool {
	_, ok := parseStateName(name)
	return ok
}

// stateIndex is the content of state.json. With the checksum that follows it
// in the file it covers every byte of the state: itself, the header of each
// file of tensors, and each tensor.
type stateIndex struct {
	Version int `json:"version"`
	StateMeta
	Files   []indexedFile   `json:"files"`
	Tensors []indexedTensor `json:"tensors"`
}

type indexedFile struct {
	Name         string `json:"name"`
	Bytes        int64  `json:"bytes"`
	HeaderCRC32C string `json:"header_crc32c"` // from the start up to the data
}

type indexedTensor struct {
	Name   string `json:"name"`
	DType  string `json:"dtype"`
	Shape  []int  `json:"shape"`
	File   string `json:"file"`
	Offset int64  `json:"offset"` // in the file
	Bytes  int64  `json:"bytes"`
	CRC32C string `json:"crc32c"`
	// Of a part: the shape of the whole, and where the part of shape Shape begins in it.
	Global []int `json:"global,omitempty"`
	Start  []int `json:"start,omitempty"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is CRC-32C: several GB/s where SHA-256 has one, and the enemy is a
// failing disk, not a forger.
func checksum(data []byte) string { return formatCRC(crc32.Checksum(data, castagnoli)) }

func formatCRC(sum uint32) string { return fmt.Sprintf("%08x", sum) }

// The checksum is the last member of the object, in exactly this form, so that
// it can be over the bytes of the file instead of over some normal form.
const (
	sumBefore = ",\n  \"sha256\": \""
	sumAfter  = "\"\n}\n"
	sumLength = len(sumBefore) + 2*sha256.Size + len(sumAfter)
)

func (x stateIndex) encode() ([]byte, error) {
	if len(x.Loader) == 0 {
		x.Loader = json.RawMessage("null")
	}
	text, err := json.MarshalIndent(x, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("index: %w", err)
	}
	return sealIndex(bytes.TrimSuffix(text, []byte("\n}"))), nil
}

// sealIndex ends an index that lacks its closing brace with its checksum.
func sealIndex(body []byte) []byte {
	return fmt.Appendf(body, "%s%x%s", sumBefore, sha256.Sum256(body), sumAfter)
}

var errNoChecksum = errors.New("truncated: it does not end with a checksum")

func decodeIndex(text []byte) (stateIndex, error) {
	body, sum, ok := cutChecksum(text)
	if !ok {
		return stateIndex{}, errNoChecksum
	}
	if got := sha256.Sum256(body); hex.EncodeToString(got[:]) != sum {
		return stateIndex{}, errors.New("corrupt: its checksum does not match")
	}
	var x stateIndex
	if err := json.Unmarshal(append(bytes.Clone(body), "\n}"...), &x); err != nil {
		return stateIndex{}, err
	}
	if x.Version != stateVersion {
		return stateIndex{}, fmt.Errorf("format version is %d, this program reads %d", x.Version, stateVersion)
	}
	return x, nil
}

func cutChecksum(text []byte) (body []byte, sum string, ok bool) {
	if len(text) < sumLength {
		return nil, "", false
	}
	body, tail := text[:len(text)-sumLength], string(text[len(text)-sumLength:])
	tail, before := strings.CutPrefix(tail, sumBefore)
	tail, after := strings.CutSuffix(tail, sumAfter)
	return body, tail, before && after
}
