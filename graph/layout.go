package graph

// Layout places parameters on ranks.
type Layout interface {
	// Place returns the shape of this rank's part of a parameter and where the part begins
	// in the whole. So that all ranks have as many rows, the last rows of a part may be
	// padding, which belongs to no rank.
	Place(name string, global []int) (shape, offset []int, padding int)
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
