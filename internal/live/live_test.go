package live

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func serve(t *testing.T, address string) *Server {
	t.Helper()
	s, err := Serve(address,
		Page{Path: "/", ContentType: "text/html; charset=utf-8", Content: func() ([]byte, error) { return []byte("<h1>page</h1>"), nil }},
		Page{Path: "/broken", Content: func() ([]byte, error) { return nil, errors.New("no such run") }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// send writes raw bytes and returns all of the answer.
func send(t *testing.T, s *Server, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, text)
	answer, _ := io.ReadAll(c) // ends, since no connection is kept
	return string(answer)
}

func TestServe(t *testing.T) {
	s := serve(t, ":0")
	if !strings.HasPrefix(s.Address(), "127.0.0.1:") {
		t.Errorf("listens on %s, want loopback", s.Address())
	}
	for _, x := range []struct{ request, want string }{
		{"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "200 OK"},
		{"HEAD / HTTP/1.1\r\nHost: localhost:80\r\n\r\n", "200 OK"},
		{"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", "405"},
		{"GET /else HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"},
		{"GET /%2e%2e/etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"},
		{"GET /etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"},
		{"GET /broken HTTP/1.1\r\nHost: localhost\r\n\r\n", "500"},
		{"GET / HTTP/1.1\r\n\r\n", "400"},
		{"GET / HTTP/1.0\r\n\r\n", "421"},
		{"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", "400"},
		{"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n", "431"},
	} {
		answer := send(t, s, x.request)
		line, _, _ := strings.Cut(answer, "\r\n")
		if !strings.Contains(line, x.want) {
			t.Errorf("%.60q: %q, want %s", x.request, line, x.want)
		}
		if strings.Contains(x.want, "200") && (!strings.Contains(answer, "Connection: close") || !strings.Contains(answer, "nosniff") ||
			strings.HasSuffix(answer, "<h1>page</h1>") != strings.HasPrefix(x.request, "GET")) {
			t.Errorf("%.60q: %q", x.request, answer)
		}
	}
}

// A page of another site cannot read the server through a name of its own that points here.
func TestHosts(t *testing.T) {
	for _, x := range []struct {
		listened, host string
		want           int
	}{
		{"127.0.0.1", "127.0.0.1:8080", http.StatusOK},
		{"127.0.0.1", "[::1]:8080", http.StatusOK},
		{"127.0.0.1", "LocalHost", http.StatusOK},
		{"127.0.0.1", "localhost.", http.StatusOK},
		{"127.0.0.1", "evil.example:8080", http.StatusMisdirectedRequest},
		{"127.0.0.1", "localhost.evil.example", http.StatusMisdirectedRequest},
		{"127.0.0.1", "127.0.0.1.evil.example", http.StatusMisdirectedRequest},
		{"127.0.0.1", "", http.StatusMisdirectedRequest},
		{"0.0.0.0", "192.0.2.7:8080", http.StatusOK},
		{"0.0.0.0", "evil.example", http.StatusMisdirectedRequest},
		{"node7", "node7:8080", http.StatusOK},
		{"node7", "evil.example", http.StatusMisdirectedRequest},
	} {
		h := knownHosts(x.listened, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		w := &recorder{status: http.StatusOK, header: http.Header{}}
		h.ServeHTTP(w, &http.Request{Host: x.host})
		if w.status != x.want {
			t.Errorf("listening on %s, asked as %q: %d, want %d", x.listened, x.host, w.status, x.want)
		}
	}
}

type recorder struct {
	status int
	header http.Header
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) Write(p []byte) (int, error) { return len(p), nil }
func (r *recorder) WriteHeader(status int)      { r.status = status }

func TestAddressRefusals(t *testing.T) {
	for _, address := range []string{"8080", "localhost", "localhost:http", "localhost:65536", "localhost:-1", "a:b:c"} {
		if s, err := Serve(address); err == nil {
			s.Close()
			t.Errorf("%q is taken", address)
		}
	}
}

// crowd is a listener at which connections wait without end.
type crowd struct{ net.Listener }

func (crowd) Accept() (net.Conn, error) { return nobody{}, nil }
func (crowd) Close() error              { return nil }

type nobody struct{ net.Conn }

func (nobody) Close() error { return nil }

// However many wait, only so many are let in, and one more for each that leaves.
func TestListenerBoundsConnections(t *testing.T) {
	l := newListener(crowd{})
	var open []net.Conn
	for range mostConnections {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	if len(l.open) != cap(l.open) {
		t.Fatalf("room for %d more", cap(l.open)-len(l.open))
	}
	open[0].Close()
	open[0].Close()
	if len(l.open) != cap(l.open)-1 {
		t.Fatalf("%d connections are open after one was closed twice", len(l.open))
	}
	if _, err := l.Accept(); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept at a closed, full listener: %v", err)
	}
}

// After a burst connections come at the mean rate, and a pause earns one burst, not more.
func TestListenerPace(t *testing.T) {
	l := newListener(crowd{})
	now := time.Now()
	for range 2 {
		for i := range acceptBurst {
			if p := l.pause(now); p > 0 {
				t.Fatalf("connection %d waits for %v", i, p)
			}
		}
		for i := range 10 {
			if p, want := l.pause(now), time.Duration(i+1)*acceptEvery; p != want {
				t.Fatalf("connection %d behind the burst waits for %v, want %v", i, p, want)
			}
		}
		now = now.Add(time.Hour)
	}
}

func TestCached(t *testing.T) {
	version, made := uint64(1), 0
	c := Cached{Version: func() uint64 { return version }, Make: func() ([]byte, error) { made++; return []byte{byte(made)}, nil }}
	want := func(n int) {
		t.Helper()
		if text, err := c.Content(); err != nil || made != n || text[0] != byte(n) {
			t.Fatalf("made %d times, %v, want %d", made, err, n)
		}
	}
	want(1)
	c.rested = time.Time{}
	want(1)
	version = 2
	want(2)
	version = 3
	c.rested = time.Now().Add(time.Hour) // making it took long
	want(2)
	c.rested = time.Time{}
	want(3)
}
