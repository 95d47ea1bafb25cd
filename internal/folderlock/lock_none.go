//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package folderlock

import "os"

func lock(*os.File) error { return nil }
