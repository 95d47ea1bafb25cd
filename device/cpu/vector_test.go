package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/philox"
)

// vectorCases are all kernels over rows that have assembly. The functions call one
// on slices of equal lengths; what they return, if anything, is a result beside those in the slices.
var vectorCases = []vectorCase{
	{"exp", 2, 4e-7, expCase[float32], expCase[float64]},
	{"sigmoid", 2, 4e-7, sigmoidCase[float32], sigmoidCase[float64]},
	{"tanh", 2, 4e-7, tanhCase[float32], tanhCase[float64]},
	{"swiGLU", 3, 1e-6, swiGLUCase[float32], swiGLUCase[float64]},
	{"swiGLUBackward", 5, 2e-6, swiGLUBackwardCase[float32], swiGLUBackwardCase[float64]},
	{"adamW", 4, 1e-7, adamWCase[float32], adamWCase[float64]},
	{"sgd", 2, 1e-7, sgdCase[float32], sgdCase[float64]},
	{"momentum", 3, 1e-7, momentumCase[float32](false), momentumCase[float64](false)},
	{"nesterov", 3, 1e-7, momentumCase[float32](true), momentumCase[float64](true)},
	{"lerp", 3, 1e-7, lerpCase[float32], lerpCase[float64]},
	{"sum", 1, 1e-9, sumCase[float32], sumCase[float64]},
	{"dot", 2, 1e-9, dotCase[float32], dotCase[float64]},
	{"dot3", 3, 1e-4, dot3Case[float32], dot3Case[float64]},
	{"maximum", 1, 0, maximumCase[float32], maximumCase[float64]},
	{"addColumns", 2, 1e-6, addColumnsCase[float32], addColumnsCase[float64]},
	{"addScaled", 3, 4e-6, addScaledCase[float32], addScaledCase[float64]},
	{"scaled", 2, 1e-6, scaledCase[float32], scaledCase[float64]},
	{"add", 3, 1e-6, binaryCase[float32](device.Add), binaryCase[float64](device.Add)},
	{"sub", 3, 1e-6, binaryCase[float32](device.Sub), binaryCase[float64](device.Sub)},
	{"mul", 3, 1e-6, binaryCase[float32](device.Mul), binaryCase[float64](device.Mul)},
	{"div", 3, 1e-6, binaryCase[float32](device.Div), binaryCase[float64](device.Div)},
	{"maximum of two", 3, 0, binaryCase[float32](device.Maximum), binaryCase[float64](device.Maximum)},
	{"neg", 2, 0, unaryCase[float32](device.Neg), unaryCase[float64](device.Neg)},
	{"square", 2, 1e-6, unaryCase[float32](device.Square), unaryCase[float64](device.Square)},
	{"sqrt", 2, 1e-6, unaryCase[float32](device.Sqrt), unaryCase[float64](device.Sqrt)},
	{"inverse", 2, 1e-6, unaryCase[float32](device.Inverse), unaryCase[float64](device.Inverse)},
	{"normalize", 3, 4e-6, normalizeCase[float32], normalizeCase[float64]},
	{"addProduct", 3, 4e-6, addProductCase[float32], addProductCase[float64]},
	{"rmsNormBackward", 4, 1e-5, rmsNormBackwardCase[float32], rmsNormBackwardCase[float64]},
	{"softmaxBackward", 3, 4e-6, softmaxBackwardCase[float32], softmaxBackwardCase[float64]},
	{"dropout", 2, 1e-6, dropoutCase[float32], dropoutCase[float64]},
	{"ropeAdjacent", 4, 1e-5, ropeCase[float32](device.AdjacentPairs), ropeCase[float64](device.AdjacentPairs)},
	{"ropeHalves", 4, 1e-5, ropeCase[float32](device.RotateHalf), ropeCase[float64](device.RotateHalf)},
}

type vectorCase struct {
	name      string
	slices    int
	tolerance float64 // of the difference to float64, relative above 1
	single    func(l level, x [][]float32) float64
	double    func(l level, x [][]float64) float64
}

func expCase[T float](l level, x [][]T) float64 {
	expRow(l, x[0], x[1], 0.75, -0.25)
	return 0
}

func sigmoidCase[T float](l level, x [][]T) float64 {
	sigmoidRow(l, x[0], x[1])
	return 0
}

func tanhCase[T float](l level, x [][]T) float64 {
	tanhRow(l, x[0], x[1])
	return 0
}

func swiGLUCase[T float](l level, x [][]T) float64 {
	swiGLURow(l, x[0], x[1], x[2])
	return 0
}

func swiGLUBackwardCase[T float](l level, x [][]T) float64 {
	swiGLUBackwardRow(l, x[0], x[1], x[2], x[3], x[4])
	return 0
}

func adamWCase[T float](l level, x [][]T) float64 {
	for i, v := range x[2] {
		x[2][i] = max(v, -v) // the average of squares
	}
	adamWRow(l, x[0], x[1], x[2], x[3], &adamWScalars{factor: 0.7, l2: 0.01, shrink: 0.999,
		beta1: 0.9, rest1: 0.1, beta2: 0.95, rest2: 0.05, rate: 0.003, unbias2: 1.3, eps: 1e-8})
	return 0
}

