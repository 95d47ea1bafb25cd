// Package pattern names values and parameters by parts of their fully qualified names.
package pattern

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lethe-go/lethe/internal/editdistance"
)

// Pattern names ops by their fully qualified name, such as
// "layers.3.moe.router.gate.matmul:0": the scopes from the outside in, then the
// kind and the call index. Parameters are named likewise: scopes, then what they
// are called in theirs, such as "layers.3.moe.router.gate.weight". It is split at the dots and matches where consecutive
// segments of the name equal its own, one for one. "*" equals any one segment.
// The last segment of a name is equalled with or without its call index.
//
// So "moe.router.gate" names every op in a scope moe.router.gate, at any depth;
// "layers.*.moe.matmul" the matmuls directly in a layer's moe.
type Pattern []string

// Parse reads a pattern.
func Parse(text string) (Pattern, error) {
	p := Pattern(strings.Split(text, "."))
	if slices.Contains(p, "") {
		return nil, fmt.Errorf("a pattern is segments joined by dots, none of them empty: have %q; write it like %q", text, "moe.router.gate")
	}
	return p, nil
}

// Match reports whether p matches a name, and whether it does so down to the
// kind of the op, rather than by a scope the op is in.
func (p Pattern) Match(name string) (matched, kind bool) {
	segments := strings.Split(name, ".")
	for i := 0; i+len(p) <= len(segments); i++ {
		if !p.matchAt(segments, i) {
			continue
		}
		matched = true
		if i+len(p) == len(segments) && p[len(p)-1] != "*" {
			kind = true
		}
	}
	return matched, kind
}

func (p Pattern) matchAt(segments []string, at int) bool {
	for i, want := range p {
		have := segments[at+i]
		last := at+i == len(segments)-1
		if want != "*" && want != have && !(last && want == withoutIndex(have)) {
			return false
		}
	}
	return true
}

// withoutIndex is the kind in the last segment of a name: "matmul" of
// "matmul:1".
func withoutIndex(segment string) string {
	kind, _, _ := strings.Cut(segment, ":")
	return kind
}

// Near returns at most three runs of segments in names that resemble p: a few
// letters differ, or a segment between p's is left out.
func (p Pattern) Near(names []string) []string {
	runs := map[string]bool{}
	for _, name := range names {
		segments := strings.Split(name, ".")
		segments[len(segments)-1] = withoutIndex(segments[len(segments)-1])
		for i := range segments {
			if i+len(p) <= len(segments) {
				runs[p.like(segments[i:i+len(p)])] = true
			}
			if i+len(p) < len(segments) {
				if whole, ok := p.skips(segments[i : i+len(p)+1]); ok {
					return []string{whole}
				}
			}
		}
	}
	return Nearest(strings.Join(p, "."), runs)
}

// like joins a run, with "*" wherever p has it.
func (p Pattern) like(run []string) string {
	run = slices.Clone(run)
	for i, want := range p {
		if want == "*" {
			run[i] = "*"
		}
	}
	return strings.Join(run, ".")
}

// skips reports whether the run is p with one more segment inside, and gives p with
// that segment.
func (p Pattern) skips(run []string) (whole string, ok bool) {
	equal := func(i, j int) bool { return p[i] == "*" || p[i] == run[j] }
	i := 0
	for i < len(p) && equal(i, i) {
		i++
	}
	if i == 0 {
		return "", false
	}
	for j := i; j < len(p); j++ {
		if !equal(j, j+1) {
			return "", false
		}
	}
	return strings.Join(slices.Insert(slices.Clone(p), i, run[i]), "."), true
}

// Nearest returns at most three of the names: those that take the fewest edits
// to become text.
func Nearest(text string, names map[string]bool) []string {
	best := max(2, len(text)/3)
	var close []string
	for name := range names {
		switch d := editdistance.Levenshtein(text, name); {
		case d < best:
			best, close = d, []string{name}
		case d == best:
			close = append(close, name)
		}
	}
	slices.Sort(close)
	return close[:min(3, len(close))]
}
