//go:build !mpi

package main

import (
	"context"
	"fmt"
	"os"

	"github.com/lethe-go/lethe/collective/mpi"
)

func main() {
	_, err := mpi.Init(context.Background())
	fmt.Fprintln(os.Stderr, "collective:", err)
	os.Exit(1)
}
