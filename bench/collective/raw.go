//go:build mpi

package main

/*
#include <mpi.h>

// raw runs a collective of MPI's own n times and returns the seconds that it took. floats is
// what a rank brings, a multiple of the number of ranks.
static double raw(int kind, int n, float *out, float *in, int floats) {
	int ranks;
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	double begin = MPI_Wtime();
	for (int i = 0; i < n; i++) switch (kind) {
	case 0: MPI_Alltoall(in, floats / ranks, MPI_FLOAT, out, floats / ranks, MPI_FLOAT, MPI_COMM_WORLD); break;
	case 1: MPI_Allreduce(MPI_IN_PLACE, out, floats, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
	case 2: MPI_Allgather(in, floats / ranks, MPI_FLOAT, out, floats / ranks, MPI_FLOAT, MPI_COMM_WORLD); break;
	case 3: MPI_Reduce_scatter_block(in, out, floats / ranks, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
	case 4: MPI_Bcast(out, floats, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
	case 5: MPI_Barrier(MPI_COMM_WORLD); break;
	}
	return MPI_Wtime() - begin;
}
*/
import "C"

import (
	"unsafe"

	"github.com/lethe-go/lethe/collective"
)

// rawSeconds runs MPI's own blocking collective calls times, on the thread of MPI.
func rawSeconds(kind collective.Kind, calls int, out, in []float32) float64 {
	return float64(C.raw(C.int(kind), C.int(calls), (*C.float)(unsafe.SliceData(out)), (*C.float)(unsafe.SliceData(in)), C.int(len(in))))
}
