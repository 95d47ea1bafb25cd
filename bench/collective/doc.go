// Command collective measures what a collective of package mpi costs beside the same call
// of the MPI library itself and of package local.
//
//	go run -tags mpi ./bench/collective
//	go run -tags mpi ./bench/collective -n 4 -json
//
// It starts itself under mpirun, or $MPIRUN, with -n processes. The three take turns in one run, so that
// what disturbs one disturbs all; a row has the median over the turns of the time of one
// call, on rank 0, and of the ratios. MPI's own calls are blocking and poll without a rest;
// their sums are formed in float32 in an order of the library's choice. Those of Lethe are
// called from a goroutine, agree on what is called before data moves, form sums in
// float64 in the order of ranks, and leave the processor when nothing comes. The ranks of
// package local are goroutines of rank 0, while the other processes wait.
package main
