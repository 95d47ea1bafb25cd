package spill

import (
	"errors"
	"os"
	"sync"
	"syscall"
)

// osFile is a file of the operating system. It has lost its name, where a file that is open
// may; elsewhere Close removes it.
type osFile struct {
	*os.File
	named    bool
	buffered sync.Once // direct access was given up
}

// create makes a file in a folder.
func create(dir string) (Disk, error) {
	f, err := os.CreateTemp(dir, "lethe-spill-*")
	if err != nil {
		return nil, err
	}
	named := os.Remove(f.Name()) != nil
	setDirect(f, true)
	return &osFile{File: f, named: named}, nil
}

// Allocate implements Disk.
func (f *osFile) Allocate(size int64) error { return allocate(f.File, size) }

func (f *osFile) ReadAt(p []byte, offset int64) (int, error) {
	n, err := f.File.ReadAt(p, offset)
	if f.giveUpDirect(err) {
		return f.File.ReadAt(p, offset)
	}
	return n, err
}

func (f *osFile) WriteAt(p []byte, offset int64) (int, error) {
	n, err := f.File.WriteAt(p, offset)
	if f.giveUpDirect(err) {
		return f.File.WriteAt(p, offset)
	}
	return n, err
}

// giveUpDirect goes through the page cache from now on if a transfer was refused: on some
// filesystems direct access has rules of its own.
func (f *osFile) giveUpDirect(err error) bool {
	if !errors.Is(err, syscall.EINVAL) {
		return false
	}
	f.buffered.Do(func() { setDirect(f.File, false) })
	return true
}

func (f *osFile) Close() error {
	err := f.File.Close()
	if f.named {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}
