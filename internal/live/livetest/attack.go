// Package livetest attacks servers of package live.
package livetest

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// Attack is a crowd of connections of those who send nothing, send garbage, send a request
// byte by byte or do not read the answer. Whoever is thrown out comes again.
type Attack struct {
	// Connections that the machine had for it.
	Connections int

	stop      context.CancelFunc
	attackers sync.WaitGroup
}

// Start returns when all connections are made, or as many as the machine has.
func Start(address string, connections int) *Attack {
	ctx, stop := context.WithCancel(context.Background())
	a := &Attack{stop: stop}
	for i := range connections {
		c, err := net.DialTimeout("tcp", address, 10*time.Second)
		if err != nil {
			break
		}
		a.Connections++
		a.attackers.Go(func() { attack(ctx, c, address, i) })
	}
	return a
}

// Stop returns when all connections are closed.
func (a *Attack) Stop() {
	a.stop()
	a.attackers.Wait()
}

// pause is that of the slow, between two bytes and before they come again.
const pause = 100 * time.Millisecond

func attack(ctx context.Context, c net.Conn, address string, i int) {
	for {
		closed := context.AfterFunc(ctx, func() { c.Close() })
		harass(c, i)
		if closed() {
			c.Close()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		var err error
		var d net.Dialer
		if c, err = d.DialContext(ctx, "tcp", address); err != nil {
			return // the server is gone
		}
	}
}

// harass keeps a connection busy until one side ends it.
func harass(c net.Conn, i int) {
	defer io.Copy(io.Discard, c)
	const request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
	switch i % 4 {
	case 0: // silence
	case 1:
		fmt.Fprintf(c, "%s\x00\xff\r\n\r\n", strings.Repeat("garbage ", i))
	case 2:
		for _, b := range []byte(request) {
			if _, err := c.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(pause)
		}
	case 3:
		io.WriteString(c, request)
		one := make([]byte, 1)
		for {
			if _, err := c.Read(one); err != nil {
				return
			}
			time.Sleep(pause)
		}
	}
}
