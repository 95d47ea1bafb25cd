package spill

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
)

func newDevice(t testing.TB) device.Device {
	d, err := cpu.New(cpu.Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// values are tensors of many sizes, beside each other in a buffer, and their offsets in a
// Spill.
type values struct {
	queue   device.Queue
	buffer  device.Buffer
	tensors []device.Tensor
	offsets []int64
	end     int64
}

func newValues(t testing.TB, d device.Device, sizes ...int) *values {
	v := &values{queue: d.NewQueue()}
	dtypes := []device.DType{device.Float32, device.BFloat16, device.Float64, device.Int32, device.Uint8}
	var err error
	if v.buffer, err = d.Alloc(device.OnDevice, 8<<20); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.queue.Close(); v.buffer.Free() })
	at := int64(0)
	for i, n := range sizes {
		x := device.NewTensor(v.buffer, at, dtypes[i%len(dtypes)], n/7, 7)
		v.tensors, v.offsets = append(v.tensors, x), append(v.offsets, v.end)
		at += device.Align(x.Bytes(), device.Alignment)
		v.end += device.Align(x.Bytes(), device.SpillAlignment)
	}
	return v
}

// fill gives every tensor bytes that belong to a run.
func (v *values) fill(run uint64) {
	r := rand.New(rand.NewPCG(run, 1))
	for _, x := range v.tensors {
		raw := device.Raw(x)
		for i := range raw {
			raw[i] = byte(r.Uint32())
		}
	}
}

// run offloads all values and reloads them in the reverse order. It reports what came back.
func (v *values) run(s device.Spill) (out []byte, err error) {
	if err := s.Reserve(v.end); err != nil {
		return nil, err
	}
	for i, x := range v.tensors {
		if err := s.Offload(v.queue, v.offsets[i], x); err != nil {
			return nil, err
		}
		clear(device.Raw(x))
	}
	for i := len(v.tensors) - 1; i >= 0; i-- {
		if err := s.Reload(v.queue, v.tensors[i], v.offsets[i]); err != nil {
			return nil, err
		}
	}
	return v.all(), nil
}

func (v *values) all() (out []byte) {
	for _, x := range v.tensors {
		out = append(out, device.Raw(x)...)
	}
	return out
}

// What comes back is what was sent, to the bit, for every Spill, size and dtype, also where
// the ring is smaller than a value.
func TestValuesComeBack(t *testing.T) {
	d := newDevice(t)
	v := newValues(t, d, 7, 0, 7*4096, 7*1000, 7*100_003, 14, 7*8192)
	for name, open := range map[string]func() (device.Spill, error){
		"host": func() (device.Spill, error) { return NewHost(d), nil },
		"file": func() (device.Spill, error) { return NewFile(d, FileOptions{Dir: t.TempDir()}) },
		"small": func() (device.Spill, error) {
			return NewFile(d, FileOptions{Dir: t.TempDir(), Buffers: 2, BufferBytes: 4096})
		},
		"one": func() (device.Spill, error) {
			return NewFile(d, FileOptions{Dir: t.TempDir(), Buffers: 1, BufferBytes: 8192})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := open()
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for run := range uint64(3) {
				v.fill(run)
				want := v.all()
				got, err := v.run(s)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, want) {
					t.Fatalf("run %d: other bytes came back", run)
				}
			}
		})
	}
}

