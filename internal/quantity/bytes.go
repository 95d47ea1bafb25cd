// Package quantity reads numbers that people write with a unit.
package quantity

import "strings"

// Unit is a name and what it stands for.
type Unit struct {
	Name   string
	Factor float64
}

// Bytes are the units of numbers of bytes. B is the last, for all others end with it.
var Bytes = []Unit{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}}

// Cut takes the first of some units with which a text ends away from it. ok is false if there
// is none.
func Cut(text string, units []Unit) (number string, factor float64, ok bool) {
	for _, u := range units {
		if number, ok := strings.CutSuffix(text, u.Name); ok {
			return number, u.Factor, true
		}
	}
	return text, 1, false
}
