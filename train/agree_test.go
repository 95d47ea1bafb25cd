package train

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/local"
	"github.com/lethe-go/lethe/device/cpu"
)

// The rank that stands against the most is named, with what it has, on every rank.
func TestAgreeNamesTheRankThatDiffers(t *testing.T) {
	d, err := cpu.New(cpu.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	same := []string{"a = 1", "b = 2", "c = 3"}
	for _, test := range []struct {
		lines [][]string
		want  string
	}{
		{[][]string{same, same, same}, ""},
		{[][]string{same, {"a = 1", "b = 9", "c = 3"}, same}, "rank 1 has b = 9, ranks 0, 2 have b = 2;"},
		{[][]string{same, {"a = 1", "b = 9", "c = 3"}}, "rank 1 has b = 9, rank 0 has b = 2;"},
		{[][]string{{"a = 1"}, same, same}, "rank 0 has nothing, ranks 1, 2 have b = 2; rank 0 has nothing, ranks 1, 2 have c = 3;"},
		{[][]string{{"a = 3"}, {"a = 4"}, {"a = 5"}}, "rank 1 has a = 4, rank 2 has a = 5, rank 0 has a = 3;"},
	} {
		groups, err := local.New(len(test.lines), local.Options{})
		if err != nil {
			t.Fatal(err)
		}
		errs := make([]error, len(groups))
		var running sync.WaitGroup
		for r, g := range groups {
			running.Go(func() {
				errs[r] = agree(context.Background(), d, g, facts{"weather", slices.Values([]string{"fair"})}, facts{"config", slices.Values(test.lines[r])})
			})
		}
		running.Wait()
		for r, err := range errs {
			switch {
			case test.want == "" && err != nil:
				t.Errorf("rank %d: %v", r, err)
			case test.want != "" && (!errors.Is(err, ErrDisagree) || !strings.Contains(err.Error(), "about the config: "+test.want)):
				t.Errorf("rank %d: %v, want %q", r, err, test.want)
			}
		}
	}
}

// Every rank has what each brings, of any length; a group that has ended is an error.
func TestExchange(t *testing.T) {
	d, err := cpu.New(cpu.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, texts := range [][]string{{"", ""}, {"one", ""}, {"", "longer", "x"}} {
		groups, err := local.New(len(texts), local.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		for r, g := range groups {
			running.Go(func() {
				all, err := exchange(context.Background(), d, g, []byte(texts[r]))
				if err != nil {
					t.Error(err)
				}
				for q, text := range all {
					if string(text) != texts[q] {
						t.Errorf("rank %d has %q of rank %d, want %q", r, text, q, texts[q])
					}
				}
			})
		}
		running.Wait()
		groups[0].Abort(errors.New("gone"))
		if _, err := exchange(context.Background(), d, groups[1], nil); !errors.Is(err, collective.ErrAborted) {
			t.Errorf("in a group that has ended: %v", err)
		}
	}
}
