package train

import (
	"encoding/binary"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/lethe-go/lethe/collective/local"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"pgregory.net/rapid"
)

// indexed fills a part of int32 in which every element is its place in the whole, from 1.
func indexed(p part) part {
	p.Data = make([]byte, p.bytes())
	at := make([]int, len(p.Shape))
	for i := range len(p.Data) / 4 {
		rest := i
		for d := len(at) - 1; d >= 0; d-- {
			at[d] = p.start[d] + rest%p.Shape[d]
			rest /= p.Shape[d]
		}
		n := 0
		for d, x := range at {
			n = n*p.global[d] + x
		}
		binary.LittleEndian.PutUint32(p.Data[4*i:], uint32(n+1))
	}
	return p
}

// drawBox draws a part of a shape.
func drawBox(t *rapid.T, global []int) part {
	p := part{Tensor: Tensor{Name: "x", DType: device.Int32}, global: global}
	for _, n := range global {
		lo := rapid.IntRange(0, n-1).Draw(t, "lo")
		p.start = append(p.start, lo)
		p.Shape = append(p.Shape, rapid.IntRange(1, n-lo).Draw(t, "extent"))
	}
	return p
}

// What two parts have in common is copied, and nothing else is touched.
func TestPartsAreFilled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		global := rapid.SliceOfN(rapid.IntRange(1, 5), 0, 4).Draw(t, "shape")
		from, to := indexed(drawBox(t, global)), indexed(drawBox(t, global))
		want := to.Data
		to.Data = make([]byte, len(want))
		to.fill(from)
		common := false
		for i := 0; i < len(want); i += 4 {
			has := covers(from, want[i:])
			common = common || has
			got := binary.LittleEndian.Uint32(to.Data[i:])
			if has && got != binary.LittleEndian.Uint32(want[i:]) || !has && got != 0 {
				t.Fatalf("element %d of %v is %d", i/4, to.Shape, got)
			}
		}
		if common != from.overlaps(to) {
			t.Fatalf("overlaps: %v", !common)
		}
	})
}

// The chunks of a part hold its elements, in their order.
func TestPartsAreChunked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := indexed(drawBox(t, rapid.SliceOfN(rapid.IntRange(1, 5), 0, 4).Draw(t, "shape")))
		most := rapid.Int64Range(1, p.bytes()+8).Draw(t, "bytes")
		var got []byte
		for c := range p.chunks(most) {
			if c.bytes() > max(most, 4) {
				t.Fatalf("a chunk of %v", c.Shape)
			}
			got = append(got, indexed(c).Data...)
		}
		if !reflect.DeepEqual(got, p.Data) {
			t.Fatalf("the chunks of %v hold %v, want %v", p.Shape, got, p.Data)
		}
	})
}

// covers reports whether an element is in a part.
func covers(p part, element []byte) bool {
	for i := 0; i < len(p.Data); i += 4 {
		if reflect.DeepEqual(p.Data[i:i+4], element[:4]) {
			return true
		}
	}
	return false
}

// Writers save one state, of whole tensors for those who read it, and an error of one is
// every one's.
func TestWritersSaveOneState(t *testing.T) {
	d, err := cpu.New(cpu.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	groups, err := local.New(2, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "state")
	save := func(step int, parts [2][]part) (errs [2]error) {
		var running sync.WaitGroup
		for r, g := range groups {
			running.Go(func() {
				f := StateFolder{Path: folder, KeepLatest: 2, writers: &writers{g, d}}
				_, errs[r] = f.save(StateMeta{Step: step}, parts[r])
			})
		}
		running.Wait()
		return errs
	}
	box := func(name string, start, rows int) part {
		return indexed(part{Tensor{Name: name, DType: device.Int32, Shape: []int{rows, 3}}, []int{5, 3}, []int{start, 0}})
	}
	shared := indexed(whole(Tensor{Name: "b", DType: device.Int32, Shape: []int{4}}))
	if errs := save(1, [2][]part{{box("a", 0, 2)}, {box("a", 2, 3), shared}}); errs[0] != nil || errs[1] != nil {
		t.Fatal(errs)
	}
	// A name twice in a file is refused by the one who writes it.
	errs := save(2, [2][]part{{box("a", 0, 5)}, {shared, shared}})
	for r, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "step 2 is not saved") || r == 0 && !strings.Contains(err.Error(), "rank 1: ") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	s, skipped, err := StateFolder{Path: folder}.LoadLatest()
	if err != nil || len(skipped) > 0 || s.Step != 1 {
		t.Fatal(err, skipped)
	}
	defer s.Close()
	a := Tensor{"a", device.Int32, []int{5, 3}, make([]byte, 60)}
	if err := s.Read([]Tensor{a, {"b", device.Int32, []int{4}, make([]byte, 16)}}); err != nil || !reflect.DeepEqual(a.Data, box("a", 0, 5).Data) {
		t.Errorf("%v, %v", a.Data, err)
	}
	// Parts that were saved otherwise.
	p := box("a", 1, 2)
	want := p.Data
	p.Data = make([]byte, len(want))
	if err := s.readParts([]part{p}); err != nil || !reflect.DeepEqual(p.Data, want) {
		t.Errorf("%v, %v", p.Data, err)
	}
	if errs := save(3, [2][]part{{box("a", 0, 2)}, {shared}}); errs[0] != nil {
		t.Fatal(errs)
	}
	if _, err := OpenState(filepath.Join(folder, stateName(3))); err == nil || !strings.Contains(err.Error(), `"a" is not whole`) {
		t.Errorf("a state without a part: %v", err)
	}
}