func sgdCase[T float](l level, x [][]T) float64 {
	sgdRow(l, x[0], x[1], &sgdScalars{factor: 0.7, l2: 0.01, rate: 0.1})
	return 0
}

func momentumCase[T float](nesterov bool) func(level, [][]T) float64 {
	return func(l level, x [][]T) float64 {
		momentumRow(l, x[0], x[1], x[2], &sgdScalars{factor: 0.7, l2: 0.01, momentum: 0.9, rate: 0.1, nesterov: nesterov})
		return 0
	}
}

func lerpCase[T float](l level, x [][]T) float64 {
	lerpRow(l, x[0], x[1], x[2], 1.0/3)
	return 0
}

func sumCase[T float](l level, x [][]T) float64  { return sumRow(l, x[0]) }
func dotCase[T float](l level, x [][]T) float64  { return dotRow(l, x[0], x[1]) }
func dot3Case[T float](l level, x [][]T) float64 { return dot3Row(l, x[0], x[1], x[2]) }

// maximumCase takes either zero for the other.
func maximumCase[T float](l level, x [][]T) float64 { return float64(rowMaximum(l, x[0])) + 0 }

// addColumnsCase has guards around its sums too.
func addColumnsCase[T float](l level, x [][]T) float64 {
	n := len(x[0])
	sums := make([]float64, n+8)
	for i, v := range x[0] {
		sums[i] = float64(v)
	}
	addColumnsRow(l, sums[:n], x[1])
	for i := range x[0] {
		x[0][i] = T(sums[i])
	}
	outside := 0.0
	for _, v := range sums[n:] {
		outside += v
	}
	return outside
}

func addScaledCase[T float](l level, x [][]T) float64 {
	addScaledRow(l, x[0], x[1], x[2], 0.3)
	return 0
}

func scaledCase[T float](l level, x [][]T) float64 {
	scaledRow(l, x[0], x[1], -0.3)
	return 0
}

func binaryCase[T float](f device.BinaryFunc) func(level, [][]T) float64 {
	return func(l level, x [][]T) float64 {
		binaryRow(l, f, x[0], x[1], x[2])
		return 0
	}
}

func unaryCase[T float](f device.UnaryFunc) func(level, [][]T) float64 {
	return func(l level, x [][]T) float64 {
		if f == device.Sqrt {
			for i, v := range x[1] {
				x[1][i] = max(v, -v)
			}
		}
		unaryRow(l, f, x[0], x[1])
		return 0
	}
}

func normalizeCase[T float](l level, x [][]T) float64 {
	normalizeRow(l, x[0], x[1], x[2], 0.8)
	return 0
}

func addProductCase[T float](l level, x [][]T) float64 {
	addProductRow(l, x[0], x[1], x[2], 0.8)
	return 0
}

func rmsNormBackwardCase[T float](l level, x [][]T) float64 {
	rmsNormBackwardRow(l, x[0], x[1], x[2], x[3], 0.8, 0.2)
	return 0
}

func softmaxBackwardCase[T float](l level, x [][]T) float64 {
	softmaxBackwardRow(l, x[0], x[1], x[2], 0.3)
	return 0
}

func dropoutCase[T float](l level, x [][]T) float64 {
	words := make([]uint64, len(x[0]))
	for i := range words {
		words[i] = philox.Uint64(7, uint64(i), 0, 0)
	}
	const exactly = 3 << 51 // a draw at the threshold is kept, one below is not
	if len(words) > 2 {
		words[0], words[1], words[2] = exactly<<11, exactly<<11-1, math.MaxUint64
	}
	dropoutRow(l, x[0], x[1], words, 0.7, exactly)
	return 0
}

// ropeCase has one to three heads in a slice, and a gap between them in one.
func ropeCase[T float](layout device.RoPELayout) func(level, [][]T) float64 {
	return func(l level, x [][]T) float64 {
		heads := 1 + len(x[0])%3
		if pairs := (len(x[0]) - heads) / (2 * heads); pairs > 0 {
			rotateHeads(l, layout, x[0], x[1], x[2][:pairs], x[3][:pairs], heads, 2*pairs+1, 2*pairs, -1)
		}
		return 0
	}
}

// The assembly gives the bits of its Go twin, on any length and alignment, for every
// kind of number, and writes nothing outside; the twin gives about what float64 does.
func TestVectorKernels(t *testing.T) {
	lengths := []int{255, 256, 257, 1000, 4099}
	for n := range 68 {
		lengths = append(lengths, n)
	}
	for _, k := range vectorCases {
		t.Run(k.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			for _, n := range lengths {
				for _, number := range []func(*rand.Rand) float32{ordinary, anyNumber} {
					x := newGuardedRows(random, k.slices, n, random.IntN(16), number)
					want := x.copy()
					got, result := k.single(bestLevel(), x.rows), k.single(levelGo, want.rows)
					x.compare(t, want)
					if !sameNumber(got, result) {
						t.Fatalf("%d elements: level %v gives %v, its Go twin %v", n, bestLevel(), got, result)
					}
				}
				k.near64(t, random, n)
			}
		})
	}
}

