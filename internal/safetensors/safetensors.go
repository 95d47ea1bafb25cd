// Package safetensors reads and writes files in Hugging Face's safetensors
// format: an 8-byte little-endian header length, a JSON header, then the data.
//
// The reader is strict, for the files come from crashes and from strangers: the
// header must fit the file, every tensor's bytes must be those its dtype and
// shape ask for, and together the tensors must cover the data without a hole or
// an overlap. A file that opens can be read without further checks.
//
// Data is little-endian and is not converted.
package safetensors

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lethe-go/lethe/device"
)

// Tensor is a tensor to write. Data is only read.
type Tensor struct {
	Name  string
	DType device.DType
	Shape []int
	Data  []byte
}

// Entry describes one tensor of a file. The bytes of the tensor are
// [Offset, Offset+Bytes) of the file.
type Entry struct {
	Name   string
	DType  device.DType
	Shape  []int
	Offset int64
	Bytes  int64
}

// maxHeader is the limit of the reference implementation.
const maxHeader = 100_000_000

// metadataKey is the header key that is not a tensor.
const metadataKey = "__metadata__"

var dtypeNames = map[device.DType]string{
	device.Float32:  "F32",
	device.Float64:  "F64",
	device.BFloat16: "BF16",
	device.Float16:  "F16",
	device.Int32:    "I32",
	device.Int64:    "I64",
	device.Uint8:    "U8",
}

// Write writes a file of the given tensors and returns where each one is, in
// the order of the file: larger dtypes first, so that all are aligned, and
// otherwise the order given. The bytes go from Data to w without a copy.
func Write(w io.Writer, tensors []Tensor, metadata map[string]string) ([]Entry, error) {
	ordered := slices.Clone(tensors)
	slices.SortStableFunc(ordered, func(a, b Tensor) int { return b.DType.Size() - a.DType.Size() })
	header, entries, err := layout(ordered, metadata)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(header); err != nil {
		return nil, err
	}
	for _, t := range ordered {
		if _, err := w.Write(t.Data); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// layout makes the header with its length, padded with spaces to 8 bytes.
func layout(tensors []Tensor, metadata map[string]string) ([]byte, []Entry, error) {
	header := append(make([]byte, 8), '{')
	if len(metadata) > 0 {
		text, err := json.Marshal(metadata) // sorts the keys
		if err != nil {
			return nil, nil, err
		}
		header = append(append(header, `"`+metadataKey+`":`...), text...)
	}
	entries := make([]Entry, 0, len(tensors))
	names := make(map[string]bool, len(tensors))
	var end int64
	for _, t := range tensors {
		if err := check(t, names); err != nil {
			return nil, nil, err
		}
		names[t.Name] = true
		if len(header) > 9 {
			header = append(header, ',')
		}
		name, err := json.Marshal(t.Name)
		if err != nil {
			return nil, nil, err
		}
		shape, err := json.Marshal(append([]int{}, t.Shape...)) // a scalar is [], not null
		if err != nil {
			return nil, nil, err
		}
		size := int64(len(t.Data))
		header = fmt.Appendf(header, `%s:{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}`, name, dtypeNames[t.DType], shape, end, end+size)
		entries = append(entries, Entry{t.Name, t.DType, slices.Clone(t.Shape), end, size})
		end += size
	}
	header = append(header, '}')
	for len(header)%8 != 0 {
		header = append(header, ' ')
	}
	if len(header)-8 > maxHeader {
		return nil, nil, fmt.Errorf("safetensors: header of %d tensors is too long: %d bytes of %d", len(tensors), len(header)-8, maxHeader)
	}
	binary.LittleEndian.PutUint64(header, uint64(len(header)-8))
	for i := range entries {
		entries[i].Offset += int64(len(header))
	}
	return header, entries, nil
}

func check(t Tensor, names map[string]bool) error {
	if t.Name == metadataKey || !validName(t.Name) {
		return fmt.Errorf("safetensors: %q cannot be the name of a tensor", t.Name)
	}
	if names[t.Name] {
		return fmt.Errorf("safetensors: two tensors are named %s", t.Name)
	}
	if dtypeNames[t.DType] == "" {
		return fmt.Errorf("safetensors: %s: dtype %v cannot be written", t.Name, t.DType)
	}
	size, ok := byteSize(t.DType, t.Shape)
	if !ok || size != int64(len(t.Data)) {
		return fmt.Errorf("safetensors: %s: %v%v does not have %d bytes", t.Name, t.DType, t.Shape, len(t.Data))
	}
	return nil
}

// validName refuses what would garble a message.
func validName(name string) bool {
	return name != "" && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}

// byteSize is the size of a tensor; false if a dimension is negative or the
// size does not fit int64.
func byteSize(dtype device.DType, shape []int) (int64, bool) {
	size, empty := int64(dtype.Size()), false
	for _, d := range shape {
		if d < 0 {
			return 0, false
		}
		empty = empty || d == 0
	}
	if empty {
		return 0, true
	}
	for _, d := range shape {
		if size > (1<<63-1)/int64(d) {
			return 0, false
		}
		size *= int64(d)
	}
	return size, true
}
