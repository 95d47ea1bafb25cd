package graph

import "fmt"

// Layout places parameters on ranks.
type Layout interface {
	// Place returns the shape of this rank's part of a parameter and where the part begins
	// in the whole. So that all ranks have as many rows, the last rows of a part may be
	// padding, which belongs to no rank.
	Place(name string, global []int) (shape, offset []int, padding int)
}

// checkPlace refuses a part that, without its padding, is not of the whole.
func checkPlace(name string, global, shape, offset []int, padding int) error {
	if len(shape) != len(global) || len(offset) != len(global) || padding != 0 && (len(shape) == 0 || padding < 0 || padding > shape[0]) {
		return fmt.Errorf("%q: the layout gives a part %v from %v on of %v, of which %d rows are padding: want as many dimensions, and no more padding than rows", name, shape, offset, global, padding)
	}
	for i, n := range shape {
		if i == 0 {
			if n -= padding; n == 0 {
				continue // nothing but padding may begin anywhere
			}
		}
		if offset[i] < 0 || n < 0 || offset[i]+n > global[i] {
			return fmt.Errorf("%q: the layout gives a part %v from %v on of %v, beyond the %d of dimension %d: divide it over a number of ranks that divides them", name, shape, offset, global, global[i], i)
		}
	}
	return nil
}

// Assembler is a Layout in which a model computes with more of a parameter than its
// rank holds.
type Assembler interface {
	Layout

	// Assemble returns the value that [Builder.Parameter] stands for, made of the part
	// that this rank holds, or the part itself. It is called for every use, with the
	// Builder of the use. The gradient that reaches part is that of the part.
	Assemble(b *Builder, parameter *Variable, part Value) Value
}

// Padding is the number of rows at the end of this rank's part that are not of the whole. They
// are zero at first and belong to no saved state.
func (v *Variable) Padding() int { return v.padding }
