package live

import (
	"sync"
	"time"
)

// restShare is how much longer than it took to make content none is made again: making it
// takes at most a twentieth of one processor's time.
const restShare = 19

// Cached keeps content until its source has another version, and does not make it again
// too soon. Its method Content may be called by several goroutines at once.
type Cached struct {
	// Version of the source, which may be any number that changes when it does.
	Version func() uint64
	Make    func() ([]byte, error)

	mu      sync.Mutex
	made    bool
	version uint64
	text    []byte
	err     error
	rested  time.Time
}

// Content is what Make made last, an error included.
func (c *Cached) Content() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	version, begin := c.Version(), time.Now()
	if c.made && (version == c.version || begin.Before(c.rested)) {
		return c.text, c.err
	}
	c.text, c.err = c.Make()
	c.made, c.version = true, version
	end := time.Now()
	c.rested = end.Add(restShare * end.Sub(begin))
	return c.text, c.err
}
