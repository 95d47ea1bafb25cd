package spill

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// setDirect turns direct access on or off. A filesystem without it, as a tmpfs may be, is
// used through the page cache.
func setDirect(f *os.File, on bool) {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return
	}
	if flags &^= unix.O_DIRECT; on {
		flags |= unix.O_DIRECT
	}
	unix.FcntlInt(f.Fd(), unix.F_SETFL, flags)
}

// allocate makes room on the disk, where the filesystem can tell beforehand.
func allocate(f *os.File, size int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return f.Truncate(size)
	}
	return err
}
