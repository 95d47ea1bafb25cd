// Package eventtest reads event files in tests. It shares no code with what writes
// them and takes protocol buffers apart by hand.
package eventtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
)

// Event is what a record says.
type Event struct {
	WallTime    float64
	Step        int64
	FileVersion string
	// Start is whether a session starts: what older files say of this step and later
	// ones is void.
	Start  bool
	Values []Value
}

// Value is a scalar, or a histogram if it has Limits.
type Value struct {
	Tag                            string
	Scalar                         float32
	Min, Max, Num, Sum, SumSquares float64
	Limits, Counts                 []float64
}

// ErrTorn is the error of a last record that was not written to its end.
var ErrTorn = errors.New("torn record")

// ReadFile returns the events of a file, and ErrTorn with those before a torn one.
func ReadFile(path string) ([]Event, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Read(data)
}

// Read returns the events in the content of a file.
func Read(data []byte) ([]Event, error) {
	var events []Event
	for len(data) > 0 {
		if len(data) < 12 {
			return events, ErrTorn
		}
		n := binary.LittleEndian.Uint64(data)
		if !checked(data[:8], data[8:12]) {
			return events, fmt.Errorf("event %d: the checksum of its length is wrong", len(events))
		}
		data = data[12:]
		if uint64(len(data)) < 4 || n > uint64(len(data))-4 {
			return events, ErrTorn
		}
		if !checked(data[:n], data[n:n+4]) {
			return events, fmt.Errorf("event %d: its checksum is wrong", len(events))
		}
		e, err := parse(data[:n])
		if err != nil {
			return events, fmt.Errorf("event %d: %w", len(events), err)
		}
		events = append(events, e)
		data = data[n+4:]
	}
	return events, nil
}

func checked(data, sum []byte) bool {
	masked := binary.LittleEndian.Uint32(sum) - 0xa282ead8
	return crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) == masked>>17|masked<<15
}

func parse(data []byte) (e Event, err error) {
	err = fields(data, func(field uint64, number uint64, text []byte) error {
		switch field {
		case 1:
			e.WallTime = math.Float64frombits(number)
		case 2:
			e.Step = int64(number)
		case 3:
			e.FileVersion = string(text)
		case 5:
			return fields(text, func(field, _ uint64, text []byte) error {
				if field != 1 {
					return nil
				}
				v, err := parseValue(text)
				e.Values = append(e.Values, v)
				return err
			})
		case 7:
			return fields(text, func(field, number uint64, _ []byte) error {
				e.Start = e.Start || field == 1 && number == 1
				return nil
			})
		}
		return nil
	})
	return e, err
}

func parseValue(data []byte) (v Value, err error) {
	err = fields(data, func(field, number uint64, text []byte) error {
		switch field {
		case 1:
			v.Tag = string(text)
		case 2:
			v.Scalar = math.Float32frombits(uint32(number))
		case 5:
			return v.parseHistogram(text)
		}
		return nil
	})
	return v, err
}

func (v *Value) parseHistogram(data []byte) error {
	return fields(data, func(field, number uint64, text []byte) error {
		switch field {
		case 1, 2, 3, 4, 5:
			*[]*float64{&v.Min, &v.Max, &v.Num, &v.Sum, &v.SumSquares}[field-1] = math.Float64frombits(number)
		case 6, 7:
			if len(text)%8 != 0 {
				return errors.New("a packed list of doubles is torn")
			}
			list := []*[]float64{&v.Limits, &v.Counts}[field-6]
			for ; len(text) > 0; text = text[8:] {
				*list = append(*list, math.Float64frombits(binary.LittleEndian.Uint64(text)))
			}
		}
		return nil
	})
}

// fields calls f for every field of a message, with its number or its bytes.
func fields(data []byte, f func(field, number uint64, text []byte) error) error {
	for len(data) > 0 {
		tag, n := binary.Uvarint(data)
		if n <= 0 {
			return io.ErrUnexpectedEOF
		}
		data = data[n:]
		var number uint64
		var text []byte
		size := 0
		switch tag & 7 {
		case 0:
			if number, size = binary.Uvarint(data); size <= 0 {
				return io.ErrUnexpectedEOF
			}
		case 1:
			if size = 8; len(data) < size {
				return io.ErrUnexpectedEOF
			}
			number = binary.LittleEndian.Uint64(data)
		case 5:
			if size = 4; len(data) < size {
				return io.ErrUnexpectedEOF
			}
			number = uint64(binary.LittleEndian.Uint32(data))
		case 2:
			length, n := binary.Uvarint(data)
			if n <= 0 || length > uint64(len(data)-n) {
				return io.ErrUnexpectedEOF
			}
			size = n + int(length)
			text = data[n:size]
		default:
			return fmt.Errorf("wire type %d", tag&7)
		}
		data = data[size:]
		if err := f(tag>>3, number, text); err != nil {
			return err
		}
	}
	return nil
}
