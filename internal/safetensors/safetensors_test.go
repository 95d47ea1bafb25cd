package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/internal/safetensors"
)

// raw makes a file of a header as text and data of the given length.
func raw(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

func open(b []byte) (*safetensors.File, error) {
	return safetensors.NewFile(bytes.NewReader(b), int64(len(b)))
}

func TestWrittenBytes(t *testing.T) {
	var b bytes.Buffer
	_, err := safetensors.Write(&b, []safetensors.Tensor{
		{Name: "mask", DType: device.Uint8, Shape: []int{3}, Data: []byte{7, 8, 9}},
		{Name: "w", DType: device.Float32, Shape: []int{1, 2}, Data: []byte{0, 0, 128, 63, 0, 0, 0, 64}},
		{Name: "scalar", DType: device.BFloat16, Data: []byte{1, 2}},
		{Name: "none", DType: device.Int64, Shape: []int{0, 4}},
	}, map[string]string{"format": "pt"})
	if err != nil {
		t.Fatal(err)
	}
	header := `{"__metadata__":{"format":"pt"},` +
		`"none":{"dtype":"I64","shape":[0,4],"data_offsets":[0,0]},` +
		`"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},` +
		`"scalar":{"dtype":"BF16","shape":[],"data_offsets":[8,10]},` +
		`"mask":{"dtype":"U8","shape":[3],"data_offsets":[10,13]}}`
	header += strings.Repeat(" ", (8-len(header)%8)%8)
	want := append(raw(header, 0), 0, 0, 128, 63, 0, 0, 0, 64, 1, 2, 7, 8, 9)
	if !bytes.Equal(b.Bytes(), want) {
		t.Errorf("got\n%q\nwant\n%q", b.Bytes(), want)
	}
	f, err := open(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if f.Metadata()["format"] != "pt" {
		t.Errorf("metadata is %v", f.Metadata())
	}
	mask := make([]byte, 3)
	if err := f.Read("mask", mask); err != nil || !bytes.Equal(mask, []byte{7, 8, 9}) {
		t.Errorf("mask is %v, %v", mask, err)
	}
}

func TestWriteRefuses(t *testing.T) {
	w := safetensors.Tensor{Name: "w", DType: device.Float32, Shape: []int{1}, Data: make([]byte, 4)}
	with := func(change func(*safetensors.Tensor)) safetensors.Tensor {
		c := w
		change(&c)
		return c
	}
	for want, tensors := range map[string][]safetensors.Tensor{
		"two tensors are named w":       {w, w},
		`"" cannot be the name`:         {with(func(t *safetensors.Tensor) { t.Name = "" })},
		`"__metadata__" cannot`:         {with(func(t *safetensors.Tensor) { t.Name = "__metadata__" })},
		`"\xff" cannot be`:              {with(func(t *safetensors.Tensor) { t.Name = "\xff" })},
		"dtype invalid":                 {with(func(t *safetensors.Tensor) { t.DType = 0 })},
		"float32[2] does not have 4":    {with(func(t *safetensors.Tensor) { t.Shape = []int{2} })},
		"float32[-1] does not have 4":   {with(func(t *safetensors.Tensor) { t.Shape = []int{-1} })},
		"4294967296] does not have 4":   {with(func(t *safetensors.Tensor) { t.Shape = []int{1 << 32, 1 << 32} })},
		"float64[1] does not have 4":    {with(func(t *safetensors.Tensor) { t.DType = device.Float64 })},
		"float32[1 0] does not have 4 ": {with(func(t *safetensors.Tensor) { t.Shape = []int{1, 0} })},
	} {
		_, err := safetensors.Write(&bytes.Buffer{}, tensors, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	entry := func(name, dtype, shape string, begin, end int) string {
		return fmt.Sprintf(`"%s":{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}`, name, dtype, shape, begin, end)
	}
	a := entry("a", "F32", "[2]", 0, 8)
	for want, file := range map[string][]byte{
		"truncated: 7 bytes":                     make([]byte, 7),
		"header length is 9223372036854775808":   binary.LittleEndian.AppendUint64(nil, 1<<63),
		"truncated: the header has 100 bytes":    binary.LittleEndian.AppendUint64(nil, 100),
		"does not begin with {":                  raw(" {}", 0),
		"not UTF-8":                              raw("{\"\xff\":1}", 0),
		"unexpected EOF":                         raw("{", 0),
		"invalid character":                      raw("{x}", 0),
		"goes on after its end":                  raw("{} x", 0),
		"goes on after its end: \"\\n\"":         raw("{}\n", 0),
		`"a" occurs twice`:                       raw("{"+a+","+a+"}", 8),
		`a: "dtype" occurs twice`:                raw(`{"a":{"dtype":"F32","dtype":"F32"}}`, 8),
		`a: dtype "F8" is not one`:               raw("{"+entry("a", "F8", "[2]", 0, 2)+"}", 2),
		`a: unknown key "DTYPE"`:                 raw(`{"a":{"DTYPE":"F32"}}`, 8),
		"a: needs dtype, shape and two":          raw(`{"a":{"dtype":"F32","shape":[]}}`, 4),
		"a: needs dtype, shape":                  raw(`{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4,8]}}`, 4),
		"a: ends at 0, before its start at 8":    raw("{"+entry("a", "F32", "[2]", 8, 0)+"}", 8),
		"a: float32[2] does not have 4 bytes":    raw("{"+entry("a", "F32", "[2]", 0, 4)+"}", 4),
		"does not have 0 bytes":                  raw("{"+entry("a", "F32", "[4294967296,4294967296]", 0, 0)+"}", 0),
		"-2 is not a whole number":               raw("{"+entry("a", "F32", "[-2]", 0, 8)+"}", 8),
		"1.5 is not a whole number":              raw("{"+entry("a", "F32", "[1.5]", 0, 8)+"}", 8),
		`"x" is not a number`:                    raw("{"+entry("a", "F32", `["x"]`, 0, 8)+"}", 8),
		"truncated: a ends at 8, the data at 7":  raw("{"+a+"}", 7),
		"1 bytes after the last tensor":          raw("{"+a+"}", 9),
		"b: starts at 4, inside the tensor":      raw("{"+a+","+entry("b", "F32", "[1]", 4, 8)+"}", 8),
		"b: starts at 12, 4 bytes after":         raw("{"+a+","+entry("b", "F32", "[1]", 12, 16)+"}", 16),
		`__metadata__: "k" is not a string`:      raw(`{"__metadata__":{"k":1}}`, 0),
		"b: starts at 0, inside the tensor befo": raw("{"+a+","+entry("b", "F32", "[2]", 0, 8)+"}", 8),
	} {
		if _, err := open(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	if err := os.WriteFile(path, raw(`{"a":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}}`, 4), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Read("b", nil); err == nil {
		t.Error("read a tensor that is not there")
	}
	if err := f.Read("a", make([]byte, 3)); err == nil {
		t.Error("read into a slice that is too short")
	}
	// The file shrinks while it is open.
	if err := os.Truncate(path, 20); err != nil {
		t.Fatal(err)
	}
	if err := f.Read("a", make([]byte, 4)); err == nil {
		t.Error("read beyond the end")
	}
	for _, p := range []string{path, path + ".missing", filepath.Dir(path)} {
		if _, err := safetensors.Open(p); err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("error does not name %s: %v", p, err)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	dtypes := []device.DType{device.Float32, device.Float64, device.BFloat16, device.Float16, device.Int32, device.Int64, device.Uint8}
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringN(1, 12, -1), 0, 6, rapid.ID).Draw(t, "names")
		var tensors []safetensors.Tensor
		for _, name := range names {
			x := safetensors.Tensor{Name: name, DType: rapid.SampledFrom(dtypes).Draw(t, "dtype")}
			x.Shape = rapid.SliceOfN(rapid.IntRange(0, 4), 0, 3).Draw(t, "shape")
			size := x.DType.Size()
			for _, d := range x.Shape {
				size *= d
			}
			x.Data = rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "data")
			tensors = append(tensors, x)
		}
		var b bytes.Buffer
		entries, err := safetensors.Write(&b, tensors, nil)
		if err != nil {
			t.Skip(err) // a name that is not UTF-8
		}
		f, err := open(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Header())%8 != 0 {
			t.Errorf("the data starts at %d: not aligned", len(f.Header()))
		}
		for _, e := range entries {
			if got, _ := f.Lookup(e.Name); !reflect.DeepEqual(got.Offset, e.Offset) || got.Offset%int64(e.DType.Size()) != 0 {
				t.Errorf("%s: written at %d, read at %d", e.Name, e.Offset, got.Offset)
			}
		}
		for _, x := range tensors {
			e, ok := f.Lookup(x.Name)
			if !ok || e.DType != x.DType || !slices.Equal(e.Shape, x.Shape) {
				t.Fatalf("%s: %+v", x.Name, e)
			}
			data := make([]byte, e.Bytes)
			if err := f.Read(x.Name, data); err != nil || !bytes.Equal(data, x.Data) {
				t.Errorf("%s: %v, %v", x.Name, data, err)
			}
		}
	})
}

func FuzzNewFile(f *testing.F) {
	f.Add(raw(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}}`, 9))
	f.Add(raw(`{"__metadata__":{"format":"pt"}}`, 0))
	f.Add(raw(`{"a":{"dtype":"I64","shape":[0],"data_offsets":[0,0]}}  `, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := open(b)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
			return
		}
		// What opens must cover the file and read.
		total := int64(len(file.Header()))
		var tensors []safetensors.Tensor
		for _, e := range file.Entries() {
			data := make([]byte, e.Bytes)
			if err := file.Read(e.Name, data); err != nil {
				t.Error(err)
			}
			total += e.Bytes
			tensors = append(tensors, safetensors.Tensor{Name: e.Name, DType: e.DType, Shape: e.Shape, Data: data})
		}
		if total != int64(len(b)) {
			t.Errorf("tensors cover %d of %d bytes", total, len(b))
		}
		var again bytes.Buffer
		if _, err := safetensors.Write(&again, tensors, file.Metadata()); err != nil && !strings.Contains(err.Error(), "cannot be the name") {
			t.Errorf("what was read cannot be written: %v", err)
		}
	})
}

func Example() {
	var file bytes.Buffer
	_, err := safetensors.Write(&file, []safetensors.Tensor{
		{Name: "norm.weight", DType: device.Float32, Shape: []int{1}, Data: []byte{0, 0, 128, 63}},
	}, nil)
	if err != nil {
		panic(err)
	}
	f, err := safetensors.NewFile(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		panic(err)
	}
	for _, e := range f.Entries() {
		fmt.Println(e.Name, e.DType, e.Shape, e.Bytes)
	}
	// Output: norm.weight float32 [1] 4
}
