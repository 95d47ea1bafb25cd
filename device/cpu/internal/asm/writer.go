package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// level is a set of instructions.
type level struct {
	name, suffix string
	wide         bool // 64 bytes to a register, else 32
}

var levels = []level{
	{"avx2", "AVX2", false},
	{"avx512", "AVX512", true},
}

// writer writes functions for one level. Its methods take and give registers of the
// level's width; an operand that may be in memory is an Op.
type writer struct {
	*build.Context
	level
	mask   reg.Register // of the elements that are left, while a tail is written
	labels int
	behind []func()   // writes what comes behind the function's return
	pool   []constant // in the order of their first use
}

// constant is a number that fills a register's worth of memory.
type constant struct {
	name string
	data operand.Constant
	size int
	at   operand.Mem
}

// lanes is the number of float32 in a register.
func (w *writer) lanes() int {
	if w.wide {
		return 16
	}
	return 8
}

func (w *writer) begin() { w.mask = nil }

// vector is a new register.
func (w *writer) vector() reg.VecVirtual {
	if w.wide {
		return w.ZMM()
	}
	return w.YMM()
}

// half is a new register of half the width.
func (w *writer) half() reg.VecVirtual {
	if w.wide {
		return w.YMM()
	}
	return w.XMM()
}

func (w *writer) label(name string) string {
	w.labels++
	return fmt.Sprintf("%s%d", name, w.labels)
}

// float is a constant float32 in memory.
func (w *writer) float(name string, v float32) operand.Mem {
	return w.constant(name, operand.U32(math.Float32bits(v)), 4)
}

// integer is a constant int32 in memory.
func (w *writer) integer(name string, v int32) operand.Mem {
	return w.constant(name, operand.U32(uint32(v)), 4)
}

// double is a constant float64 in memory.
func (w *writer) double(name string, v float64) operand.Mem {
	return w.constant(name, operand.U64(math.Float64bits(v)), 8)
}

func (w *writer) constant(name string, data operand.Constant, size int) operand.Mem {
	for _, c := range w.pool {
		if c.name == name {
			if c.data != data {
				panic("two constants named " + name)
			}
			return c.at
		}
	}
	at := operand.NewDataAddr(operand.NewStaticSymbol(name), 0)
	w.pool = append(w.pool, constant{name, data, size, at})
	return at
}

// constants writes the data of all constants of the file, and the tail masks.
func (w *writer) constants() {
	for _, c := range w.pool {
		w.StaticGlobal(c.name)
		w.DataAttributes(attr.RODATA | attr.NOPTR)
		n := 4 * w.lanes()
		if c.name == tailMasks {
			for i := range 16 {
				w.AddDatum(8*i, operand.U64(-uint64((15-i)/8)))
			}
			continue
		}
		for i := 0; i < n; i += c.size {
			w.AddDatum(i, c.data)
		}
	}
}

// register copies a constant to a register.
func (w *writer) register(m operand.Mem) reg.VecVirtual {
	v := w.vector()
	w.VMOVUPS(m, v)
	return v
}

// spread is a float32 parameter in all lanes.
func (w *writer) spread(name string) reg.VecVirtual {
	m, err := w.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	v := w.vector()
	w.VBROADCASTSS(m.Addr, v)
	return v
}

// pointer and length are those of a slice.
func (w *writer) pointer(name string) reg.Register {
	return w.Load(w.Param(name).Base(), w.GP64())
}

func (w *writer) length(name string) reg.Register {
	return w.Load(w.Param(name).Len(), w.GP64())
}

// load reads float32, or what the mask leaves of them and zeros.
func (w *writer) load(m operand.Mem) reg.VecVirtual {
	v := w.vector()
	w.move(m, v)
	return v
}

func (w *writer) move(m operand.Mem, v reg.Register) {
	switch {
	case w.mask == nil:
		w.VMOVUPS(m, v)
	case w.wide:
		w.VMOVUPS_Z(m, w.mask, v)
	default:
		w.VMASKMOVPS(m, w.mask, v)
	}
}

// store writes float32 that the mask leaves.
func (w *writer) store(v reg.Register, m operand.Mem) {
	switch {
	case w.mask == nil:
		w.VMOVUPS(v, m)
	case w.wide:
		w.VMOVUPS(v, w.mask, m)
	default:
		w.VMASKMOVPS(v, w.mask, m)
	}
}

// tailMasks has sixteen lanes of ones before sixteen of zeros: read from the middle
// less n lanes on it has n lanes set.
const tailMasks = "tailMasks"

// setMask leaves the first rest < lanes elements; rest is lost.
func (w *writer) setMask(rest reg.Register, lanes int) {
	if w.wide {
		w.setOpmask(rest)
		return
	}
	w.NEGQ(rest)
	table := w.GP64()
	w.LEAQ(w.constant(tailMasks, operand.U64(0), 8), table)
	var mask reg.Register = w.YMM()
	if lanes == 4 {
		mask = w.XMM()
	}
	w.VMOVUPS(operand.Mem{Base: table, Index: rest, Scale: 4, Disp: 64}, mask)
	w.mask = mask
}

// setOpmask leaves the first rest elements of up to 16; rest is lost.
func (w *writer) setOpmask(rest reg.Register) {
	bits, k := w.GP32(), w.K()
	w.MOVL(operand.U32(0xFFFF), bits)
	w.BZHIL(rest.(reg.GP).As32(), bits, bits)
	w.KMOVW(bits, k)
	w.mask = k
}
