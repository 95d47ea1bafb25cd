// Package maxflow finds maximum flows and both extreme minimum cuts of networks
// with integer capacities, by Dinic's algorithm (Soviet Math. Doklady 11, 1970).
// Equal networks, built in the same order, give equal flows on every machine.
package maxflow

// Unlimited is the capacity of an arc that no minimum cut may cross. The
// capacities of a finite cut must sum to less.
const Unlimited = int64(1) << 61

// Network is a directed graph with capacities, a source and a sink. Nodes are
// numbered from 0. It is not safe for concurrent use.
type Network struct {
	source, sink int32
	// An arc and its reverse lie side by side, at 2i and 2i+1.
	first, next []int32 // of the arcs out of a node; -1 ends
	to          []int32
	capacity    []int64 // as given, 0 for reverse arcs
	residual    []int64

	level, at, queue, path []int32
}

// New makes a network of n nodes without arcs.
func New(n, source, sink int) *Network {
	w := &Network{source: int32(source), sink: int32(sink),
		first: make([]int32, n), level: make([]int32, n), at: make([]int32, n), queue: make([]int32, 0, n)}
	for i := range w.first {
		w.first[i] = -1
	}
	return w
}

// Arc adds an arc and returns its number, for SetCapacity.
func (w *Network) Arc(from, to int, capacity int64) int {
	id := int32(len(w.to))
	w.to = append(w.to, int32(to), int32(from))
	w.capacity = append(w.capacity, capacity, 0)
	w.residual = append(w.residual, 0, 0)
	w.next = append(w.next, w.first[from], w.first[to])
	w.first[from], w.first[to] = id, id+1
	return int(id)
}

// Arcs is the number of arcs that were added.
func (w *Network) Arcs() int { return len(w.to) / 2 }

// SetCapacity changes the capacity of an arc for the next Solve.
func (w *Network) SetCapacity(arc int, capacity int64) { w.capacity[arc] = capacity }

// Solve finds a maximum flow and returns its value, which is that of a minimum
// cut. It returns Unlimited or more if no finite cut exists.
func (w *Network) Solve() int64 {
	copy(w.residual, w.capacity)
	var value int64
	for value < Unlimited && w.layer() {
		value += w.block()
	}
	return value
}

// layer numbers the nodes by their distance from the source in the residual
// network, and reports whether the sink can be reached.
func (w *Network) layer() bool {
	for i := range w.level {
		w.level[i] = -1
	}
	w.level[w.source] = 0
	w.queue = append(w.queue[:0], w.source)
	for i := 0; i < len(w.queue); i++ {
		u := w.queue[i]
		for e := w.first[u]; e >= 0; e = w.next[e] {
			if v := w.to[e]; w.residual[e] > 0 && w.level[v] < 0 {
				w.level[v] = w.level[u] + 1
				w.queue = append(w.queue, v)
			}
		}
	}
	return w.level[w.sink] >= 0
}

// block pushes a blocking flow along arcs that lead one layer further, or less if
// that is already Unlimited.
func (w *Network) block() int64 {
	copy(w.at, w.first)
	w.path = w.path[:0]
	var total int64
	for total < Unlimited {
		u := w.tip()
		if u == w.sink {
			total += w.augment()
			continue
		}
		if e := w.advance(u); e >= 0 {
			w.path = append(w.path, e)
			continue
		}
		if u == w.source {
			break
		}
		w.level[u] = -1 // a dead end
		w.path = w.path[:len(w.path)-1]
	}
	return total
}

// tip is the node at the end of the path.
func (w *Network) tip() int32 {
	if len(w.path) == 0 {
		return w.source
	}
	return w.to[w.path[len(w.path)-1]]
}

// advance returns the next arc out of u that leads on, or -1.
func (w *Network) advance(u int32) int32 {
	for ; w.at[u] >= 0; w.at[u] = w.next[w.at[u]] {
		e := w.at[u]
		if w.residual[e] > 0 && w.level[w.to[e]] == w.level[u]+1 {
			return e
		}
	}
	return -1
}

// augment pushes what the path can carry, and shortens it to in front of its
// first full arc.
func (w *Network) augment() int64 {
	most := w.residual[w.path[0]]
	for _, e := range w.path {
		most = min(most, w.residual[e])
	}
	full := len(w.path)
	for i := len(w.path) - 1; i >= 0; i-- {
		e := w.path[i]
		w.residual[e] -= most
		w.residual[e^1] += most
		if w.residual[e] == 0 {
			full = i
		}
	}
	w.path = w.path[:full]
	return most
}

// SourceSide marks in side, by node, the smallest source side of a minimum cut:
// what the source reaches in the residual network. Call it after Solve.
func (w *Network) SourceSide(side []bool) {
	w.layer()
	for i := range side {
		side[i] = w.level[i] >= 0
	}
}

// SinkSide marks in side, by node, the smallest sink side of a minimum cut: what
// reaches the sink in the residual network. Call it after Solve.
func (w *Network) SinkSide(side []bool) {
	clear(side)
	side[w.sink] = true
	w.queue = append(w.queue[:0], w.sink)
	for i := 0; i < len(w.queue); i++ {
		v := w.queue[i]
		for e := w.first[v]; e >= 0; e = w.next[e] {
			if u := w.to[e]; w.residual[e^1] > 0 && !side[u] {
				side[u] = true
				w.queue = append(w.queue, u)
			}
		}
	}
}
