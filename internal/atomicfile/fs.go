package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// FS is the handful of file operations a durable write is made of. [OS] is the
// real one; package crashfs has one that fails and crashes on demand. Errors
// name the path.
type FS interface {
	// Create opens a file for writing and empties it if it exists.
	Create(path string) (File, error)
	Mkdir(path string) error
	Rename(from, to string) error
	// RemoveAll is os.RemoveAll: nothing to remove is no error.
	RemoveAll(path string) error
	// SyncDir makes the names in a folder durable.
	SyncDir(path string) error
}

// File is a file being written.
type File interface {
	io.WriteCloser
	// Sync makes what was written durable.
	Sync() error
}

// OS is the file system of the operating system.
var OS FS = osFS{}

type osFS struct{}

func (osFS) Create(path string) (File, error) { return os.Create(path) }
func (osFS) Mkdir(path string) error          { return os.Mkdir(path, 0o777) }
func (osFS) Rename(from, to string) error     { return os.Rename(from, to) }
func (osFS) RemoveAll(path string) error      { return os.RemoveAll(path) }

func (osFS) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	// Some file systems cannot sync a folder; nothing more can be done there.
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
