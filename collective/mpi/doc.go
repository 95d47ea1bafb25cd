// Package mpi is a [collective.Group] whose ranks are processes that mpirun or Slurm has
// started, with MPI between them.
//
// # Building
//
// The package needs cgo, pkg-config and the headers of an MPI; without the build tag mpi
// it is a stub whose [Init] says so.
//
//	apt-get install libopenmpi-dev openmpi-bin   go build -tags mpi ./cmd/lethe
//	apt-get install libmpich-dev mpich           go build -tags mpi,mpich ./cmd/lethe
//
// The first asks pkg-config for ompi-c, the second for mpich; PKG_CONFIG_PATH may lead to
// another installation. A program runs under the launcher of the MPI it was built with.
//
// # One thread
//
// One locked OS thread makes all MPI calls of the process (MPI_THREAD_FUNNELED). It takes
// what groups ask for from a queue and makes progress on all of them by turns, with
// non-blocking messages: a first few polls in a row, then rests of up to 200 µs, or 5 ms
// while no collective is under way.
//
// # A collective
//
// Each rank sends a header of 200 bytes to each other rank: sequence number, kind, dtype,
// shape, counts, and the node that calls. Data follows when all headers are there and
// agree, so that a mismatch is an error that names both sides and no data is ever
// received into the wrong place. The price is one message of latency, whatever the size.
// Data goes from tensor to tensor, in messages of at most 1 GiB, so that no count
// overflows MPI's int. With n the bytes that a rank brings to a group of P ranks, it sends
//
//	all_to_all       the rows for others
//	all_reduce       2·(P−1)/P·n: an all-to-all of parts, a sum, an all-gather
//	all_gather       (P−1)·n
//	reduce_scatter   (P−1)/P·n
//	broadcast        (P−1)·n from root
//
// Sums are formed by the ranks themselves in the order of ranks, as Group demands: the
// bits are those of collective/local and do not depend on the library.
//
// # Groups
//
// A group is a range of tags on one duplicate of MPI_COMM_WORLD, agreed upon as it is
// opened, and not a communicator: opening then blocks nobody in MPI and can be given up,
// there may be thousands, and a group that was aborted can be renewed while messages
// of its past are still on their way.
//
// # Failures
//
// An error on one rank reaches the others on a second duplicate. They stop with an error
// that names it, once their messages have been sent, received or cancelled: tensors are
// then the caller's again. A peer that is dead or hangs is found by the deadline; messages
// to it are given two seconds more. Where MPI itself does not return, as Open MPI may when it
// sees that a peer on another machine is gone, calls end after three, and [World.Waiting]
// still tells who is missing. What a launcher does when a process dies, usually to end all
// others, is up to it.
package mpi
