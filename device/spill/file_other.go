//go:build !linux

package spill

import "os"

// setDirect does nothing: files go through the page cache.
func setDirect(*os.File, bool) {}

// allocate makes the file as long as it will be.
func allocate(f *os.File, size int64) error { return f.Truncate(size) }
