package graph

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"pgregory.net/rapid"
)

// growing assigns ever later multiples of x to scratch variables, and returns the
// Machine and the values for x = 1, 2, …, 5, 1, …
func growing(t *testing.T, s *Store, size, scratch int) (*Machine, [][]float32) {
	b := New(s)
	x := b.Input("x", device.Float32, size)
	v := x
	want := [][]float32{make([]float32, size)}
	for i := range size {
		want[0][i] = float32(i%5) + 1
	}
	for i := range scratch {
		v = Add(v, x)
		b.Assign(b.Scratch(string(rune('a'+i)), device.Float32, size), v)
		next := slices.Clone(want[i])
		for j := range next {
			next[j] += want[0][j]
		}
		want = append(want, next)
	}
	m := newMachine(t, b)
	Feed(m, "x", want[0])
	return m, want[1:]
}

// total outputs the sum of the scratch variables a and b, and nothing else.
func total(t *testing.T, s *Store, size int) *Machine {
	b := New(s)
	b.Output("total", Add(b.Scratch("a", device.Float32, size), b.Scratch("b", device.Float32, size)))
	return newMachine(t, b)
}

// A value is computed right in its scratch variable, whose life begins there and not before.
func TestScratchIsBornWhereItIsWritten(t *testing.T) {
	const size = 64
	s := newStore(t, 1)
	m, _ := growing(t, s, size, 4)
	var births []int
	for _, st := range m.Program().Storages {
		if st.Scratch() {
			births = append(births, st.Begin)
			if end := len(m.Program().Steps) + 1; st.End != end {
				t.Errorf("%s dies at %d, want %d", st.Edge.Node.Name, st.End, end)
			}
		}
	}
	if want := []int{1, 2, 3, 4}; !slices.Equal(births, want) {
		t.Errorf("born at steps %v, want %v", births, want)
	}
	memory := m.Program().Memory(nil)
	if want := int64(5 * size * 4); memory.Peak != want || memory.Arena != want || memory.Persistent != 0 || s.Bytes() != 0 {
		t.Errorf("%+v and %d bytes outside the arena, want a peak and an arena of %d", memory, s.Bytes(), want)
	}
}

