package live

import (
	"net"
	"sync"
	"time"
)

const (
	// mostConnections are open at once; others wait in the kernel.
	mostConnections = 32
	// acceptEvery is the time from one connection to the next under load, acceptBurst how
	// many may come at once after a pause.
	acceptEvery = 20 * time.Millisecond
	acceptBurst = 64
)

// listener bounds how many connections there are, and how many come in a second.
type listener struct {
	net.Listener
	open   chan struct{} // has an element for each open connection
	closed chan struct{}
	once   sync.Once
	next   time.Time // when the next connection is due
}

func newListener(l net.Listener) *listener {
	return &listener{Listener: l, open: make(chan struct{}, mostConnections), closed: make(chan struct{})}
}

// Accept is called by one goroutine.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case l.open <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	select {
	case <-time.After(l.pause(time.Now())):
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.open
		return nil, err
	}
	return &connection{Conn: c, closed: sync.OnceFunc(func() { <-l.open })}, nil
}

// pause is how long to wait for the next connection.
func (l *listener) pause(now time.Time) time.Duration {
	if earliest := now.Add(-acceptBurst * acceptEvery); l.next.Before(earliest) {
		l.next = earliest
	}
	l.next = l.next.Add(acceptEvery)
	return l.next.Sub(now)
}

// Close implements [net.Listener].
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// connection makes room for another one when it is closed.
type connection struct {
	net.Conn
	closed func()
}

func (c *connection) Close() error {
	defer c.closed()
	return c.Conn.Close()
}
