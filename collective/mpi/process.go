//go:build mpi

package mpi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"strings"
	"time"

	"github.com/lethe-go/lethe/collective"
)

// process is who a rank of the world is.
type process struct {
	host    string
	machine uint64 // equal for processes that see each other in /proc
	id      int
	started uint64 // in clock ticks since boot; 0 if unknown
}

const (
	hostBytes    = 64
	processBytes = hostBytes + 3*8
)

func thisProcess() process {
	p := process{id: os.Getpid()}
	p.host, _ = os.Hostname()
	boot, err1 := os.ReadFile("/proc/sys/kernel/random/boot_id")
	space, err2 := os.Readlink("/proc/self/ns/pid")
	if err1 == nil && err2 == nil {
		h := fnv.New64a()
		h.Write(boot)
		h.Write([]byte(space))
		p.machine = h.Sum64()
		_, p.started = stat(p.id)
	}
	return p
}

// stat reads the state of a process, such as R, S, T or Z, and when it was started. The
// state is 0 if there is no such process.
func stat(id int) (state byte, started uint64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
	if err != nil {
		return 0, 0
	}
	// The name, in parentheses, may hold anything.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 {
		return 0, 0
	}
	fmt.Sscan(fields[19], &started)
	return fields[0][0], started
}

// processes has all ranks tell each other who they are.
func processes(size int) ([]process, error) {
	own, b := thisProcess(), make([]byte, processBytes)
	copy(b[:hostBytes-1], own.host)
	for i, v := range [...]uint64{own.machine, uint64(own.id), own.started} {
		binary.LittleEndian.PutUint64(b[hostBytes+8*i:], v)
	}
	all, err := allGather(b, size)
	if err != nil {
		return nil, err
	}
	list := make([]process, size)
	for r := range list {
		b := all[r*processBytes:][:processBytes]
		host, _, _ := bytes.Cut(b[:hostBytes], []byte{0})
		number := func(i int) uint64 { return binary.LittleEndian.Uint64(b[hostBytes+8*i:]) }
		list[r] = process{string(host), number(0), int(number(1)), number(2)}
	}
	return list, nil
}

func (p process) String() string { return fmt.Sprintf("process %d on %s", p.id, p.host) }

// condition is what can be seen of a process from here.
type condition uint8

const (
	unknown condition = iota // it is on another machine
	running
	stopped // by a signal
	dead
)

// sees returns a test for one condition of other processes.
func (here process) sees(c condition) func(process) bool {
	return func(p process) bool { return p.condition(here) == c }
}

// seesGone reports whether a process has died or is stopped.
func (here process) seesGone(p process) bool { return here.sees(dead)(p) || here.sees(stopped)(p) }

// here is this process.
func (t *thread) here() process { return t.peers[t.rank] }

func (p process) condition(here process) condition {
	if p.machine == 0 || p.machine != here.machine || p.started == 0 {
		return unknown
	}
	switch state, started := stat(p.id); {
	case state == 0, state == 'Z', state == 'X', started != p.started:
		return dead
	case state == 'T', state == 't':
		return stopped
	}
	return running
}

// states describes ranks of a group, for errors.
func (t *thread) states(g *group, ranks []int) string {
	var s strings.Builder
	for _, r := range ranks {
		p := t.peers[g.ranks[r]]
		fmt.Fprintf(&s, "; rank %d is %v", r, p)
		switch p.condition(t.here()) {
		case dead:
			s.WriteString(", which has died")
		case stopped:
			s.WriteString(", which is stopped")
		}
	}
	return s.String()
}

// blames adds to an error of MPI who of the group has died. Connections of a process that dies
// are closed a little before it can be seen to be dead.
func (t *thread) blames(g *group, err error) error {
	if errors.Is(err, collective.ErrMismatch) {
		return err
	}
	for range 10 {
		for r, of := range g.ranks {
			if p := t.peers[of]; p.condition(t.here()) == dead {
				return fmt.Errorf("%v: rank %d, %v, has died: %w", g.doing(), r, p, err)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// mourn fails the groups that wait for a process that has died: none needs to wait for its
// deadline then.
func (t *thread) mourn() {
	for _, g := range t.active {
		if !g.waits || g.phase == stopping {
			continue
		}
		for _, r := range g.missing() {
			if p := t.peers[g.ranks[r]]; p.condition(t.here()) == dead {
				g.fails(t, fmt.Errorf("%v: rank %d, %v, has died", g.doing(), r, p))
				break
			}
		}
	}
}
