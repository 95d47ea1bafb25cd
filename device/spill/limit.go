package spill

import (
	"sync"
	"time"
)

// Limit returns a disk through which no more bytes go in a second than a bandwidth, reads and
// writes together: what is left of a disk that others use too, or a slower one in an
// experiment.
func Limit(d Disk, bandwidth float64) Disk { return &limited{Disk: d, bandwidth: bandwidth} }

// limited has one transfer after another take its time.
type limited struct {
	Disk
	bandwidth float64

	mutex sync.Mutex
	busy  time.Time // until then, with what has been asked for
}

func (l *limited) ReadAt(p []byte, offset int64) (int, error) {
	end := l.reserve(len(p))
	n, err := l.Disk.ReadAt(p, offset)
	time.Sleep(time.Until(end))
	return n, err
}

func (l *limited) WriteAt(p []byte, offset int64) (int, error) {
	end := l.reserve(len(p))
	n, err := l.Disk.WriteAt(p, offset)
	time.Sleep(time.Until(end))
	return n, err
}

// reserve is when a transfer may end that is asked for now.
func (l *limited) reserve(bytes int) time.Time {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if now := time.Now(); l.busy.Before(now) {
		l.busy = now
	}
	l.busy = l.busy.Add(time.Duration(float64(bytes) / l.bandwidth * float64(time.Second)))
	return l.busy
}
