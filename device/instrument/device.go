package instrument

import (
	"sync"
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

// Device is a device whose kernels are recorded.
type Device struct {
	device.Device

	mu       sync.Mutex
	watched  device.Buffer
	handed   []span // of it, for the runs before and after
	tick     int
	accesses []access
	others   map[device.Buffer]bool // device memory outside the watched buffer that was touched
	places   map[device.Buffer]device.Place
	poison   [][]span // by tick: what to fill with NaN at its end
	unborn   []span   // what to fill as a run begins: all that is not handed to it
	on       bool
}

// access is one kernel's use of a range of the watched buffer.
type access struct {
	tick   int
	lo, hi int64
	write  bool
}

// Wrap returns d with an instrument around it. Memory must be reachable by the
// host for poison to work.
func Wrap(d device.Device) *Device {
	return &Device{Device: d, others: map[device.Buffer]bool{}, places: map[device.Buffer]device.Place{}}
}

// Alloc remembers which memory is the host's.
func (d *Device) Alloc(place device.Place, bytes int64) (device.Buffer, error) {
	b, err := d.Device.Alloc(place, bytes)
	if err == nil {
		d.mu.Lock()
		d.places[b] = place
		d.mu.Unlock()
	}
	return b, err
}

// Start begins a recording of the accesses to b, the arena. Of the tensors handed, which lie
// in it, the run may read what was written before it, and what it leaves there is read later.
func (d *Device) Start(b device.Buffer, handed ...device.Tensor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watched, d.tick, d.accesses, d.on = b, 0, d.accesses[:0], true
	clear(d.others)
	d.handed = d.handed[:0]
	for _, t := range handed {
		lo, hi := t.Extent()
		d.handed = append(d.handed, span{lo, hi})
	}
}

// Tick says that the executor has reached step n.
func (d *Device) Tick(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.on && d.poison != nil {
		if n == 0 {
			for _, s := range d.unborn {
				fillNaN(d.watched, s.lo, s.hi)
			}
		}
		for t := d.tick; t < n && t < len(d.poison); t++ {
			for _, s := range d.poison[t] {
				fillNaN(d.watched, s.lo, s.hi)
			}
		}
	}
	d.tick = n
}

// Stop ends the recording and returns what it shows.
func (d *Device) Stop() Measurement {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.on = false
	for _, s := range d.handed {
		d.accesses = append(d.accesses, access{d.tick, s.lo, s.hi, false})
	}
	m := analyse(d.accesses, d.handed)
	for b := range d.others {
		if d.places[b] == device.OnDevice {
			m.Persistent += b.Size()
		}
	}
	return m
}

// Poison makes the runs that follow disturb every byte of the arena that the
// measured run had no more use for; a Measurement without lives turns it off.
func (d *Device) Poison(m Measurement) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.poison, d.unborn = nil, nil
	if len(m.lives) == 0 {
		return
	}
	d.poison = make([][]span, m.ticks+1)
	for i, l := range m.lives {
		if next := i + 1; next < len(m.lives) && m.lives[next].lo == l.lo && m.lives[next].first <= l.last {
			continue // overwritten in place in the same step
		}
		d.poison[l.last] = append(d.poison[l.last], l.span)
	}
	var end int64
	for _, l := range m.lives {
		if l.handed {
			d.unborn = append(d.unborn, span{end, l.lo})
			end = l.hi
		}
	}
	d.unborn = append(d.unborn, span{end, d.watched.Size()})
}

// fillNaN sets all bits of a range: NaN in every float dtype, −1 in every integer.
func fillNaN(b device.Buffer, lo, hi int64) {
	if lo >= hi {
		return
	}
	bytes := unsafe.Slice((*byte)(unsafe.Add(b.Pointer(), lo)), hi-lo)
	for i := range bytes {
		bytes[i] = 0xFF
	}
}

// Complete says that the asynchronous step n is over: what its kernels touched
// was in use until now.
func (d *Device) Complete(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.on {
		return
	}
	for _, a := range d.accesses {
		if a.tick == n {
			d.accesses = append(d.accesses, access{d.tick, a.lo, a.hi, false})
		}
	}
}

// touch records tensors that a kernel reads or writes at a tick; −1 is now.
func (d *Device) touch(tick int, tensors []device.Tensor, write bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.on {
		return
	}
	if tick < 0 {
		tick = d.tick
	}
	for _, t := range tensors {
		if t.IsZero() || t.Len() == 0 {
			continue
		}
		if t.Buffer() != d.watched {
			d.others[t.Buffer()] = true
			continue
		}
		lo, hi := t.Extent()
		d.accesses = append(d.accesses, access{tick, lo, hi, write})
	}
}

// NewQueue returns a queue whose kernels are recorded before they run.
func (d *Device) NewQueue() device.Queue { return &queue{to: d.Device.NewQueue(), device: d, tick: -1} }
