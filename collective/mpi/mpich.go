//go:build mpi && mpich

package mpi

// In a file of its own: the build cache tells packages apart by their files, not by tags in
// #cgo lines.

// #cgo pkg-config: mpich
import "C"