// What is born late lends its memory to what dies early.
func TestScratchLendsItsMemory(t *testing.T) {
	const size = 1024
	b := New(newStore(t, 1))
	x := b.Input("x", device.Float32, size)
	twice := Add(x, x)
	b.Output("sum", Sum(twice)) // the last that reads it
	for _, name := range []string{"a", "b"} {
		b.Assign(b.Scratch(name, device.Float32, size), b.Full(7, device.Float32, size))
	}
	m := newMachine(t, b)
	if arena := m.Program().ArenaBytes; arena > 2*size*4+2*device.Alignment {
		t.Errorf("an arena of %d bytes, want about that of two values of %d", arena, size*4)
	}
	Feed(m, "x", slices.Repeat([]float32{1}, size))
	if err := m.Run(context.Background(), RunOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := m.Scalar("sum"); got != 2*size {
		t.Errorf("sum %v, want %v", got, 2*size)
	}
	for _, name := range []string{"a", "b"} {
		for i, x := range device.Elements[float32](b.Store().Variable(name).Tensor()) {
			if x != 7 {
				t.Fatalf("element %d of %s is %v, want 7", i, name, x)
			}
		}
	}
}

// One Program leaves scratch to the next, also if the arena grows in between. A Program that
// does not touch it takes its memory, and what reads it then is refused.
func TestScratchIsHandedOn(t *testing.T) {
	const size = 16
	s := newStore(t, 1)
	ctx, o := context.Background(), RunOptions{Step: 1}
	write, values := growing(t, s, size, 2)
	if err := write.Run(ctx, o); err != nil {
		t.Fatal(err)
	}
	b := New(s)
	x := b.Input("x", device.Float32, 100*size)
	b.Output("y", Sum(Add(x, x)))
	other := newMachine(t, b) // a larger arena
	read := total(t, s, size)
	check := func() {
		t.Helper()
		if err := read.Run(ctx, o); err != nil {
			t.Fatal(err)
		}
		for i, x := range device.Elements[float32](read.Output("total")) {
			if want := values[0][i] + values[1][i]; x != want {
				t.Fatalf("element %d is %v, want %v", i, x, want)
			}
		}
	}
	check()
	check()
	if err := other.Run(ctx, o); err != nil {
		t.Fatal(err)
	}
	if err := read.Run(ctx, o); err == nil || !strings.Contains(err.Error(), `reads "a", whose memory has been given to other values since it was written`) {
		t.Errorf("error %v, want one that names a", err)
	}
	if err := write.Run(ctx, o); err != nil {
		t.Fatal(err)
	}
	check()
	stopped, stop := context.WithCancel(ctx)
	stop()
	if write.Run(stopped, o) == nil || read.Run(ctx, o) == nil {
		t.Error("what a stopped run has left is read")
	}
}

// Whatever the lives of values and of scratch, no two share memory at one time, and the size is
// no more than what places all scratch in front of all values.
func TestStack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := rapid.IntRange(1, 30).Draw(t, "steps")
		life := func() *Storage {
			begin := rapid.IntRange(0, steps).Draw(t, "begin")
			return &Storage{Begin: begin, End: rapid.IntRange(begin, steps).Draw(t, "end"), bytes: rapid.Int64Range(1, 2000).Draw(t, "bytes"), Saved: rapid.Bool().Draw(t, "saved")}
		}
		var values, scratch []*Storage
		for range rapid.IntRange(0, 20).Draw(t, "values") {
			values = append(values, life())
		}
		var behind, sum int64
		for range rapid.IntRange(0, 6).Draw(t, "scratch") {
			st := life()
			st.End, st.Offset = steps, behind
			behind = align(behind + st.bytes)
			scratch = append(scratch, st)
		}
		size := stack(values, scratch)
		all := slices.Concat(values, scratch)
		for i, a := range all {
			sum += align(a.bytes)
			if a.Offset < 0 || a.Offset%device.Alignment != 0 || a.Offset+a.bytes > size {
				t.Fatalf("%+v in %d bytes", a, size)
			}
			for _, b := range all[:i] {
				if a.Begin <= b.End && b.Begin <= a.End && a.Offset < b.Offset+b.bytes && b.Offset < a.Offset+a.bytes {
					t.Fatalf("%+v and %+v overlap", a, b)
				}
			}
		}
		if size < mostAlive(all) || size > sum+sum/256+device.Alignment {
			t.Fatalf("%d bytes for a peak of %d, and %d in all", size, mostAlive(all), sum)
		}
	})
}

// What several Programs do with the same scratch takes the memory that is planned for each.
func TestScratchIsMeasured(t *testing.T) {
	d, err := cpu.New(cpu.Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s := watchedStore(t, d)
	const size = 32
	write, values := growing(t, s, size, 3)
	b := New(s)
	for _, name := range []string{"a", "b"} {
		v := b.Scratch(name, device.Float32, size)
		b.Accumulate(v, b.Full(1, device.Float32, size))
	}
	add, read := newMachine(t, b), total(t, s, size)
	for _, m := range []*Machine{write, add, read} {
		seen, err := Measure(context.Background(), m, RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if p := m.Program(); seen.Peak != p.Memory(nil).Peak || !slices.Equal(seen.Live, p.LiveBytes(nil)) || seen.UnwrittenReads != 0 {
			t.Errorf("measured %+v, planned %v", seen, p.LiveBytes(nil))
		}
		if err := m.Run(context.Background(), RunOptions{}); err != nil { // with poison
			t.Fatal(err)
		}
	}
	for i, x := range device.Elements[float32](read.Output("total")) {
		if want := values[0][i] + values[1][i] + 2*2; x != want { // add ran twice
			t.Fatalf("element %d is %v, want %v", i, x, want)
		}
	}
}
