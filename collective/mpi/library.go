//go:build mpi

package mpi

/*
#include <mpi.h>
#include <stdlib.h>
#cgo noescape letheSend
#cgo nocallback letheSend
#cgo noescape letheReceive
#cgo nocallback letheReceive
#cgo noescape letheTest
#cgo nocallback letheTest
#cgo noescape letheProbe
#cgo nocallback letheProbe

// Macros that cgo cannot read.
static int letheInit(int *provided) { return MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, provided); }

static int letheDup(MPI_Comm *comm) {
	int err = MPI_Comm_dup(MPI_COMM_WORLD, comm);
	return err != MPI_SUCCESS ? err : MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
}

static int letheWorld(int *rank, int *size, int *tags) {
	int *bound, found = 0, err;
	if ((err = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)) != MPI_SUCCESS) return err;
	if ((err = MPI_Comm_rank(MPI_COMM_WORLD, rank)) != MPI_SUCCESS) return err;
	if ((err = MPI_Comm_size(MPI_COMM_WORLD, size)) != MPI_SUCCESS) return err;
	if ((err = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found)) != MPI_SUCCESS) return err;
	*tags = found ? *bound : 32767; // the least that the standard allows
	return MPI_SUCCESS;
}

static int letheSend(void *p, int n, int to, int tag, MPI_Comm comm, MPI_Request *r) {
	return MPI_Isend(p, n, MPI_BYTE, to, tag, comm, r);
}

static int letheReceive(void *p, int n, int from, int tag, MPI_Comm comm, MPI_Request *r) {
	return MPI_Irecv(p, n, MPI_BYTE, from < 0 ? MPI_ANY_SOURCE : from, tag, comm, r);
}

// letheTest returns how many requests are done: which, and the error of each.
static int letheTest(int n, MPI_Request *r, int *index, int *errors, MPI_Status *status, int *count) {
	int err = MPI_Testsome(n, r, count, index, status);
	if (*count == MPI_UNDEFINED) *count = 0;
	for (int i = 0; i < *count; i++) errors[i] = err == MPI_ERR_IN_STATUS ? status[i].MPI_ERROR : MPI_SUCCESS;
	return err == MPI_ERR_IN_STATUS ? MPI_SUCCESS : err;
}

static int letheProbe(int tag, MPI_Comm comm, int *from, int *bytes) {
	MPI_Status status;
	int found = 0, err = MPI_Iprobe(MPI_ANY_SOURCE, tag, comm, &found, &status);
	if (err != MPI_SUCCESS || !found) { *from = -1; return err; }
	*from = status.MPI_SOURCE;
	return MPI_Get_count(&status, MPI_BYTE, bytes);
}

static int letheAllGather(void *own, int n, void *all) {
	return MPI_Allgather(own, n, MPI_BYTE, all, n, MPI_BYTE, MPI_COMM_WORLD);
}

static MPI_Request letheNull(void) { return MPI_REQUEST_NULL; }
*/
import "C"

import (
	"fmt"
	"strings"
	"sync"
	"unsafe"
)

// knowledge guards what the thread knows of its groups. It holds it, except while it rests or
// is in a call that makes progress: Open MPI may not return from one in which it sees that a
// peer is gone, and then others still have to learn for whom this process waits.
var knowledge sync.Mutex

// anyRank receives from every rank.
const anyRank = -1

// communicator of all processes.
type communicator struct{ handle C.MPI_Comm }

// failure is an error code of MPI.
func failure(call string, code C.int) error {
	if code == C.MPI_SUCCESS {
		return nil
	}
	var text [C.MPI_MAX_ERROR_STRING]C.char
	var n C.int
	C.MPI_Error_string(code, &text[0], &n)
	return fmt.Errorf("mpi: %s: %s", call, C.GoStringN(&text[0], n))
}

// start initializes MPI on the calling thread.
func start() (rank, size, tags int, err error) {
	var begun C.int
	if C.MPI_Initialized(&begun); begun != 0 {
		return 0, 0, 0, fmt.Errorf("mpi: MPI_Init was called before")
	}
	var provided, r, n, t C.int
	if err := failure("MPI_Init_thread", C.letheInit(&provided)); err != nil {
		return 0, 0, 0, err
	}
	if provided < C.MPI_THREAD_FUNNELED {
		return 0, 0, 0, fmt.Errorf("mpi: %s allows no threads beside its own: want MPI_THREAD_FUNNELED", library())
	}
	if err := failure("MPI_COMM_WORLD", C.letheWorld(&r, &n, &t)); err != nil {
		return 0, 0, 0, err
	}
	return int(r), int(n), int(t), nil
}

// library names the implementation of MPI, such as "Open MPI v4.1.4".
func library() string {
	var text [C.MPI_MAX_LIBRARY_VERSION_STRING]C.char
	var n C.int
	C.MPI_Get_library_version(&text[0], &n)
	s, _, _ := strings.Cut(strings.TrimSpace(C.GoStringN(&text[0], n)), "\n")
	s, _, _ = strings.Cut(s, ",")
	return strings.Join(strings.Fields(s), " ")
}

func duplicate() (c communicator, err error) {
	return c, failure("MPI_Comm_dup", C.letheDup(&c.handle))
}

func (c *communicator) free() error {
	knowledge.Unlock()
	defer knowledge.Lock()
	return failure("MPI_Comm_free", C.MPI_Comm_free(&c.handle))
}

func finalize() error {
	knowledge.Unlock()
	defer knowledge.Lock()
	return failure("MPI_Finalize", C.MPI_Finalize())
}

