package cpu

import (
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

// gemmTasks is the argument block of matrix products.
type gemmTasks[T float] struct {
	q       *queue
	product gemmProduct[T]
	batch   gemmBatch
}

// gemmBatch is a batch of products of one shape; strides are in elements.
type gemmBatch struct {
	items, perTask int
	a, b, c        int
}

// Products of fewer multiply-adds than gemmAloneWork do not pay for the pool;
// those of at most gemmItemWork go to the pool whole when there is a batch.
const (
	gemmAloneWork = 1 << 19
	gemmItemWork  = 1 << 22
)

// gemmSharedLimit bounds what all workers pack together: some megabytes, within
// the last-level cache.
var gemmSharedLimit = gemmLimit{rows: 1536, columns: 1024, steps: 4 * gemmDepth}

// MatMul implements device.Kernels.
func (q *queue) MatMul(dst, a, b device.Tensor, accumulate bool) {
	checkMatMul(dst, a, b)
	switch dst.DType() {
	case device.Float32:
		q.f32.gemmTasks.matMul(q, dst, a, b, accumulate)
	case device.Float64:
		q.f64.gemmTasks.matMul(q, dst, a, b, accumulate)
	}
}

func checkMatMul(dst, a, b device.Tensor) {
	r := dst.Rank()
	if r < 2 || r > 3 || a.Rank() != r || b.Rank() != r {
		panic("cpu: MatMul: ranks are not all 2 or all 3")
	}
	d := dst.DType()
	if d != a.DType() || d != b.DType() || d != device.Float32 && d != device.Float64 {
		panic("cpu: MatMul: dtypes are not all float32 or all float64")
	}
	m, n, k := dst.Dim(r-2), dst.Dim(r-1), a.Dim(r-1)
	if a.Dim(r-2) != m || b.Dim(r-2) != k || b.Dim(r-1) != n {
		panic("cpu: MatMul: shapes do not fit")
	}
	if r == 3 && (a.Dim(0) != dst.Dim(0) || b.Dim(0) != dst.Dim(0)) {
		panic("cpu: MatMul: batches differ")
	}
	if r == 3 && dst.Dim(0) > 1 && dst.Stride(0) == 0 && dst.Len() > 0 {
		panic("cpu: MatMul: dst repeats")
	}
	if n > 1 && dst.Stride(r-1) != 1 {
		panic("cpu: MatMul: last stride of dst is not 1")
	}
}

func (t *gemmTasks[T]) matMul(q *queue, dst, a, b device.Tensor, accumulate bool) {
	if dst.Len() == 0 {
		return
	}
	r := dst.Rank()
	m, n, k := dst.Dim(r-2), dst.Dim(r-1), a.Dim(r-1)
	// The memory may be the Go heap's, and the queue outlive it.
	defer func() { t.product = gemmProduct[T]{} }()
	t.q, t.batch = q, gemmBatch{items: 1}
	t.product.set(q.dev.level, gemmSharedLimit, m, n, k, a.Pointer(), a.Stride(r-2), a.Stride(r-1),
		b.Pointer(), b.Stride(r-2), b.Stride(r-1), dst.Pointer(), dst.Stride(r-2), accumulate)
	if r == 3 {
		t.batch = gemmBatch{items: dst.Dim(0), a: a.Stride(0), b: b.Stride(0), c: dst.Stride(0)}
		t.joinRows()
	}
	items, work := t.batch.items, t.product.work()
	switch {
	case q.dev.openBLAS:
		t.runOpenBLAS()
	case items*work <= gemmAloneWork:
		t.runItems(items)
	case items > 1 && work <= gemmItemWork:
		t.runItems(ceilDiv(gemmAloneWork/4, max(1, work)))
	default:
		first := t.product
		for i := range items {
			t.product = first
			t.product.advance(t.batch, i)
			t.runShared()
		}
	}
}

// joinRows turns a batch against one and the same b into a single product, where
// rows of a and of c follow each other from item to item.
func (t *gemmTasks[T]) joinRows() {
	p, batch := &t.product, t.batch
	if p.a.lanes == 1 {
		p.a.lane, p.cRow = batch.a, batch.c
	}
	if batch.b == 0 && batch.a == p.a.lanes*p.a.lane && batch.c == p.a.lanes*p.cRow {
		p.a.lanes *= batch.items
		t.batch = gemmBatch{items: 1}
	}
}

// runItems computes products whole, some to a task.
func (t *gemmTasks[T]) runItems(perTask int) {
	t.batch.perTask = perTask
	t.product.limit = gemmTileLimit
	t.q.reserve(gemmEdgeBytes + int64(t.product.bufferBytes()))
	t.q.run(ceilDiv(t.batch.items, perTask), gemmItems[T]{t})
}

type gemmItems[T float] struct{ *gemmTasks[T] }

func (t gemmItems[T]) do(worker, i int) {
	first := i * t.batch.perTask
	for item := first; item < min(t.batch.items, first+t.batch.perTask); item++ {
		product := t.product
		product.advance(t.batch, item)
		product.alone(t.q.scratch[worker].base)
	}
}

// runShared computes one product with all workers, which share the packed
// operands in the scratch of the first.
func (t *gemmTasks[T]) runShared() {
	p := &t.product
	if p.empty() {
		return
	}
	if t.q.dev.pool.workers > 1 {
		p.wanted = gemmTilesWanted
	}
	t.q.reserve(gemmEdgeBytes + int64(p.bufferBytes()))
	p.place(unsafe.Add(t.q.scratch[0].base, gemmEdgeBytes))
	for more := p.firstSlab(); more; more = p.nextSlab() {
		t.q.run(p.packTasks(), gemmPack[T]{p})
		t.q.run(p.tiles(), gemmTiles[T]{t})
	}
}

type gemmPack[T float] struct{ *gemmProduct[T] }

func (p gemmPack[T]) do(_, i int) { p.pack(i) }

type gemmTiles[T float] struct{ *gemmTasks[T] }

func (t gemmTiles[T]) do(worker, i int) { t.product.tile(i, t.q.scratch[worker].base) }
