package spill

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cespare/xxhash/v2"
	"github.com/lethe-go/lethe/device"
)

// File is a file on a disk. It is gone when it is closed and, where a file in use can be
// removed, when the process ends in any way.
//
// Values go through a ring of buffers in host memory. Offload returns when the last of a
// value is in the ring, which is written beside; Reload reads as far ahead as the ring
// goes. Each buffer's checksum (xxHash64) is kept in memory and compared when it is read
// back. The page cache is left out (O_DIRECT) where the filesystem allows it, so that what
// was moved out of memory does not stay in it.
//
// The first failure of a write or read is final: every later call returns it.
type File struct {
	disk   Disk
	size   int64
	sums   []uint64 // of buffers, by the number of the page in the file that each begins at
	buffer int64    // bytes of each buffer of the ring
	memory device.Buffer
	free   chan *chunk
	work   chan *chunk
	ahead  []*chunk // being read, in order
	writes sync.WaitGroup
	failed atomic.Pointer[error]
	worker sync.WaitGroup
}

// FileOptions of a File.
type FileOptions struct {
	// Dir is the folder whose disk is used. It must exist.
	Dir string
	// Buffers in the ring and BufferBytes of each, a multiple of [device.SpillAlignment];
	// 0 means what RingBytes has.
	Buffers     int
	BufferBytes int64
	// Through puts something between the ring and the file, such as Limit does; nil is
	// nothing.
	Through func(Disk) Disk
}

// RingBytes is the host memory of a ring by default, 16 buffers of 1 MiB.
const (
	RingBytes      = ringBuffers * ringBufferSize
	ringBuffers    = 16
	ringBufferSize = 1 << 20
)

// chunk is a buffer of the ring, and what is to be done with it.
type chunk struct {
	memory device.Tensor // bytes
	offset int64         // in the file
	bytes  int64         // of the value; the rest of the last page is padding
	read   bool
	done   chan error // of a read
}

// NewFile makes a file, and a ring in host memory of dev.
func NewFile(dev device.Device, o FileOptions) (*File, error) {
	disk, err := create(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("spill: %w; choose a folder in which files can be made", err)
	}
	return newFile(dev, o, disk)
}

func newFile(dev device.Device, o FileOptions, disk Disk) (*File, error) {
	if o.Through != nil {
		disk = o.Through(disk)
	}
	if o.Buffers == 0 {
		o.Buffers = ringBuffers
	}
	if o.BufferBytes == 0 {
		o.BufferBytes = ringBufferSize
	}
	if o.Buffers < 0 || o.BufferBytes < 0 || o.BufferBytes%device.SpillAlignment != 0 {
		disk.Close()
		return nil, fmt.Errorf("spill: a ring of %d buffers of %d bytes: want multiples of %d bytes", o.Buffers, o.BufferBytes, device.SpillAlignment)
	}
	ring := int64(o.Buffers) * o.BufferBytes
	memory, err := dev.Alloc(device.OnHost, ring+device.SpillAlignment)
	if err != nil {
		disk.Close()
		return nil, fmt.Errorf("spill: a ring of %d bytes of host memory: %w", ring, err)
	}
	f := &File{disk: disk, buffer: o.BufferBytes, memory: memory, free: make(chan *chunk, o.Buffers), work: make(chan *chunk, o.Buffers),
		ahead: make([]*chunk, 0, o.Buffers)}
	at := int64(-uintptr(memory.Pointer()) & (device.SpillAlignment - 1))
	for range o.Buffers {
		f.free <- &chunk{memory: device.NewTensor(memory, at, device.Uint8, int(o.BufferBytes)), done: make(chan error, 1)}
		at += o.BufferBytes
		f.worker.Go(f.transfer)
	}
	return f, nil
}

// Name implements device.Spill.
func (f *File) Name() string { return f.disk.Name() }

// Reserve implements device.Spill: it makes room on the disk, so that a disk that is too
// small is noticed before the first step.
func (f *File) Reserve(bytes int64) error {
	if bytes <= f.size {
		return nil
	}
	if err := f.disk.Allocate(bytes); err != nil {
		return fmt.Errorf("spill: %s: room for %d bytes: %w%s", f.Name(), bytes, err, remedy(err))
	}
	f.size, f.sums = bytes, make([]uint64, bytes/device.SpillAlignment+1)
	return nil
}