// probe looks for a message with a tag: its sender, anyRank if there is none, and size.
func (c *communicator) probe(tag int) (from, bytes int, err error) {
	var f, n C.int
	knowledge.Unlock()
	code := C.letheProbe(C.int(tag), c.handle, &f, &n)
	knowledge.Lock()
	err = failure("MPI_Iprobe", code)
	return int(f), int(n), err
}

// requests are messages under way. Their handles are in C memory.
type requests struct {
	list   unsafe.Pointer // MPI_Request
	index  unsafe.Pointer // C.int
	errors unsafe.Pointer // C.int
	status unsafe.Pointer // MPI_Status
	slots  []slot         // by position in list
	room   int
	live   int // not done
}

// slot is what we know of a message.
type slot struct {
	rank    int // of the other side, in the group
	receive bool
	header  bool
	done    bool
	buffer  unsafe.Pointer // to free when it is done, or nil
}

func (r *requests) at(i int) *C.MPI_Request {
	return (*C.MPI_Request)(unsafe.Add(r.list, uintptr(i)*unsafe.Sizeof(C.MPI_Request(C.letheNull()))))
}

// next is a free place in the list.
func (r *requests) next() *C.MPI_Request {
	if len(r.slots) == r.room && r.live <= r.room/2 {
		r.compact()
	}
	if len(r.slots) == r.room {
		r.room = max(16, 2*r.room)
		r.list = grow(r.list, r.room*int(unsafe.Sizeof(C.MPI_Request(C.letheNull()))))
		r.index = grow(r.index, r.room*int(unsafe.Sizeof(C.int(0))))
		r.errors = grow(r.errors, r.room*int(unsafe.Sizeof(C.int(0))))
		r.status = grow(r.status, r.room*int(unsafe.Sizeof(C.MPI_Status{})))
	}
	p := r.at(len(r.slots))
	*p = C.letheNull()
	return p
}

// compact forgets what is done.
func (r *requests) compact() {
	n := 0
	for i, s := range r.slots {
		if !s.done {
			*r.at(n), r.slots[n] = *r.at(i), s
			n++
		}
	}
	r.slots = r.slots[:n]
}

// grow is realloc, which ends the program if there is no memory, as Go does.
func grow(p unsafe.Pointer, n int) unsafe.Pointer {
	if p = C.realloc(p, C.size_t(n)); p == nil {
		panic(fmt.Sprintf("mpi: no memory for %d bytes", n))
	}
	return p
}

func free(p unsafe.Pointer) { C.free(p) }

// memory of C's.
type memory struct {
	p unsafe.Pointer
	n int64
}

// atLeast returns n bytes or more; what was in them may be lost.
func (m *memory) atLeast(n int64) unsafe.Pointer {
	if n > m.n {
		C.free(m.p)
		m.p, m.n = grow(nil, int(n)), n
	}
	return m.p
}

func (m *memory) free() {
	C.free(m.p)
	*m = memory{}
}

func (r *requests) added(s slot, call string, code C.int) error {
	if err := failure(call, code); err != nil {
		return err
	}
	r.slots = append(r.slots, s)
	r.live++
	return nil
}

func (r *requests) send(c *communicator, b []byte, to, tag int, s slot) error {
	p, next := unsafe.Pointer(unsafe.SliceData(b)), r.next()
	knowledge.Unlock()
	code := C.letheSend(p, C.int(len(b)), C.int(to), C.int(tag), c.handle, next)
	knowledge.Lock()
	return r.added(s, "MPI_Isend", code)
}

func (r *requests) receive(c *communicator, b []byte, from, tag int, s slot) error {
	p, next := unsafe.Pointer(unsafe.SliceData(b)), r.next()
	knowledge.Unlock()
	code := C.letheReceive(p, C.int(len(b)), C.int(from), C.int(tag), c.handle, next)
	knowledge.Lock()
	return r.added(s, "MPI_Irecv", code)
}

// test marks what is done and calls seen for each, with its error.
func (r *requests) test(seen func(slot, error)) (progress bool, err error) {
	if r.live == 0 {
		r.slots = r.slots[:0]
		return false, nil
	}
	var n C.int
	knowledge.Unlock()
	code := C.letheTest(C.int(len(r.slots)), (*C.MPI_Request)(r.list), (*C.int)(r.index), (*C.int)(r.errors), (*C.MPI_Status)(r.status), &n)
	knowledge.Lock()
	if err := failure("MPI_Testsome", code); err != nil {
		return false, err
	}
	which, codes := unsafe.Slice((*C.int)(r.index), n), unsafe.Slice((*C.int)(r.errors), n)
	for i, k := range which {
		s := &r.slots[k]
		s.done = true
		r.live--
		seen(*s, failure("message", codes[i]))
		if s.buffer != nil {
			C.free(s.buffer)
			s.buffer = nil
		}
	}
	return n > 0, nil
}

// cancel gives up all receives. They are done when test says so.
func (r *requests) cancel() {
	for i, s := range r.slots {
		if s.receive && !s.done {
			C.MPI_Cancel(r.at(i))
		}
	}
}

// free gives the handles' memory back.
func (r *requests) free() {
	for _, p := range []unsafe.Pointer{r.list, r.index, r.errors, r.status} {
		C.free(p)
	}
	*r = requests{}
}

// allGather waits for all processes.
func allGather(own []byte, size int) ([]byte, error) {
	all := make([]byte, size*len(own))
	err := failure("MPI_Allgather", C.letheAllGather(unsafe.Pointer(unsafe.SliceData(own)), C.int(len(own)), unsafe.Pointer(unsafe.SliceData(all))))
	return all, err
}
