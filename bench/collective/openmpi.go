//go:build mpi && !mpich

package main

// In a file of its own: the build cache tells packages apart by their files, not by tags in
// #cgo lines.

// #cgo pkg-config: ompi-c
import "C"
