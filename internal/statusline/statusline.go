// Package statusline keeps a line at the bottom of a terminal, below what is written to it.
//
// The line is drawn where the cursor is and ends where the cursor stays, so that what
// others write to the terminal starts a new line at worst. It takes the escape codes of
// every terminal since the VT100, and no colour.
package statusline

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// Erase empties the line the cursor is in and puts the cursor at its start. It is for
// those that write to the same terminal by another way.
const Erase = "\r\x1b[K"

// defaultWidth is for a terminal that does not say how wide it is.
const defaultWidth = 80

// Terminal reports whether w is a terminal that can keep a line, and returns its width at
// the moment of a call.
func Terminal(w io.Writer) (width func() int, ok bool) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil, false
	}
	return func() int {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return columns
		}
		return defaultWidth
	}, true
}

// Line is the line at the bottom. It may be used by several goroutines.
type Line struct {
	out   io.Writer
	width func() int

	mu     sync.Mutex
	render func(width int) string // nil for none
	drawn  string                 // what is on the terminal now
	within bool                   // the last thing written was not a whole line
	buffer []byte
}

// New returns an empty line of a terminal.
func New(out io.Writer, width func() int) *Line { return &Line{out: out, width: width} }

// Set draws the line anew, and again below whatever is written: render gives at most as
// many ASCII characters as the terminal is wide, less one. The same text is not drawn
// again. nil erases the line.
func (l *Line) Set(render func(width int) string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.render = render
	text := l.text()
	if l.within || text == l.drawn {
		return nil
	}
	l.buffer = append(l.erase(l.buffer[:0]), text...)
	l.drawn = text
	return l.flush()
}

// Write writes above the line.
func (l *Line) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	l.buffer = append(l.erase(l.buffer[:0]), p...)
	l.within = p[len(p)-1] != '\n'
	if !l.within {
		l.drawn = l.text()
		l.buffer = append(l.buffer, l.drawn...)
	}
	if err := l.flush(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// erase takes the line off the terminal. If that has become narrower, the line has
// wrapped to several rows.
func (l *Line) erase(b []byte) []byte {
	if l.drawn == "" {
		return b
	}
	if rows := (len(l.drawn) - 1) / max(l.width(), 1); rows > 0 {
		b = fmt.Appendf(b, "\x1b[%dA\r\x1b[J", rows)
	} else {
		b = append(b, Erase...)
	}
	l.drawn = ""
	return b
}

func (l *Line) text() string {
	if l.render == nil {
		return ""
	}
	return l.render(l.width())
}

// flush writes at once what belongs together.
func (l *Line) flush() error {
	if len(l.buffer) == 0 {
		return nil
	}
	_, err := l.out.Write(l.buffer)
	return err
}
