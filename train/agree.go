package train

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"slices"
	"strings"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/device"
)

// ErrDisagree is wrapped by the error of ranks that were started with different configs,
// models, plans, data or states.
var ErrDisagree = errors.New("ranks disagree")

// facts are what all ranks must have in common, in lines of which each says one thing.
type facts struct {
	about string
	lines iter.Seq[string]
}

// agree compares the hashes of facts over the ranks of a group. Only if they differ are the
// lines looked at, and the error names the ranks that stand against the most, with what
// they have.
func agree(ctx context.Context, d device.Device, g collective.Group, list ...facts) error {
	var own []byte
	for _, f := range list {
		own = binary.LittleEndian.AppendUint64(own, hashLines(f.lines))
	}
	all, err := exchange(ctx, d, g, own)
	if err != nil {
		return err
	}
	for i, f := range list {
		for _, other := range all {
			if len(other) != len(own) || !slices.Equal(other[8*i:][:8], all[0][8*i:][:8]) {
				return f.compare(ctx, d, g)
			}
		}
	}
	return nil
}

// differencesShown is how many lines the error quotes.
const differencesShown = 4

// compare finds the first lines that differ.
func (f facts) compare(ctx context.Context, d device.Device, g collective.Group) error {
	var hashes []byte
	for line := range f.lines {
		hashes = binary.LittleEndian.AppendUint64(hashes, hashLine(line))
	}
	all, err := exchange(ctx, d, g, hashes)
	if err != nil {
		return err
	}
	var differ []int
	longest := slices.MaxFunc(all, func(a, b []byte) int { return cmp.Compare(len(a), len(b)) })
	for i := 0; 8*i < len(longest) && len(differ) < differencesShown; i++ {
		for _, other := range all {
			if len(other) < 8*(i+1) || !slices.Equal(other[8*i:][:8], longest[8*i:][:8]) {
				differ = append(differ, i)
				break
			}
		}
	}
	var found []string
	for _, i := range differ {
		texts, err := exchange(ctx, d, g, []byte(f.line(i)))
		if err != nil {
			return err
		}
		found = append(found, contrast(texts, func(r int) int { return r }))
	}
	return &common{fmt.Errorf("train: %w about the %s: %s; start all of them with the same", ErrDisagree, f.about, strings.Join(found, "; "))}
}

// line i, "nothing" behind the last.
func (f facts) line(i int) string {
	for line := range f.lines {
		if i == 0 {
			return line
		}
		i--
	}
	return "nothing"
}

// contrast names the ranks that have another text than the most, each by its number in the job.
func contrast(texts [][]byte, number func(r int) int) string {
	ranks := map[string][]int{}
	var order []string
	for r, t := range texts {
		text := string(t)
		if ranks[text] == nil {
			order = append(order, text)
		}
		ranks[text] = append(ranks[text], number(r))
	}
	usual := order[0] // of two that are as many the one with the lower ranks is taken to be right
	for _, text := range order {
		if len(ranks[text]) > len(ranks[usual]) {
			usual = text
		}
	}
	var parts []string
	for _, text := range order {
		if text != usual {
			parts = append(parts, rankNames(ranks[text])+" "+text)
		}
	}
	return fmt.Sprintf("%s, %s %s", strings.Join(parts, ", "), rankNames(ranks[usual]), usual)
}

// rankNames is "rank 3 has" or "ranks 0, 1 have".
func rankNames(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d has", ranks[0])
	}
	return "ranks " + strings.Trim(strings.ReplaceAll(fmt.Sprint(ranks), " ", ", "), "[]") + " have"
}

func hashLine(line string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(line))
	return h.Sum64()
}

func hashLines(lines iter.Seq[string]) uint64 {
	h := fnv.New64a()
	for line := range lines {
		h.Write([]byte(line))
		h.Write([]byte{'\n'})
	}
	return h.Sum64()
}
