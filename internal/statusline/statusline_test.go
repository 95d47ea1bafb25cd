package statusline

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// calls keeps every call of Write apart.
type calls []string

func (c *calls) Write(p []byte) (int, error) {
	*c = append(*c, string(p))
	return len(p), nil
}

func text(s string) func(int) string {
	return func(width int) string { return s[:min(len(s), width-1)] }
}

func TestLine(t *testing.T) {
	var out calls
	width := 20
	l := New(&out, func() int { return width })
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() { io.WriteString(l, "before\n") }, "before\n"},
		{func() { l.Set(text("10%")) }, "10%"},
		{func() { l.Set(text("10%")) }, ""},
		{func() { l.Set(text("20%")) }, "\r\x1b[K20%"},
		{func() { io.WriteString(l, "step 1\nstep 2\n") }, "\r\x1b[Kstep 1\nstep 2\n20%"},
		{func() { l.Write(nil) }, ""},
		// Half a line is not drawn over.
		{func() { io.WriteString(l, "half") }, "\r\x1b[Khalf"},
		{func() { l.Set(text("30%")) }, ""},
		{func() { io.WriteString(l, " a line\n") }, " a line\n30%"},
		// Never as wide as the terminal, which would wrap.
		{func() { l.Set(text("0123456789abcdefghijklmnop")) }, "\r\x1b[K0123456789abcdefghi"},
		// Once narrower, the terminal has wrapped the 19 characters to three rows.
		{func() { width = 8; l.Set(text("0123456789abcdefghijklmnop")) }, "\x1b[2A\r\x1b[J0123456"},
		{func() { width = 12; io.WriteString(l, "x\n") }, "\r\x1b[Kx\n0123456789a"},
		{func() { l.Set(nil) }, "\r\x1b[K"},
		{func() { l.Set(nil) }, ""},
		{func() { io.WriteString(l, "after\n") }, "after\n"},
	} {
		out = nil
		step.do()
		if got := strings.Join(out, ""); got != step.want || len(out) > 1 {
			t.Errorf("wrote %q in %d calls, want %q in one", got, len(out), step.want)
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken") }

func TestErrorsOfTheTerminal(t *testing.T) {
	l := New(broken{}, func() int { return 80 })
	if n, err := io.WriteString(l, "x\n"); n != 0 || err == nil {
		t.Errorf("%d, %v", n, err)
	}
	if err := l.Set(text("x")); err == nil {
		t.Error("no error")
	}
}

func TestWhatIsNoTerminal(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, w := range []io.Writer{nil, file, &bytes.Buffer{}} {
		if _, ok := Terminal(w); ok {
			t.Errorf("%T is taken for a terminal", w)
		}
	}
}