func TestWarmTransfersAllocateNothing(t *testing.T) {
	d := newDevice(t)
	v := newValues(t, d, 7*4096, 7*100_003)
	s, err := NewFile(d, FileOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := v.run(s); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(5, func() {
		for i, x := range v.tensors {
			s.Offload(v.queue, v.offsets[i], x)
		}
		for i, x := range v.tensors {
			s.Reload(v.queue, x, v.offsets[i])
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A file has no name while it is used, so that nothing is left of it.
func TestFileLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	s, err := NewFile(newDevice(t), FileOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if list, _ := os.ReadDir(dir); len(list) > 0 && !s.disk.(*osFile).named {
		t.Errorf("%d files are in the folder while a File is open", len(list))
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if list, _ := os.ReadDir(dir); len(list) > 0 {
		t.Errorf("%d files are left", len(list))
	}
}

func TestFileNeedsItsFolder(t *testing.T) {
	_, err := NewFile(newDevice(t), FileOptions{Dir: "does/not/exist"})
	if err == nil || !strings.Contains(err.Error(), "does/not/exist") || !strings.Contains(err.Error(), "choose a folder") {
		t.Errorf("error %v", err)
	}
}

// faulty is a file in memory that a test breaks.
type faulty struct {
	data     []byte
	allocate error
	write    func(p []byte, offset int64) (int, error) // nil writes
	read     func(p []byte, offset int64) (int, error) // nil reads
}

func (f *faulty) Name() string { return "/scratch/lethe-spill" }
func (f *faulty) Close() error { return nil }

func (f *faulty) Allocate(size int64) error {
	f.data = make([]byte, size)
	return f.allocate
}

func (f *faulty) WriteAt(p []byte, offset int64) (int, error) {
	if f.write != nil {
		return f.write(p, offset)
	}
	return copy(f.data[offset:], p), nil
}

func (f *faulty) ReadAt(p []byte, offset int64) (int, error) {
	if f.read != nil {
		return f.read(p, offset)
	}
	return copy(p, f.data[offset:]), nil
}

// What a disk does wrong is an error that names file, offset and remedy; nothing hangs, and
// no byte comes back that was not sent.
func TestFaults(t *testing.T) {
	d := newDevice(t)
	for _, c := range []struct {
		name  string
		fault func(f *faulty)
		want  []string
	}{
		{"no room", func(f *faulty) { f.allocate = syscall.ENOSPC },
			[]string{"room for 815104 bytes", "no space left", "free space on that disk"}},
		{"full in a run", func(f *faulty) {
			f.write = func(p []byte, offset int64) (int, error) {
				if offset >= 8*8192 {
					return 4096, syscall.ENOSPC
				}
				return copy(f.data[offset:], p), nil
			}
		}, []string{"write of 8192 bytes at offset ", "no space left", "free space on that disk"}},
		{"cut off", func(f *faulty) {
			f.read = func(p []byte, offset int64) (int, error) {
				if offset >= 3*8192 {
					return 100, io.ErrUnexpectedEOF
				}
				return copy(p, f.data[offset:]), nil
			}
		}, []string{"read of 8192 bytes at offset ", "unexpected EOF", "check that disk"}},
		{"short write", func(f *faulty) {
			f.write = func(p []byte, offset int64) (int, error) { return 512, io.ErrShortWrite }
		}, []string{"write of 8192 bytes at offset ", "short write", "check that disk"}},
		{"one bit", func(f *faulty) {
			f.read = func(p []byte, offset int64) (int, error) {
				n := copy(p, f.data[offset:])
				if offset == 5*8192 {
					p[1234] ^= 1
				}
				return n, nil
			}
		}, []string{"read of 8192 bytes at offset 40960", "checksum differs", "check that disk"}},
		{"lost write", func(f *faulty) {
			f.write = func(p []byte, offset int64) (int, error) {
				if offset == 7*8192 {
					return len(p), nil
				}
				return copy(f.data[offset:], p), nil
			}
		}, []string{"at offset 57344", "checksum differs"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := &faulty{}
			c.fault(disk)
			s, err := newFile(d, FileOptions{Buffers: 4, BufferBytes: 8192}, disk)
			if err != nil {
				t.Fatal(err)
			}
			v := newValues(t, d, 7*4096, 7*50_000)
			v.fill(1)
			_, err = v.run(s)
			for _, want := range append(c.want, "/scratch/lethe-spill") {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v: want %q in it", err, want)
				}
			}
			if c.name != "no room" {
				again := s.Reload(v.queue, v.tensors[0], v.offsets[0])
				var e *device.SpillError
				if !errors.As(again, &e) {
					t.Errorf("a call after the failure returns %v", again)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A slow disk holds callers up and changes nothing.
func TestSlowDisk(t *testing.T) {
	d := newDevice(t)
	disk := &faulty{}
	disk.write = func(p []byte, offset int64) (int, error) {
		time.Sleep(200 * time.Microsecond)
		return copy(disk.data[offset:], p), nil
	}
	disk.read = func(p []byte, offset int64) (int, error) {
		time.Sleep(time.Duration(offset%7) * 100 * time.Microsecond)
		return copy(p, disk.data[offset:]), nil
	}
	s, err := newFile(d, FileOptions{Buffers: 3, BufferBytes: 8192}, disk)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	v := newValues(t, d, 7*4096, 7*20_000)
	v.fill(1)
	want := v.all()
	if got, err := v.run(s); err != nil || !bytes.Equal(got, want) {
		t.Errorf("other bytes came back, or %v", err)
	}
}
