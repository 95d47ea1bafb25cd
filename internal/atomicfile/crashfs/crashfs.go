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
	"slices"
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
	// ReadOnly makes every operation from then on fail with EROFS, as a file system
	// does that the kernel has remounted after an error.
	ReadOnly
	// Kill stops the process: this and all later operations do nothing.
	Kill
	// PowerLoss is Kill, and what was not synced is lost at random: see
	// [FS.LosePower].
	PowerLoss
)

var modes = [...]string{"Fail", "Full", "ReadOnly", "Kill", "PowerLoss"}

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

	full, readOnly, stopped bool
	unsynced                []effect // in order
}

// effect is something a power loss may undo.
type effect struct {
	kind     effectKind
	path     string // of the file or folder
	from     string // rename: what path was before
	replaced []byte // rename: the file that path was until then; nil if none
}

type effectKind int

const (
	written effectKind = iota // bytes of a file; its own sync makes them durable
	created                   // a name; the sync of its folder makes it durable
	renamed                   // likewise
)

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
		case ReadOnly:
			f.readOnly = true
		default:
			f.stopped = true
			if f.Mode == PowerLoss {
				f.LosePower()
			}
			return ErrStopped
		}
	}
	if f.readOnly {
		return &os.PathError{Op: op, Path: path, Err: syscall.EROFS}
	}
	if f.full && write {
		return &os.PathError{Op: op, Path: path, Err: syscall.ENOSPC}
	}
	return nil
}

// LosePower undoes a random suffix of the names that are not durable, for a
// journal keeps their order, and cuts files that are not synced or fills them with what
// the disk held before.
func (f *FS) LosePower() {
	f.stopped = true
	r := rand.New(rand.NewPCG(f.Seed, uint64(f.At)))
	kept := r.IntN(len(f.unsynced) + 1)
	for i := len(f.unsynced) - 1; i >= 0; i-- {
		e := f.unsynced[i]
		if e.kind != written && i < kept {
			continue
		}
		if err := f.undo(e, f.unsynced[:i], r); err != nil && !errors.Is(err, os.ErrNotExist) {
			panic(fmt.Sprint("crashfs: ", err))
		}
	}
}

func (f *FS) undo(e effect, earlier []effect, r *rand.Rand) error {
	switch e.kind {
	case created:
		return os.RemoveAll(e.path)
	case written:
		info, err := os.Stat(e.path)
		if err != nil || info.Size() == 0 {
			return err
		}
		return tear(e.path, info.Size(), r)
	}
	if err := os.Rename(e.path, e.from); err != nil {
		return err
	}
	relocate(earlier, e.path, e.from)
	if e.replaced == nil {
		return nil
	}
	return os.WriteFile(e.path, e.replaced, 0o666)
}

// tear makes the file what a crash may make of one whose length, but not whose data, had
// reached the disk: shorter, or with zeros or old blocks from some place on.
func tear(path string, size int64, r *rand.Rand) error {
	at := r.Int64N(size)
	if r.IntN(3) == 0 {
		return os.Truncate(path, at)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	zeros := r.IntN(2) == 0
	for i := range data[at:] {
		if data[at+int64(i)] = 0; !zeros {
			data[at+int64(i)] = byte(r.Uint32())
		}
	}
	return os.WriteFile(path, data, 0o666)
}

// relocate lets effects follow what they are on when it is renamed.
func relocate(effects []effect, from, to string) {
	for i, e := range effects {
		if rest, ok := strings.CutPrefix(e.path, from); ok && (rest == "" || rest[0] == filepath.Separator) {
			effects[i].path = to + rest
		}
	}
}

// durable forgets the effects that a sync made safe.
func (f *FS) durable(is func(effect) bool) { f.unsynced = slices.DeleteFunc(f.unsynced, is) }

func (f *FS) Create(path string) (atomicfile.File, error) {
	if err := f.step("open", path, true); err != nil {
		return nil, err
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	f.unsynced = append(f.unsynced, effect{kind: created, path: path})
	return &writer{f, file}, nil
}

func (f *FS) Mkdir(path string) error {
	if err := f.step("mkdir", path, true); err != nil {
		return err
	}
	f.unsynced = append(f.unsynced, effect{kind: created, path: path})
	return os.Mkdir(path, 0o777)
}

func (f *FS) Rename(from, to string) error {
	if err := f.step("rename", from, false); err != nil {
		return err
	}
	replaced, _ := os.ReadFile(to) // nil if there is none, or a folder
	if err := os.Rename(from, to); err != nil {
		return err
	}
	relocate(f.unsynced, from, to)
	f.unsynced = append(f.unsynced, effect{kind: renamed, path: to, from: from, replaced: replaced})
	return nil
}

// RemoveAll when stopped halfway has removed some of the files.
func (f *FS) RemoveAll(path string) error {
	if _, err := os.Lstat(path); err != nil {
		return nil // nothing to remove is nothing to count
	}
	if entries, _ := os.ReadDir(path); f.Ops+1 == f.At && !f.stopped && len(entries) > 1 {
		if err := os.RemoveAll(filepath.Join(path, entries[0].Name())); err != nil {
			return err
		}
	}
	if err := f.step("remove", path, false); err != nil {
		return err
	}
	return os.RemoveAll(path)
}

func (f *FS) SyncDir(path string) error {
	if err := f.step("sync", path, false); err != nil {
		return err
	}
	f.durable(func(e effect) bool { return e.kind != written && filepath.Dir(e.path) == path })
	return nil
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
	w.fs.unsynced = append(w.fs.unsynced, effect{kind: written, path: w.file.Name()})
	return w.file.Write(p)
}

func (w *writer) Sync() error {
	if err := w.fs.step("sync", w.file.Name(), false); err != nil {
		return err
	}
	w.fs.durable(func(e effect) bool { return e.kind == written && e.path == w.file.Name() })
	return nil
}

func (w *writer) Close() error { return w.file.Close() }
