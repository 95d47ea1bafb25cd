// Package folderlock keeps two processes from writing to one folder.
//
// The lock is on an open file and belongs to the operating system, which drops it when
// the process ends, however it ends: there are no stale locks to clean up. It is flock on
// Linux, macOS and the BSDs and LockFileEx on Windows; elsewhere there is none.
package folderlock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// FileName is the name of the file that is locked. It stays when the lock is gone.
const FileName = "lock"

// Lock is a held lock.
type Lock struct{ file *os.File }

// HeldError says that somebody else holds the lock.
type HeldError struct {
	Path string // of the file
	PID  int    // of the holder; 0 if it is not known
}

func (e *HeldError) Error() string {
	by := "another process"
	if e.PID > 0 {
		by = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("%s is locked by %s", e.Path, by)
}

// errHeld is what lock returns for a file that is locked.
var errHeld = errors.New("held")

// Acquire locks a folder, which exists, or fails at once: with a [HeldError], with an
// error that wraps errors.ErrUnsupported where the file system cannot lock, or with
// another one. The same process is not let in twice either.
func Acquire(folder string) (*Lock, error) {
	path := filepath.Join(folder, FileName)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	if err := lock(file); err != nil {
		defer file.Close()
		if errors.Is(err, errHeld) {
			return nil, &HeldError{path, readPID(path)}
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	l := &Lock{file}
	// Only for the message of whoever comes next: nothing depends on it.
	if err := file.Truncate(0); err == nil {
		_, _ = file.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	return l, nil
}

// Release gives the lock up.
func (l *Lock) Release() error {
	_ = l.file.Truncate(0)
	return l.file.Close()
}

func readPID(path string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}
