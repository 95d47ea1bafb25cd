package graph

// Distributor is a Layout under which ranks compute the modules of a model together, each with
// a part of their parameters. Between modules every rank has some rows of an activation.
type Distributor interface {
	Layout

	// Enter returns what the module of b's scope reads of an activation x: all rows of it,
	// if ranks compute the module together.
	Enter(b *Builder, x Value) Value
	// Leave returns this rank's rows of what the module of b's scope returns: y is the
	// rank's term of it, if ranks compute the module together.
	Leave(b *Builder, y Value) Value
	// Gather returns the x [N, …] of these ranks, one after the other: [ranks·N, …].
	Gather(b *Builder, x Value) Value
}

// Enter returns what the module of b's scope reads of x. It is x itself unless the Store's
// Layout is a [Distributor]. Modules call it for the activations they are given.
func (b *Builder) Enter(x Value) Value {
	if d, ok := b.core.store.layout.(Distributor); ok && b.Err() == nil {
		return d.Enter(b, x)
	}
	return x
}

// Leave returns what the rest of a model reads of y, the result of the module of b's scope. It
// is y itself unless the Store's Layout is a [Distributor].
func (b *Builder) Leave(y Value) Value {
	if d, ok := b.core.store.layout.(Distributor); ok && b.Err() == nil {
		return d.Leave(b, y)
	}
	return y
}

// Gather returns the x of the ranks that compute modules together, one after the other.
func (b *Builder) Gather(x Value) Value {
	if d, ok := b.core.store.layout.(Distributor); ok && b.Err() == nil {
		return d.Gather(b, x)
	}
	return x
}
