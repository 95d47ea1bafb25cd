// Package live serves a few pages over HTTP from a process whose work must not wait for
// it. What strangers can make such a server do is bounded, however many they are and
// whatever they send: connections are taken at a limited rate and few at a time, each
// lives for seconds, and [Cached] makes a page no more often than its content changes.
package live

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"time"
)

const (
	readTimeout  = 2 * time.Second  // for a whole request
	writeTimeout = 10 * time.Second // for a whole answer
	headerBytes  = 4 << 10
)

// Page is what stands at a path.
type Page struct {
	Path, ContentType string
	// Content may be called by several goroutines at once.
	Content func() ([]byte, error)
}

// Server answers requests on an address until it is closed.
type Server struct {
	http   *http.Server
	listen *listener
}

// Serve begins to serve pages on an address as [net.Listen] takes it, except that one
// without a host, such as ":8080", is reached from this machine alone. A request must
// come under a name of this machine: a page of another site, whose name its owner lets
// point here, gets nothing.
func Serve(address string, pages ...Page) (*Server, error) {
	host, port, err := ParseAddress(address)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	for _, p := range pages {
		pattern := p.Path
		if pattern == "/" {
			pattern = "/{$}"
		}
		mux.Handle("GET "+pattern, p)
	}
	s := &Server{listen: newListener(l), http: &http.Server{
		Handler:           knownHosts(host, mux),
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		MaxHeaderBytes:    headerBytes,
		ErrorLog:          log.New(io.Discard, "", 0), // strangers do not write to the console
	}}
	s.http.SetKeepAlivesEnabled(false)
	go s.http.Serve(s.listen)
	return s, nil
}

// Address that is listened on, with the port that was chosen for port 0.
func (s *Server) Address() string { return s.listen.Addr().String() }

// Close ends all connections, also of those who still read.
func (s *Server) Close() error { return s.http.Close() }

// ParseAddress splits an address for Serve.
func ParseAddress(address string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(address)
	if err != nil {
		return "", "", err
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", "", fmt.Errorf("port %q is not a number from 0 to 65535", port)
	} else {
		port = strconv.FormatUint(n, 10)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return host, port, nil
}

// ServeHTTP implements [net/http.Handler].
func (p Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "frame-ancestors 'none'")
	text, err := p.Content()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h.Set("Content-Type", p.ContentType)
	h.Set("Content-Length", strconv.Itoa(len(text)))
	if r.Method != http.MethodHead {
		w.Write(text) // who does not read it, does not
	}
}
