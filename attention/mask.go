package attention

import (
	"fmt"
	"slices"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// Mask says which keys a query may see: one interval for every query, where all
// that is set must allow a key. The zero Mask hides nothing.
type Mask struct {
	// Causal hides keys after the query.
	Causal bool
	// Window, if positive, lets a query see itself and the Window−1 keys before it,
	// and hides what is further back.
	Window int
	// Block, if positive, hides keys outside the query's own block of that size.
	Block int
	// DocumentStart and DocumentEnd, both or neither, are int32 [B, T]: the first
	// position of the document that each query belongs to, and one past its last.
	DocumentStart, DocumentEnd graph.Value
}

// documents reports whether the mask reads borders.
func (m Mask) documents() bool { return !m.DocumentStart.IsNone() }

// check says what is impossible about m for queries [B, T, ...].
func (m Mask) check(batch, queries int) error {
	if m.Window < 0 || m.Block < 0 {
		return fmt.Errorf("mask with window %d and block %d: want 0 (none) or more", m.Window, m.Block)
	}
	if m.DocumentStart.IsNone() != m.DocumentEnd.IsNone() {
		return fmt.Errorf("mask with one border of documents: set both DocumentStart and DocumentEnd, or neither")
	}
	if !m.documents() {
		return nil
	}
	want := device.NewSpec(device.Int32, batch, queries)
	for _, v := range []graph.Value{m.DocumentStart, m.DocumentEnd} {
		if s := v.Spec(); v.Node() != nil && !s.Equal(want) {
			return fmt.Errorf("%s is %v: a border of documents must be %v", v.Name(), s, want)
		}
	}
	return nil
}

// pairs is how many of the queries × keys pairs of one head the static part of the
// mask leaves, with query and key t at the same position.
func (m staticMask) pairs(queries, keys int) float64 {
	n := 0
	for t := range queries {
		lo, hi := 0, keys
		if m.causal {
			hi = min(hi, t+1)
		}
		if m.window > 0 {
			lo = max(lo, t-m.window+1)
		}
		if m.block > 0 {
			first := t - t%m.block
			lo, hi = max(lo, first), min(hi, first+m.block)
		}
		n += max(0, hi-lo)
	}
	return float64(n)
}

// staticMask is the part of a Mask that is known when the graph is built.
type staticMask struct {
	causal        bool
	window, block int
}

func (m Mask) static() staticMask { return staticMask{m.Causal, m.Window, m.Block} }

// device gives the mask of a run; borders are start and end, or nothing.
func (m staticMask) device(borders []device.Tensor) device.Mask {
	d := device.Mask{Causal: m.causal, Window: m.window, Block: m.block}
	if len(borders) == 2 {
		d.Start, d.End = borders[0], borders[1]
	}
	return d
}

// with appends the mask's borders to the inputs of an op.
func (m Mask) with(in ...graph.Value) []graph.Value {
	if m.documents() {
		return append(slices.Clip(in), m.DocumentStart, m.DocumentEnd)
	}
	return in
}

// CausalDocuments is the mask of packed documents: it hides what lies ahead and other
// documents. start is the column of the first token of each token's document, int32
// [B, T] as tokens; graph.None makes every sequence one document. A causal query never
// looks past itself, so its document may as well end where the sequence does.
func CausalDocuments(b *graph.Builder, tokens, start graph.Value) Mask {
	mask := Mask{Causal: true}
	shape := tokens.Shape()
	if start.IsNone() || len(shape) != 2 {
		return mask // of tokens of another rank a module will say what is wrong
	}
	mask.DocumentStart = start
	mask.DocumentEnd = b.Table(fmt.Sprintf("document_end(%d %d)", shape[0], shape[1]), func(b *graph.Builder) graph.Value {
		return b.Constant("", device.Int32, graph.Constant(shape[1]), shape...)
	})
	return mask
}