// Offload implements device.Spill.
func (f *File) Offload(q device.Queue, offset int64, t device.Tensor) error {
	t = t.Reshape(t.Len())
	for done := int64(0); done < t.Bytes(); {
		if err := f.err(); err != nil {
			return err
		}
		c := <-f.free
		c.read, c.offset, c.bytes = false, offset+done, min(f.buffer, t.Bytes()-done)
		if err := copyPart(q, c.as(t.DType()), t, done, true); err != nil {
			f.free <- c
			return err
		}
		f.sums[c.offset/device.SpillAlignment] = xxhash.Sum64(c.value())
		done += c.bytes
		f.writes.Add(1)
		f.work <- c
	}
	return nil
}

// Reload implements device.Spill.
func (f *File) Reload(q device.Queue, t device.Tensor, offset int64) error {
	f.writes.Wait()
	if err := f.err(); err != nil {
		return err
	}
	t = t.Reshape(t.Len())
	var err error
	for asked, done := int64(0), int64(0); done < t.Bytes() && err == nil; {
		for asked < t.Bytes() && len(f.ahead) < cap(f.free) {
			c := <-f.free
			c.read, c.offset, c.bytes = true, offset+asked, min(f.buffer, t.Bytes()-asked)
			asked += c.bytes
			f.ahead = append(f.ahead, c)
			f.work <- c
		}
		c := f.next()
		if err = f.arrived(c); err == nil {
			err = copyPart(q, c.as(t.DType()), t, done, false)
			done += c.bytes
		}
		f.free <- c
	}
	for len(f.ahead) > 0 { // after an error
		c := f.next()
		<-c.done
		f.free <- c
	}
	return err
}

// next is the chunk that was asked for first.
func (f *File) next() *chunk {
	c := f.ahead[0]
	f.ahead = f.ahead[:copy(f.ahead, f.ahead[1:])]
	return c
}

// arrived waits for a read and compares what has come with what was written.
func (f *File) arrived(c *chunk) error {
	if err := <-c.done; err != nil {
		return err
	}
	if xxhash.Sum64(c.value()) != f.sums[c.offset/device.SpillAlignment] {
		return f.fail(c, "read", errors.New("the checksum differs from that of what was written: the disk returned other bytes"))
	}
	return nil
}

// transfer writes and reads chunks.
func (f *File) transfer() {
	for c := range f.work {
		pages := device.Raw(c.memory)[:device.Align(c.bytes, device.SpillAlignment)]
		if c.read {
			_, err := f.disk.ReadAt(pages, c.offset)
			if err != nil {
				err = f.fail(c, "read", err)
			}
			c.done <- err
			continue
		}
		if _, err := f.disk.WriteAt(pages, c.offset); err != nil {
			f.fail(c, "write", err)
		}
		f.free <- c
		f.writes.Done()
	}
}

// fail keeps the first failure, and returns this one.
func (f *File) fail(c *chunk, what string, err error) error {
	var e error = &device.SpillError{Offset: c.offset,
		Err: fmt.Errorf("spill: %s: %s of %d bytes at offset %d: %w%s", f.Name(), what, c.bytes, c.offset, err, remedy(err))}
	f.failed.CompareAndSwap(nil, &e)
	return e
}

func (f *File) err() error {
	if e := f.failed.Load(); e != nil {
		return *e
	}
	return nil
}

// remedy says what to do about a failure.
func remedy(err error) string {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		return "; free space on that disk, choose a folder on a larger one, or offload less"
	}
	return "; check that disk, or choose a folder on another one"
}

// Close implements device.Spill.
func (f *File) Close() error {
	close(f.work)
	f.worker.Wait()
	f.memory.Free()
	return f.disk.Close()
}

// value are the bytes of the value in the chunk.
func (c *chunk) value() []byte { return device.Raw(c.memory)[:c.bytes] }

// as is the value in the chunk as elements.
func (c *chunk) as(d device.DType) device.Tensor {
	return device.NewTensor(c.memory.Buffer(), c.memory.Offset(), d, int(c.bytes)/d.Size())
}

// copyGrain is how many elements are copied at a time: so few that a device whose workers
// all kernels share gives none of them to a copy, which would only wait for memory.
const copyGrain = 16 << 10

// copyPart copies between a chunk and the elements of t from a byte on.
func copyPart(q device.Queue, c, t device.Tensor, at int64, out bool) error {
	first := int(at) / t.DType().Size()
	for lo := 0; lo < c.Len(); lo += copyGrain {
		hi := min(lo+copyGrain, c.Len())
		dst, src := t.Slice(0, first+lo, first+hi), c.Slice(0, lo, hi)
		if out {
			dst, src = src, dst
		}
		q.Copy(dst, src)
	}
	return q.Sync()
}
