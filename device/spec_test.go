package device

import (
	"math"
	"testing"
)

func TestDType(t *testing.T) {
	for d := Float32; d <= Uint8; d++ {
		if parsed, err := ParseDType(d.String()); err != nil || parsed != d {
			t.Errorf("ParseDType(%q) = %v, %v", d, parsed, err)
		}
	}
	for _, name := range []string{"", "invalid", "Float32", "float8"} {
		if d, err := ParseDType(name); err == nil {
			t.Errorf("ParseDType(%q) = %v", name, d)
		}
	}
	sizes := map[DType]int{Invalid: 0, Float32: 4, Float64: 8, BFloat16: 2, Float16: 2, Int32: 4, Int64: 8, Uint8: 1, 200: 0}
	for d, size := range sizes {
		if d.Size() != size {
			t.Errorf("size of %v is %d, want %d", d, d.Size(), size)
		}
		if floating := d == Float32 || d == Float64 || d == BFloat16 || d == Float16; d.IsFloat() != floating {
			t.Errorf("IsFloat of %v is %v", d, d.IsFloat())
		}
	}
}

func TestSpecValidate(t *testing.T) {
	for _, test := range []struct {
		spec Spec
		want string // "" for valid
	}{
		{NewSpec(Float32), ""},
		{NewSpec(Float32, 4, 256), ""},
		{NewSpec(Float32, 0, 256), ""},
		{NewSpec(Uint8, 1<<62), ""},
		{Spec{DType: Float32, Shape: []int{4, 2}, Rows: 1}, ""},
		{NewSpec(Invalid, 4), "invalid dtype"},
		{NewSpec(99, 4), "invalid dtype"},
		{NewSpec(Float32, 1, 1, 1, 1, 1, 1), "rank 6 is over the limit of 5: [1 1 1 1 1 1]"},
		{NewSpec(Float32, 4, -1), "negative extent in shape [4 -1]"},
		{NewSpec(Float32, 1<<31, 1<<31), "shape [2147483648 2147483648] overflows"},
		{NewSpec(Float64, math.MaxInt), "shape [9223372036854775807] overflows"},
		{Spec{DType: Float32, Rows: 1}, "a scalar has no dynamic rows"},
	} {
		got := ""
		if err := test.spec.Validate(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%v: %q, want %q", test.spec, got, test.want)
		}
	}
}

func TestSpec(t *testing.T) {
	shape := []int{8, 16}
	s := NewSpec(Float32, shape...)
	shape[0] = 1
	if s.Shape[0] != 8 {
		t.Error("NewSpec keeps the caller's slice")
	}
	if s.Len() != 128 || s.Bytes() != 512 || s.Last() != 16 || NewSpec(Float32).Last() != 1 {
		t.Errorf("%v: %d elements, %d bytes, last %d", s, s.Len(), s.Bytes(), s.Last())
	}
	dynamic := Spec{DType: Float32, Shape: []int{8, 16}, Rows: 2, Place: OnHost}
	if w := dynamic.WithShape(4, 2); w.Rows != 2 || w.Place != OnHost || w.Bytes() != 32 {
		t.Errorf("WithShape gives %v", w)
	}
	if s.Equal(dynamic) || !s.Equal(s.WithShape(8, 16)) || s.Equal(s.WithShape(16, 8)) {
		t.Error("Equal")
	}
	if s.String() != "float32[8 16]" || dynamic.String() != "float32[≤8 16]@host" {
		t.Errorf("%v %v", s, dynamic)
	}
}
