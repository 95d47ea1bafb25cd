//go:build mpi

package mpi

import (
	"context"
	"time"
	"unsafe"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/internal/call"
	"github.com/lethe-go/lethe/device"
)

// scratchBytes bounds what a sum receives from all other ranks together before it is
// added up.
const scratchBytes = 8 << 20

// rounds runs the call, of which all tensors have been checked.
func (g *group) rounds(ctx context.Context, deadline <-chan time.Time) error {
	clear(g.out)
	clear(g.in)
	c := &g.Call
	switch c.Kind {
	case collective.KindAllReduce:
		if c.In.Bytes() <= inlineBytes {
			return g.allReduceAtOnce(ctx, deadline)
		}
		return g.allReduce(ctx, deadline)
	case collective.KindReduceScatter:
		return g.reduceScatter(ctx, deadline)
	case collective.KindAllToAll:
		row, sent, received := call.RowBytes(c.In), int64(0), int64(0)
		for r := range g.ranks {
			out := int64(call.Split(c.Send, c.In, r, g.Size())) * row
			in := int64(call.Split(c.Receive, c.Out, r, g.Size())) * row
			g.out[r], g.in[r] = spanOf(c.In, sent, out), spanOf(c.Out, received, in)
			sent, received = sent+out, received+in
		}
	case collective.KindAllGather:
		lo, hi := c.Piece(g.rank)
		own := elements(c.In, 0, hi-lo)
		for r := range g.ranks {
			lo, hi := c.Piece(r)
			g.out[r], g.in[r] = own, elements(c.Out, lo, hi)
		}
	case collective.KindBroadcast:
		n := c.In.Bytes()
		if g.rank != c.Root {
			g.in[c.Root] = spanOf(c.Out, 0, n)
			break
		}
		for r := range g.ranks {
			if r != g.rank {
				g.out[r] = spanOf(c.In, 0, n)
			}
		}
	}
	return g.round(ctx, deadline, startCall, copyOwn)
}

// copyOwn moves what a rank sends to itself.
func copyOwn(g *group) {
	from, to := g.out[g.rank], g.in[g.rank]
	if n := min(from.n, to.n); n > 0 && from.p != to.p { // unequal if the ranks disagree
		copy(unsafe.Slice((*byte)(to.p), n), unsafe.Slice((*byte)(from.p), n))
	}
}

// spanOf is n bytes of a contiguous tensor.
func spanOf(t device.Tensor, at, n int64) span {
	if n <= 0 {
		return span{}
	}
	return span{unsafe.Add(t.Pointer(), at), n}
}

// elements lo ≤ i < hi of a contiguous tensor.
func elements(t device.Tensor, lo, hi int) span {
	size := int64(t.DType().Size())
	return spanOf(t, int64(lo)*size, int64(hi-lo)*size)
}

// allReduceAtOnce sends everything to all ranks, each of which adds it up: the least
// latency for few bytes.
func (g *group) allReduceAtOnce(ctx context.Context, deadline <-chan time.Time) error {
	t := g.Call.In
	all := elements(t, 0, t.Len())
	for r := range g.ranks {
		if r != g.rank {
			g.out[r] = all
		}
	}
	g.receiveTerms(all)
	if err := g.round(ctx, deadline, startCall, nil); err != nil {
		return err
	}
	g.sum(all, t.DType())
	return nil
}

// allReduce has each rank sum one part of the elements and send it to all others.
func (g *group) allReduce(ctx context.Context, deadline <-chan time.Time) error {
	t, kind := g.Call.In, startCall
	chunk := max(g.Size(), scratchBytes/t.DType().Size())
	for begin := 0; begin < t.Len(); begin += chunk {
		n := min(chunk, t.Len()-begin)
		part := func(r int) span {
			lo, hi := collective.Share(n, r, g.Size())
			return elements(t, begin+lo, begin+hi)
		}
		own := part(g.rank)
		for r := range g.ranks {
			if r != g.rank {
				g.out[r] = part(r)
			}
		}
		g.receiveTerms(own)
		if err := g.round(ctx, deadline, kind, nil); err != nil {
			return err
		}
		kind = continueCall
		g.sum(own, t.DType())
		for r := range g.ranks {
			if r != g.rank {
				g.out[r], g.in[r] = own, part(r)
			}
		}
		if err := g.round(ctx, deadline, kind, nil); err != nil {
			return err
		}
	}
	return nil
}

// reduceScatter sends each rank the terms of its part.
func (g *group) reduceScatter(ctx context.Context, deadline <-chan time.Time) error {
	out, in, kind := g.Call.Out, g.Call.In, startCall
	n := out.Len()
	chunk := max(1, scratchBytes/out.DType().Size()/g.Size())
	for at := 0; at < n || kind == startCall; at += chunk {
		part := func(r int) span {
			lo, hi := g.Call.Piece(r)
			return elements(in, min(lo+at, hi), min(lo+at+chunk, hi))
		}
		for r := range g.ranks {
			if r != g.rank {
				g.out[r] = part(r)
			}
		}
		own := part(g.rank)
		g.receiveTerms(own)
		if err := g.round(ctx, deadline, kind, nil); err != nil {
			return err
		}
		kind = continueCall
		g.sum(spanOf(out, int64(at)*int64(out.DType().Size()), own.n), out.DType())
	}
	lo, hi := g.Call.Piece(g.rank)
	call.Clear(out, hi-lo)
	return nil
}

// receiveTerms makes the terms of a sum: this rank's own, and memory for the others'.
func (g *group) receiveTerms(own span) {
	at := int64(0)
	p := g.scratch.atLeast(own.n * int64(g.Size()-1))
	for r := range g.ranks {
		if r == g.rank {
			g.terms[r] = own.p
			continue
		}
		g.terms[r] = nil
		g.in[r] = span{}
		if own.n > 0 {
			g.terms[r] = unsafe.Add(p, at)
			g.in[r] = span{g.terms[r], own.n}
			at += own.n
		}
	}
}

// sum adds up the terms.
func (g *group) sum(to span, d device.DType) {
	if to.n > 0 {
		call.Sum(d, to.p, g.terms, int(to.n)/d.Size())
	}
}