// Draws are those of philox at any index, step and counter, past 32 bits as well.
func TestDraws(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for round := range 200 {
		n, first, step := 1+random.IntN(stagingLen), random.Uint64()>>random.IntN(64), random.Uint64()>>random.IntN(64)
		if round%2 == 0 {
			first, step = math.MaxUint32-uint64(random.IntN(n)), 1
		}
		d := draws{level: bestLevel(), index: first, Draw: device.Draw{Key: random.Uint64(), Step: random.Uint32(), Microbatch: random.Uint32()}}
		d.operands, d.rank = 1, 1
		d.strides[0][0] = int(step)
		d.setKeys()
		words := make([]uint64, 2*stagingLen)
		d.fill(words[:n], &cursor{})
		for i, w := range words[:n] {
			if want := philox.Uint64(d.Key, first+uint64(i)*step, d.Step, d.Microbatch); w != want {
				t.Fatalf("draw %d of %d = %#x, want %#x", i, n, w, want)
			}
		}
		for i, w := range words[(n+15)&^15:] {
			if w != 0 {
				t.Fatalf("%d draws: %d behind the last block was written", n, i)
			}
		}
	}
}

// near64 compares the Go twin with what it computes in float64.
func (k *vectorCase) near64(t *testing.T, random *rand.Rand, n int) {
	x := newGuardedRows(random, k.slices, n, 0, ordinary)
	wide := make([][]float64, k.slices)
	for i, row := range x.rows {
		for _, v := range row {
			wide[i] = append(wide[i], float64(v))
		}
	}
	got, want := k.single(levelGo, x.rows), k.double(levelGo, wide)
	near := func(got, want float64) bool {
		return got == want || math.Abs(got-want) <= k.tolerance*max(1, math.Abs(want))
	}
	for i, row := range x.rows {
		for j, v := range row {
			if !near(float64(v), wide[i][j]) {
				t.Fatalf("%d elements: slice %d, element %d = %v, in float64 %v", n, i, j, v, wide[i][j])
			}
		}
	}
	if !near(got, want) {
		t.Fatalf("%d elements: result %v, in float64 %v", n, got, want)
	}
}

// ordinary numbers are about as large as activations.
func ordinary(r *rand.Rand) float32 { return float32(r.NormFloat64() * 2) }

// anyNumber is often of an odd kind.
func anyNumber(r *rand.Rand) float32 {
	switch r.IntN(12) {
	case 0:
		return math.Float32frombits(r.Uint32())
	case 1:
		return math.Float32frombits(r.Uint32() & 0x807FFFFF) // subnormal
	case 2:
		odd := []float64{0, math.Copysign(0, -1), 1, -1, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat32, 88.7, -87.4, -103.9}
		return float32(odd[r.IntN(len(odd))])
	case 3:
		return float32(r.NormFloat64() * 60)
	}
	return ordinary(r)
}

// guardedRows are slices inside buffers whose other elements hold a pattern.
type guardedRows struct {
	buffers, rows [][]float32
	offset        int
}

const (
	guardZone = 32
	canary    = 0x7FABCDEF // a NaN that no kernel makes
)

func newGuardedRows(random *rand.Rand, slices, n, offset int, number func(*rand.Rand) float32) *guardedRows {
	g := &guardedRows{offset: guardZone + offset}
	for range slices {
		b := make([]float32, g.offset+n+guardZone)
		for i := range b {
			b[i] = math.Float32frombits(canary)
		}
		for i := range n {
			b[g.offset+i] = number(random)
		}
		g.add(b)
	}
	return g
}

func (g *guardedRows) add(b []float32) {
	g.buffers, g.rows = append(g.buffers, b), append(g.rows, b[g.offset:len(b)-guardZone])
}

func (g *guardedRows) copy() *guardedRows {
	c := &guardedRows{offset: g.offset}
	for _, b := range g.buffers {
		c.add(append([]float32(nil), b...))
	}
	return c
}

// compare wants the same numbers in the rows and the pattern around them.
func (g *guardedRows) compare(t *testing.T, want *guardedRows) {
	t.Helper()
	for i, b := range g.buffers {
		n := len(g.rows[i])
		for j, v := range b {
			at := j - g.offset
			if at < 0 || at >= n {
				if math.Float32bits(v) != canary {
					t.Fatalf("%d elements at offset %d: slice %d: element %d, outside, was written", n, g.offset, i, at)
				}
			} else if w := want.buffers[i][j]; !sameNumber(float64(v), float64(w)) {
				t.Fatalf("%d elements at offset %d: slice %d: element %d = %v (%#x), its Go twin gives %v (%#x)",
					n, g.offset, i, at, v, math.Float32bits(v), w, math.Float32bits(w))
			}
		}
	}
}

// sameNumber tells zeros apart, and no NaNs.
func sameNumber(a, b float64) bool {
	return a != a && b != b || math.Float64bits(a) == math.Float64bits(b)
}
