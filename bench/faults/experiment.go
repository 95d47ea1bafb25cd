//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/lethe-go/lethe/collective/flight"
	"github.com/lethe-go/lethe/train"
)

// experiment is a job and the harm that is done to it.
type experiment struct {
	name, about string
	ranks       int
	apart       bool // each rank in a namespace of its own
	harm        func(*job) error
	// survivors are the ranks that have to stop, and blamed what the record of each says.
	survivors []int
	blamed    map[int]string
}

var experiments = []experiment{
	{
		name: "stop", about: "SIGSTOP of rank 1 of 4", ranks: 4,
		harm:      func(j *job) error { return j.signal(1, syscall.SIGSTOP) },
		survivors: []int{0, 2, 3},
		blamed:    map[int]string{0: "for ranks [1]; rank 1 is process ", 2: "for ranks [1]; rank 1 is process ", 3: "for ranks [1]; rank 1 is process "},
	},
	{
		name: "cut", about: "the link between two namespaces goes down", ranks: 2, apart: true,
		harm:      func(j *job) error { return j.apart.link("down") },
		survivors: []int{0, 1},
		blamed:    map[int]string{0: "for ranks [1]; rank 1 is process ", 1: "for ranks [0]; rank 0 is process "},
	},
	{
		name: "kill", about: "SIGKILL of rank 1 in another namespace", ranks: 2, apart: true,
		harm:      func(j *job) error { return j.signal(1, syscall.SIGKILL) },
		survivors: []int{0},
		blamed:    map[int]string{0: "waits for ranks [1]; rank 1 is process "},
	},
}

// bench is what experiments have in common.
type bench struct {
	lethe, config, folder string
	timeout               time.Duration // comm.train_timeout
	out                   io.Writer
}

const (
	// enough steps before the harm for the deadline of training to hold.
	enough = 5
	// leave is what a rank may take for its record once the deadline has passed.
	leave = 3 * time.Second
	// parting is what a process may take to end after that: MPI waits for the others.
	parting = 15 * time.Second
)

// run makes an experiment and reports whether all went as wanted.
func (b *bench) run(ctx context.Context, x experiment) (ok bool, err error) {
	fmt.Fprintf(b.out, "%s: %s, comm.train_timeout %v\n", x.name, x.about, b.timeout)
	j, err := b.start(ctx, x)
	if errors.Is(err, errors.ErrUnsupported) {
		fmt.Fprintf(b.out, "  not run: %v\n", err)
		return true, nil
	} else if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, j.close()) }()
	step, err := j.awaitSteps(ctx, enough)
	if err != nil {
		return false, err
	}
	at := time.Now()
	if err := x.harm(j); err != nil {
		return false, err
	}
	fmt.Fprintf(b.out, "  harm is done after step %d\n", step)
	ok = true
	for _, rank := range x.survivors {
		ended := j.awaitEnd(ctx, rank, at.Add(b.timeout+leave+parting))
		record, err := readRecord(j.folder, rank)
		if err != nil {
			return false, fmt.Errorf("rank %d leaves no record: %w\n%s", rank, err, j.output())
		}
		wrong := b.judge(x, rank, at, ended, record)
		ok = ok && wrong == ""
		if wrong == "" {
			wrong = "as wanted"
		}
		fmt.Fprintf(b.out, "  rank %d: record after %.1f s, process ended after %.1f s: %s\n    %s\n", rank,
			record.Written.Sub(at).Seconds(), ended.Sub(at).Seconds(), wrong, strings.ReplaceAll(record.Cause, j.folder, "…"))
	}
	return ok, nil
}

// judge says what is wrong with the end of a rank, "" if nothing is. A process that has not
// ended has the zero Time.
func (b *bench) judge(x experiment, rank int, at, ended time.Time, r flight.Record) string {
	switch {
	case ended.IsZero():
		return "the process has not ended"
	case r.Written.Sub(at) > b.timeout+leave:
		return fmt.Sprintf("the record came later than %v after the deadline", leave)
	case !strings.Contains(r.Cause, x.blamed[rank]):
		return fmt.Sprintf("the record does not say %q", x.blamed[rank])
	}
	return ""
}

func readRecord(folder string, rank int) (r flight.Record, err error) {
	c := train.DefaultConfig()
	c.Job.DumpFolder = folder
	text, err := os.ReadFile(filepath.Join(c.FlightPath(), fmt.Sprintf("rank_%d.json", rank)))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}
