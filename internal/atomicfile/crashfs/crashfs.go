// Package crashfs is an [atomicfile.FS] that fails, or loses power, at a chosen
// operation. Tests run a write once to count its operations and then once for
// every operation and way to fail.
package crashfs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/lethe-go/lethe/internal/atomicfile"
)

// Mode says what happens at the chosen operation.
type Mode int

const (
	// Fail makes one operation fail with EIO, a write after half its bytes.
	Fail Mode = iota
	// Full makes every write from then on fail with ENOSPC.
	Full
	// Kill stops the process: this and all later operations do nothing.
	Kill
	// PowerLoss is Kill, and what was not synced is lost at random: ends of
	// files, files, and renames from the last one backwards.
	PowerLoss
)

var modes = [...]string{"Fail", "Full", "Kill", "PowerLoss"}

func (m Mode) String() string { return modes[m] }

// ErrStopped is what every operation returns once the process is gone.
var ErrStopped = errors.New("crashfs: stopped")

// FS does its work on the real file system. Use it from one goroutine.
type FS struct {
	// At is the operation, from 1, at which Mode happens; 0 is never.
	At   int
	Mode Mode
	// Seed of what a power loss takes.
	Seed uint64

	// Ops counts the operations so far.
	Ops int

	full, stopped bool
	unsynced      []effect // in order
}

// effect is something a power loss may undo.
type effect struct {
	folder string // whose sync makes it durable; "" for the content of a file
	file   string // whose sync makes it durable
	undo   func(r *rand.Rand) error
}

var _ atomicfile.FS = (*FS)(nil)

// step counts an operation and says how it fails.
func (f *FS) step(op, path string, write bool) error {
	if f.stopped {
		return ErrStopped
	}
	f.Ops++
	if f.Ops == f.At {
		switch f.Mode {
		case Fail:
			return &os.PathError{Op: op, Path: path, Err: syscall.EIO}
		case Full:
			f.full = true
		default:
			f.stopped = true
			if f.Mode == PowerLoss {
				f.losePower()
			}
			return ErrStopped
		}
	}
	if f.full && write {
		return &os.PathError{Op: op, Path: path, Err: syscall.ENOSPC}
	}
	return nil
}

// losePower undoes a random suffix of the effects that are not durable: a
// journal keeps their order. File contents have no order and go by themselves.
func (f *FS) losePower() {
	r := rand.New(rand.NewPCG(f.Seed, uint64(f.At)))
	kept := r.IntN(len(f.unsynced) + 1)
	for i := len(f.unsynced) - 1; i >= 0; i-- {
		e := f.unsynced[i]
		if e.folder == "" || i >= kept {
			if err := e.undo(r); err != nil {
				panic(fmt.Sprint("crashfs: ", err))
			}
		}
	}
}

// durable forgets the effects that a sync made safe.
func (f *FS) durable(is func(effect) bool) {
	var left []effect
	for _, e := range f.unsynced {
		if !is(e) {
			left = append(left, e)
		}
	}
	f.unsynced = left
}

func (f *FS) Create(path string) (atomicfile.File, error) {
	if err := f.step("open", path, true); err != nil {
		return nil, err
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	f.unsynced = append(f.unsynced, effect{folder: filepath.Dir(path), undo: func(*rand.Rand) error { return os.RemoveAll(path) }})
	return &writer{f, file}, nil
}

func (f *FS) Mkdir(path string) error {
	if err := f.step("mkdir", path, true); err != nil {
		return err
	}
	f.unsynced = append(f.unsynced, effect{folder: filepath.Dir(path), undo: func(*rand.Rand) error { return os.RemoveAll(path) }})
	return os.Mkdir(path, 0o777)
}

func (f *FS) Rename(from, to string) error {
	if err := f.step("rename", from, false); err != nil {
		return err
	}
	if err := f.moveContents(from, to); err != nil {
		return err
	}
	f.unsynced = append(f.unsynced, effect{folder: filepath.Dir(to), undo: func(*rand.Rand) error { return os.Rename(to, from) }})
	return nil
}

// moveContents renames and lets earlier effects follow the files they are on.
func (f *FS) moveContents(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	for i, e := range f.unsynced {
		if e.file == from || strings.HasPrefix(e.file, from+"/") {
			moved := to + strings.TrimPrefix(e.file, from)
			f.unsynced[i] = contentLoss(moved)
		}
	}
	return nil
}

// RemoveAll when stopped halfway has removed some of the files.
func (f *FS) RemoveAll(path string) error {
	if _, err := os.Lstat(path); err != nil {
		return nil // nothing to remove is nothing to count
	}
	err := f.step("remove", path, false)
	if err != nil {
		if f.Ops == f.At {
			if entries, _ := os.ReadDir(path); len(entries) > 1 {
				os.RemoveAll(filepath.Join(path, entries[0].Name()))
			}
		}
		return err
	}
	return os.RemoveAll(path)
}

func (f *FS) SyncDir(path string) error {
	if err := f.step("sync", path, false); err != nil {
		return err
	}
	f.durable(func(e effect) bool { return e.folder == path })
	return nil
}

// contentLoss cuts the file at path at a random place.
func contentLoss(path string) effect {
	return effect{file: path, undo: func(r *rand.Rand) error {
		info, err := os.Stat(path)
		if err != nil || info.Size() == 0 {
			return nil
		}
		return os.Truncate(path, r.Int64N(info.Size()))
	}}
}

type writer struct {
	fs   *FS
	file *os.File
}

func (w *writer) Write(p []byte) (int, error) {
	if err := w.fs.step("write", w.file.Name(), true); err != nil {
		if errors.Is(err, ErrStopped) && w.fs.Ops != w.fs.At {
			return 0, err
		}
		n, _ := w.file.Write(p[:len(p)/2])
		return n, err
	}
	w.fs.unsynced = append(w.fs.unsynced, contentLoss(w.file.Name()))
	return w.file.Write(p)
}

func (w *writer) Sync() error {
	if err := w.fs.step("sync", w.file.Name(), false); err != nil {
		return err
	}
	w.fs.durable(func(e effect) bool { return e.folder == "" && e.file == w.file.Name() })
	return nil
}

func (w *writer) Close() error { return w.file.Close() }
