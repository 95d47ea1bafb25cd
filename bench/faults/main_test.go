//go:build linux

package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lethe-go/lethe/collective/flight"
)

func TestUsage(t *testing.T) {
	if err := run(context.Background(), []string{"flood"}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "want stop, cut or kill") {
		t.Error(err)
	}
}

func TestJudge(t *testing.T) {
	b, at := bench{timeout: time.Second}, time.Now()
	good := flight.Record{Written: at.Add(2 * time.Second), Cause: "all_reduce number 9 waited 1s for ranks [1]; rank 1 is process 7 on right"}
	late, vague := good, good
	late.Written = at.Add(time.Minute)
	vague.Cause = "something is wrong"
	for _, test := range []struct {
		record flight.Record
		ended  time.Time
		want   string
	}{
		{good, at.Add(3 * time.Second), ""},
		{good, time.Time{}, "has not ended"},
		{late, at.Add(time.Hour), "came later"},
		{vague, at.Add(3 * time.Second), "does not say"},
	} {
		if got := b.judge(experiments[0], 0, at, test.ended, test.record); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
