package spill

// Disk is what a [File] asks of the operating system. Reads and writes are of whole pages of
// [device.SpillAlignment] bytes, and several are made at a time.
type Disk interface {
	ReadAt(p []byte, offset int64) (int, error)
	WriteAt(p []byte, offset int64) (int, error)
	// Allocate makes room for the first bytes of the file, if the filesystem can tell
	// beforehand.
	Allocate(bytes int64) error
	Name() string
	Close() error
}
