// Package atomicfile writes files and folders that are either complete or not
// there, whenever the process is killed or the machine stops.
//
// A file is written as NAME.tmp beside its destination, synced, renamed, and the
// folder synced. A folder is built as NAME.tmp and renamed the same way. Where a
// folder already has the name, that one is NAME.old between the two renames:
// the folder is never without a complete version. [Recover] removes what a
// killed process left of both kinds.
//
// Two processes must not write to one destination, except as [JoinDir] allows.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Suffixes of what is not, or no longer, under its final name.
const (
	TempSuffix = ".tmp" // being written, or being removed
	OldSuffix  = ".old" // complete, being replaced
)

// Write makes write's output the content of the file at path.
func Write(fs FS, path string, write func(io.Writer) error) error {
	temp := path + TempSuffix
	if err := writeSynced(fs, temp, write); err != nil {
		return errors.Join(err, fs.RemoveAll(temp))
	}
	if err := fs.Rename(temp, path); err != nil {
		return errors.Join(err, fs.RemoveAll(temp))
	}
	return fs.SyncDir(filepath.Dir(path))
}

// WriteFile makes data the content of the file at path.
func WriteFile(path string, data []byte) error {
	return Write(OS, path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

func writeSynced(fs FS, path string, write func(io.Writer) error) error {
	f, err := fs.Create(path)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	var pathErr *os.PathError
	if err != nil && !errors.As(err, &pathErr) {
		err = fmt.Errorf("write %s: %w", path, err)
	}
	return err
}

// Dir is a folder being built. End it with Commit or Abort.
type Dir struct {
	fs   FS
	path string
}

// CreateDir begins to build the folder that will be at path. What an earlier,
// killed build of it left is removed.
func CreateDir(fs FS, path string) (*Dir, error) {
	if err := fs.RemoveAll(path + TempSuffix); err != nil {
		return nil, err
	}
	if err := fs.Mkdir(path + TempSuffix); err != nil {
		return nil, err
	}
	return &Dir{fs, path}, nil
}

// JoinDir lets another process add files to a folder that is being built. The one that
// began ends it, once all others are done.
func JoinDir(fs FS, path string) *Dir { return &Dir{fs, path} }

// WriteFile adds a file with write's output and syncs it.
func (d *Dir) WriteFile(name string, write func(io.Writer) error) error {
	return writeSynced(d.fs, filepath.Join(d.path+TempSuffix, name), write)
}

// Commit gives the folder its name, in place of one that already has it. When
// it returns without an error the folder is durable.
func (d *Dir) Commit() error {
	temp, old, parent := d.path+TempSuffix, d.path+OldSuffix, filepath.Dir(d.path)
	if err := d.fs.SyncDir(temp); err != nil {
		return err
	}
	replaces, err := exists(d.path)
	if err != nil {
		return err
	}
	if replaces {
		if err := d.fs.RemoveAll(old); err != nil {
			return err
		}
		if err := d.fs.Rename(d.path, old); err != nil {
			return err
		}
	}
	if err := d.fs.Rename(temp, d.path); err != nil {
		return err
	}
	if err := d.fs.SyncDir(parent); err != nil {
		return err
	}
	if replaces {
		return RemoveDir(d.fs, old)
	}
	return nil
}

// Abort removes what was built.
func (d *Dir) Abort() error { return d.fs.RemoveAll(d.path + TempSuffix) }

// RemoveDir removes a folder so that it is never seen without some of its
// files: it loses its name first.
func RemoveDir(fs FS, path string) error {
	temp := strings.TrimSuffix(path, OldSuffix) + TempSuffix
	if err := fs.RemoveAll(temp); err != nil {
		return err
	}
	if err := fs.Rename(path, temp); err != nil {
		return err
	}
	// A rename that is not durable could come back after the files are gone.
	if err := fs.SyncDir(filepath.Dir(path)); err != nil {
		return err
	}
	return fs.RemoveAll(temp)
}

// Recover ends what killed processes began in parent, for the names that match
// accepts: unfinished folders and files are removed, and a folder that was being
// replaced gets its name back unless its successor has it.
func Recover(fs FS, parent string, match func(name string) bool) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(parent, e.Name())
		if name, ok := strings.CutSuffix(e.Name(), TempSuffix); ok && match(name) {
			if err := fs.RemoveAll(path); err != nil {
				return err
			}
		}
		if name, ok := strings.CutSuffix(e.Name(), OldSuffix); ok && match(name) {
			if err := recoverOld(fs, filepath.Join(parent, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func recoverOld(fs FS, path string) error {
	replaced, err := exists(path)
	if err != nil {
		return err
	}
	if replaced {
		// The successor's name may not be durable yet.
		if err := fs.SyncDir(filepath.Dir(path)); err != nil {
			return err
		}
		return RemoveDir(fs, path+OldSuffix)
	}
	if err := fs.Rename(path+OldSuffix, path); err != nil {
		return err
	}
	return fs.SyncDir(filepath.Dir(path))
}

// MkdirAll makes a folder and those above it, and makes their names durable.
func MkdirAll(fs FS, path string) error {
	present, err := exists(path)
	if err != nil || present {
		return err
	}
	parent := filepath.Dir(path)
	if err := MkdirAll(fs, parent); err != nil {
		return err
	}
	if err := fs.Mkdir(path); err != nil {
		return err
	}
	return fs.SyncDir(parent)
}
