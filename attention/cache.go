package attention

import (
	"fmt"
	"math"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// Cache lets an attention module go on where an earlier run of a Program on the same
// Store stopped: what the module keeps of each token, [B, Length, …], lives in the
// Store under the module's scope, as `cache.…`. A run that is given the tokens at
// Position … Position+T−1 writes their rows and attends to all that stand before them
// and, as the mask allows, to themselves.
//
// Rows are written in place, and nothing behind the newest is ever read. So a sequence
// is begun anew, or gone back in, by running from an earlier Position. Several Programs
// of unequal T, those of prefill and of decoding, share the cache. There is no gradient.
type Cache struct {
	// Length is the number of positions there is room for.
	Length int
	// Position of the first token of the run: int32 on the host, a scalar. A run that
	// would write behind Length fails.
	Position graph.Value
}

// check says what is impossible about attention to the cache for tokens [B, T].
func (c *Cache) check(tokens int, positions graph.Value, m Mask) error {
	if c == nil {
		return nil
	}
	want := device.Spec{DType: device.Int32, Place: device.OnHost}
	switch {
	case c.Length < tokens:
		return fmt.Errorf("a cache of %d positions for %d tokens at a time: set Cache.Length to as many tokens as a sequence may have", c.Length, tokens)
	case !c.Position.Spec().Equal(want):
		return fmt.Errorf("Cache.Position is %v: want %v, declared with HostInput", c.Position.Spec(), want)
	case positions.IsNone():
		return fmt.Errorf("no Positions: with a Cache set those of the tokens, from Cache.Position on")
	case m.documents():
		return fmt.Errorf("mask with borders of documents: a Cache holds one document for each sequence")
	}
	return nil
}

// rope gives the table of angles as many positions as the cache has.
func (c *Cache) rope(r RoPE) RoPE {
	if c != nil && r.MaxPositions == 0 {
		r.MaxPositions = c.Length
	}
	return r
}

// append writes rows [B, T, …] to the cache of that name and returns the whole of it:
// [B, Length, …].
func (c *Cache) append(b *graph.Builder, name string, rows graph.Value) graph.Value {
	shape := rows.Shape()
	if len(shape) < 2 {
		return b.Fail("cache: want rows [batch, tokens, …], have %v", rows.Spec())
	}
	b = b.Scope("cache")
	cache := b.Cache(name, rows.Spec().DType, append([]int{shape[0], c.Length}, shape[2:]...)...)
	b.Apply(cacheAppend{}, cache, rows, c.Position)
	return cache // of what is built from now on, with the rows
}

// cacheAppend has the inputs cache [B, S, …], rows [B, T, …] and position, and
// overwrites the rows [position, position+T) of the cache.
type cacheAppend struct{ graph.Pure }

func (cacheAppend) Kind() string   { return "cache_append" }
func (cacheAppend) Mutates() []int { return []int{0} }

func (cacheAppend) Outputs([]device.Spec) ([]device.Spec, error) { return graph.TokenOutput(), nil }
func (cacheAppend) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(0, in[1:2], in[1:2])
}

func (cacheAppend) Run(x *graph.Exec, _, in []device.Tensor) error {
	cache, rows := in[0], in[1]
	first, end, err := cachedRows(cache, rows, in[2])
	if err != nil {
		return err
	}
	x.Copy(cache.Slice(1, first, end), rows)
	return nil
}

// cachedRows are the rows [first, end) of the cache that the tokens of a run have.
func cachedRows(cache, tokens, position device.Tensor) (first, end int, err error) {
	first = int(device.Elements[int32](position)[0])
	end = first + tokens.Dim(1)
	if first < 0 || end > cache.Dim(1) {
		return 0, 0, fmt.Errorf("positions %d to %d are outside the cache of %d: make it longer, or begin a new sequence", first, end-1, cache.Dim(1))
	}
	return first, end, nil
}

// attend returns the attention of q [B, T, H, Dqk] to keys [B, S, Hkv, Dqk] and to the
// first width elements of values [B, S, Hkv, ≥ width]: [B, T, H, width]. Keys and values
// may be the same cache.
func (c *Cache) attend(b *graph.Builder, q, keys, values graph.Value, width int, m Mask, scale float64) graph.Value {
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(max(1, q.Dim(3))))
	}
	return b.Apply(cached{mask: m.static(), scale: scale, width: width}, q, keys, values, c.Position)
}

// cached is fused for queries behind a cache. Its kernel goes over the same tiles of
// keys in the same order, so that its results are those of fused, bit for bit.
type cached struct {
	mask  staticMask
	scale float64
	width int // of a value
}

func (cached) Kind() string           { return "attention" }
func (cached) Effects() graph.Effects { return 0 }

// Workspace holds the log-sum-exps, which only a gradient would need.
func (cached) Workspace(in []device.Spec, _ int) int64 {
	q := in[0]
	return int64(q.Shape[0]) * int64(q.Shape[1]) * int64(q.Shape[2]) * int64(q.DType.Size())
}

func (o cached) Outputs(in []device.Spec) ([]device.Spec, error) {
	q, v := in[0], in[2]
	if len(v.Shape) != 4 || v.Last() < o.width {
		return nil, fmt.Errorf("want values of at least %d elements, have %v", o.width, v)
	}
	out, err := fused{}.Outputs([]device.Spec{q, in[1], v.WithShape(v.Shape[0], v.Shape[1], v.Shape[2], o.width)})
	if err != nil {
		return nil, err
	}
	return out[:1], nil
}

// Cost is that of a full cache: how full it is shows only in a run.
func (o cached) Cost(in []device.Spec) graph.Cost {
	q, k := in[0], in[1]
	pairs := float64(q.Shape[0]) * float64(q.Shape[2]) * float64(q.Shape[1]) * float64(k.Shape[1])
	out, _ := o.Outputs(in)
	c := graph.Traffic(2*pairs*float64(q.Last()+o.width), in[:3], out)
	c.ModelFLOPs = c.ExecutedFLOPs
	return c
}

func (o cached) Run(x *graph.Exec, out, in []device.Tensor) error {
	q, keys, values := in[0], in[1], in[2]
	first, end, err := cachedRows(keys, q, in[3])
	if err != nil {
		return err
	}
	mask := o.mask.device(nil)
	mask.Offset = first
	lse := x.Scratch(0, q.DType(), q.Dim(0), q.Dim(2), q.Dim(1))
	x.Attention(out[0], lse, q, keys.Slice(1, 0, end), values.Slice(1, 0, end).Slice(3, 0, o.width), mask, o.scale)
	return nil
}
