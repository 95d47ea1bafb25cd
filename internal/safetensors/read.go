package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"
)

// File is an open safetensors file. Reads may be concurrent.
type File struct {
	r        io.ReaderAt
	close    func() error
	prefix   []byte // the header with its length
	entries  []Entry
	byName   map[string]int
	metadata map[string]string
}

// Open opens the file at path and checks its header. Errors name the path.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	var file *File
	if err == nil {
		file, err = NewFile(f, info.Size())
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	file.close = f.Close
	return file, nil
}

// NewFile checks the header of a file of size bytes that r reads.
func NewFile(r io.ReaderAt, size int64) (*File, error) {
	var length [8]byte
	if size < 8 {
		return nil, fmt.Errorf("safetensors: truncated: %d bytes are no header", size)
	}
	if _, err := readFull(r, length[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader {
		return nil, fmt.Errorf("safetensors: header length is %d, more than the %d the format allows", n, maxHeader)
	}
	if int64(n) > size-8 {
		return nil, fmt.Errorf("safetensors: truncated: the header has %d bytes, the file %d", n, size)
	}
	f := &File{r: r, prefix: make([]byte, 8+n), byName: map[string]int{}}
	if _, err := readFull(r, f.prefix, 0); err != nil {
		return nil, err
	}
	if err := f.parse(f.prefix[8:]); err != nil {
		return nil, fmt.Errorf("safetensors: header: %w", err)
	}
	return f, f.place(size)
}

// Entries lists the tensors in the order of their bytes. The caller must not
// change it.
func (f *File) Entries() []Entry { return f.entries }

// Metadata is the header's free-form part; nil without one.
func (f *File) Metadata() map[string]string { return f.metadata }

// Header is the start of the file up to the data, as it stands on disk.
func (f *File) Header() []byte { return f.prefix }

// Lookup finds a tensor by name.
func (f *File) Lookup(name string) (Entry, bool) {
	i, ok := f.byName[name]
	if !ok {
		return Entry{}, false
	}
	return f.entries[i], true
}

// Read fills dst with the bytes of a tensor; the lengths must agree.
func (f *File) Read(name string, dst []byte) error {
	e, ok := f.Lookup(name)
	if !ok {
		return fmt.Errorf("safetensors: no tensor is named %s", name)
	}
	if int64(len(dst)) != e.Bytes {
		return fmt.Errorf("safetensors: %s: has %d bytes, not %d", name, e.Bytes, len(dst))
	}
	_, err := readFull(f.r, dst, e.Offset)
	return err
}

// Section reads the bytes of e as a stream.
func (f *File) Section(e Entry) *io.SectionReader { return io.NewSectionReader(f.r, e.Offset, e.Bytes) }

// Close closes the file if [Open] opened it.
func (f *File) Close() error {
	if f.close == nil {
		return nil
	}
	return f.close()
}

// readFull is ReadAt without the freedom to return io.EOF after all bytes.
func readFull(r io.ReaderAt, dst []byte, at int64) (int, error) {
	n, err := r.ReadAt(dst, at)
	if n == len(dst) {
		return n, nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, fmt.Errorf("safetensors: %d bytes at %d: %w", len(dst), at, err)
}

// place checks that the tensors cover the data, and turns offsets in the data
// into offsets in the file.
func (f *File) place(size int64) error {
	data := size - int64(len(f.prefix))
	slices.SortStableFunc(f.entries, func(a, b Entry) int {
		// An empty tensor comes before the one that starts where it stands.
		if a.Offset != b.Offset {
			return cmp.Compare(a.Offset, b.Offset)
		}
		return cmp.Compare(a.Bytes, b.Bytes)
	})
	var end int64
	for i := range f.entries {
		e := &f.entries[i]
		switch {
		case e.Offset < end:
			return fmt.Errorf("safetensors: %s: starts at %d, inside the tensor before it, which ends at %d", e.Name, e.Offset, end)
		case e.Offset > end:
			return fmt.Errorf("safetensors: %s: starts at %d, %d bytes after the tensor before it", e.Name, e.Offset, e.Offset-end)
		case e.Bytes > data-end:
			return fmt.Errorf("safetensors: truncated: %s ends at %d, the data at %d", e.Name, e.Offset+e.Bytes, data)
		}
		end += e.Bytes
		e.Offset += int64(len(f.prefix))
		f.byName[e.Name] = i
	}
	if end != data {
		return fmt.Errorf("safetensors: %d bytes after the last tensor belong to none", data-end)
	}
	return nil
}

// parse reads the header token by token: encoding/json alone would take the
// second of two equal names, and "SHAPE" for "shape".
func (f *File) parse(header []byte) error {
	if !utf8.Valid(header) {
		return errors.New("not UTF-8")
	}
	if len(header) == 0 || header[0] != '{' {
		return errors.New("does not begin with {")
	}
	d := json.NewDecoder(bytes.NewReader(header))
	d.UseNumber()
	err := object(d, func(name string) error {
		if name == metadataKey {
			return f.parseMetadata(d)
		}
		if !validName(name) {
			return fmt.Errorf("%q cannot be the name of a tensor", name)
		}
		e, err := parseEntry(d)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		e.Name = name
		f.entries = append(f.entries, e)
		return nil
	})
	if err != nil {
		return err
	}
	if rest := header[d.InputOffset():]; len(bytes.TrimRight(rest, " ")) > 0 {
		return fmt.Errorf("goes on after its end: %.20q", rest)
	}
	return nil
}

func (f *File) parseMetadata(d *json.Decoder) error {
	f.metadata = map[string]string{}
	return object(d, func(key string) error {
		token, err := d.Token()
		if err != nil {
			return err
		}
		value, ok := token.(string)
		if !ok {
			return fmt.Errorf("%s: %q is not a string", metadataKey, key)
		}
		f.metadata[key] = value
		return nil
	})
}

func parseEntry(d *json.Decoder) (Entry, error) {
	var e Entry
	var offsets []int64
	seen := 0
	err := object(d, func(key string) error {
		seen++
		switch key {
		case "dtype":
			token, err := d.Token()
			if err != nil {
				return err
			}
			for dtype, name := range dtypeNames {
				if token == name {
					e.DType = dtype
					return nil
				}
			}
			return fmt.Errorf("dtype %q is not one this reader knows", fmt.Sprint(token))
		case "shape":
			dims, err := integers(d)
			e.Shape = make([]int, len(dims))
			for i, dim := range dims {
				e.Shape[i] = int(dim)
				if int64(e.Shape[i]) != dim {
					return fmt.Errorf("dimension %d is too large", dim)
				}
			}
			return err
		case "data_offsets":
			var err error
			offsets, err = integers(d)
			return err
		}
		return fmt.Errorf("unknown key %q", key)
	})
	switch {
	case err != nil:
		return Entry{}, err
	case seen != 3 || len(offsets) != 2:
		return Entry{}, errors.New("needs dtype, shape and two data_offsets")
	case offsets[0] > offsets[1]:
		return Entry{}, fmt.Errorf("ends at %d, before its start at %d", offsets[1], offsets[0])
	}
	e.Offset, e.Bytes = offsets[0], offsets[1]-offsets[0]
	if size, ok := byteSize(e.DType, e.Shape); !ok || size != e.Bytes {
		return Entry{}, fmt.Errorf("%v%v does not have %d bytes", e.DType, e.Shape, e.Bytes)
	}
	return e, nil
}

// object reads a JSON object and calls value after each key to read its value.
func object(d *json.Decoder, value func(key string) error) error {
	if err := delimiter(d, '{'); err != nil {
		return err
	}
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return err
		}
		key, ok := token.(string)
		if !ok {
			return fmt.Errorf("%v is not a key", token)
		}
		if seen[key] {
			return fmt.Errorf("%q occurs twice", key)
		}
		seen[key] = true
		if err := value(key); err != nil {
			return err
		}
	}
	return delimiter(d, '}')
}

// integers reads a JSON array of integers that are 0 or more.
func integers(d *json.Decoder) ([]int64, error) {
	if err := delimiter(d, '['); err != nil {
		return nil, err
	}
	var list []int64
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		number, ok := token.(json.Number)
		if !ok {
			return nil, fmt.Errorf("%q is not a number", fmt.Sprint(token))
		}
		i, err := number.Int64()
		if err != nil || strings.HasPrefix(number.String(), "-") {
			return nil, fmt.Errorf("%s is not a whole number that is 0 or more", number)
		}
		list = append(list, i)
	}
	return list, delimiter(d, ']')
}

func delimiter(d *json.Decoder, want json.Delim) error {
	token, err := d.Token()
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	if err == nil && token != want {
		err = fmt.Errorf("%q where %v should be", fmt.Sprint(token), want)
	}
	return err
}
