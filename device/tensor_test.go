package device

import (
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// heap is a buffer of Go memory.
type heap []byte

func (h heap) Size() int64             { return int64(len(h)) }
func (h heap) Pointer() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(h)) }
func (h heap) Free()                   {}

// counting returns an int32 tensor of the numbers 0, 1, 2, …
func counting(shape ...int) Tensor {
	n := NewSpec(Int32, shape...).Len()
	t := NewTensor(make(heap, 4*n), 0, Int32, shape...)
	for i, e := 0, Elements[int32](t); i < n; i++ {
		e[i] = int32(i)
	}
	return t
}

// values reads any view, row-major.
func values(t Tensor) []int32 {
	v := []int32{}
	for i := range t.Len() {
		at, rest := 0, i
		for d := t.Rank() - 1; d >= 0; d-- {
			at += rest % t.Dim(d) * t.Stride(d)
			rest /= t.Dim(d)
		}
		v = append(v, *(*int32)(unsafe.Add(t.Pointer(), 4*at)))
	}
	return v
}

func TestNewMatrix(t *testing.T) {
	b := counting(11).Buffer()
	m := NewMatrix(b, 4, Int32, 3, 2, 4)
	if got := values(m); !slices.Equal(got, []int32{1, 2, 5, 6, 9, 10}) {
		t.Errorf("elements are %v", got)
	}
}

func TestViews(t *testing.T) {
	x := counting(2, 3)
	for _, test := range []struct {
		name       string
		view       Tensor
		shape      []int
		values     []int32
		contiguous bool
		lo, hi     int64
	}{
		{"whole", x, []int{2, 3}, []int32{0, 1, 2, 3, 4, 5}, true, 0, 24},
		{"rows", x.Slice(0, 1, 2), []int{1, 3}, []int32{3, 4, 5}, true, 12, 24},
		{"columns", x.Slice(1, 1, 3), []int{2, 2}, []int32{1, 2, 4, 5}, false, 4, 24},
		{"no columns", x.Slice(1, 3, 3), []int{2, 0}, []int32{}, true, 12, 12},
		{"index", x.Index(1), []int{3}, []int32{3, 4, 5}, true, 12, 24},
		{"scalar", x.Index(1).Index(2), []int{}, []int32{5}, true, 20, 24},
		{"transpose", x.Transpose(0, 1), []int{3, 2}, []int32{0, 3, 1, 4, 2, 5}, false, 0, 24},
		{"column of transpose", x.Transpose(0, 1).Index(2), []int{2}, []int32{2, 5}, false, 8, 24},
		{"reshape", x.Reshape(3, 1, 2), []int{3, 1, 2}, []int32{0, 1, 2, 3, 4, 5}, true, 0, 24},
		{"matrix", counting(2, 1, 2).Matrix(), []int{2, 2}, []int32{0, 1, 2, 3}, true, 0, 16},
		{"matrix of a scalar", counting().Matrix(), []int{1, 1}, []int32{0}, true, 0, 4},
		{"broadcast rows", x.Index(0).Broadcast(2, 3), []int{2, 3}, []int32{0, 1, 2, 0, 1, 2}, false, 0, 12},
		{"broadcast a column", x.Slice(1, 2, 3).Broadcast(2, 2), []int{2, 2}, []int32{2, 2, 5, 5}, false, 8, 24},
		{"live rows", x.WithRows(1), []int{1, 3}, []int32{0, 1, 2}, true, 0, 12},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := test.view
			if !slices.Equal(v.Shape(), test.shape) || !slices.Equal(values(v), test.values) {
				t.Errorf("%v %v, want %v %v", v.Shape(), values(v), test.shape, test.values)
			}
			if v.Contiguous() != test.contiguous {
				t.Errorf("contiguous: %v", v.Contiguous())
			}
			if lo, hi := v.Extent(); lo != test.lo || hi != test.hi {
				t.Errorf("extent [%d, %d), want [%d, %d)", lo, hi, test.lo, test.hi)
			}
			if v.Contiguous() && !slices.Equal(Elements[int32](v), test.values) {
				t.Errorf("Elements %v, want %v", Elements[int32](v), test.values)
			}
		})
	}
}

// TestViewsStayInside takes views of views: every element keeps its number, and
// the extent is exactly what the elements span.
func TestViewsStayInside(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := rapid.SliceOfN(rapid.IntRange(1, 4), 1, MaxRank).Draw(t, "shape")
		v := counting(shape...)
		for range rapid.IntRange(0, 4).Draw(t, "steps") {
			d := rapid.IntRange(0, v.Rank()-1).Draw(t, "dimension")
			if rapid.Bool().Draw(t, "transpose") {
				v = v.Transpose(d, rapid.IntRange(0, v.Rank()-1).Draw(t, "other"))
				continue
			}
			lo := rapid.IntRange(0, v.Dim(d)-1).Draw(t, "lo")
			v = v.Slice(d, lo, rapid.IntRange(lo+1, v.Dim(d)).Draw(t, "hi"))
		}
		all := values(v)
		lo, hi := v.Extent()
		if lo != 4*int64(slices.Min(all)) || hi != 4*int64(slices.Max(all)+1) {
			t.Fatalf("extent [%d, %d) of elements %v", lo, hi, all)
		}
		slices.Sort(all)
		if len(slices.Compact(all)) != v.Len() {
			t.Fatalf("%v visits an element twice", v)
		}
	})
}

func TestEmptyTensorAtTheEnd(t *testing.T) {
	b := make(heap, 64)
	x := NewTensor(b, 64, Float32, 0, 5)
	if x.Pointer() != b.Pointer() || len(Elements[float32](x)) != 0 {
		t.Error("an empty tensor has elements")
	}
}

func TestPanics(t *testing.T) {
	x := counting(2, 3)
	for name, f := range map[string]func(){
		"outside its buffer":     func() { NewTensor(make(heap, 8), 4, Int32, 2) },
		"negative offset":        func() { NewTensor(make(heap, 8), -4, Int32, 1) },
		"negative extent":        func() { NewTensor(make(heap, 8), 0, Int32, -1) },
		"rank":                   func() { NewTensor(make(heap, 8), 0, Int32, 1, 1, 1, 1, 1, 1) },
		"slice past the end":     func() { x.Slice(1, 0, 4) },
		"slice backwards":        func() { x.Slice(1, 2, 1) },
		"slice of no dimension":  func() { x.Slice(2, 0, 1) },
		"index past the end":     func() { x.Index(2) },
		"reshape to another len": func() { x.Reshape(5) },
		"reshape strided":        func() { x.Transpose(0, 1).Reshape(6) },
		"matrix beyond the end":  func() { NewMatrix(x.Buffer(), 0, Int32, 2, 3, 4) },
		"matrix before":          func() { NewMatrix(x.Buffer(), -4, Int32, 1, 1, 1) },
		"matrix of few columns":  func() { NewMatrix(x.Buffer(), 0, Int32, 2, 3, 2) },
		"broadcast unequal":      func() { x.Broadcast(2, 4) },
		"broadcast to less rank": func() { x.Broadcast(3) },
		"elements of other size": func() { Elements[int64](x) },
		"elements of strided":    func() { Elements[int32](x.Transpose(0, 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if r := recover(); r == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

func TestTensorString(t *testing.T) {
	if got := fmt.Sprint(counting(2, 3), Tensor{}); got != "int32[2 3] none" {
		t.Error(got)
	}
	if !(Tensor{}).IsZero() || counting().IsZero() {
		t.Error("IsZero")
	}
}
