package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/lethe-go/lethe/internal/statusline"
	"golang.org/x/sys/unix"
)

// openTerminal returns both ends of a pseudo-terminal with a number of columns.
func openTerminal(t *testing.T, columns uint16) (control, terminal *os.File) {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { control.Close() })
	fd := int(control.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns})
	}
	if err == nil {
		terminal, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	return control, terminal
}

// On a terminal there is a bar below the lines, which goes away with the run, also with
// one that a second signal ends at once.
func TestProgressOnATerminal(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	control, terminal := openTerminal(t, 70)
	c := exec.Command(exe, smallRun(t.TempDir(), "--training.steps=100000", "--training.seq_len=256", "--training.local_batch_size=16")...)
	c.Env = append(os.Environ(), "LETHE_TEST_MAIN=1", "TERM=xterm")
	c.Stdout, c.Stderr = terminal, terminal
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill()
	terminal.Close()
	var written strings.Builder
	steps := []struct {
		seen string
		send os.Signal
	}{
		{"1/100000  0%", syscall.SIGTERM}, // in the bar
		{"stopping after this step", os.Interrupt},
	}
	for buffer := make([]byte, 4096); ; {
		n, err := control.Read(buffer)
		written.Write(buffer[:n])
		if err != nil { // the process has gone
			break
		}
		if len(steps) > 0 && strings.Contains(written.String(), steps[0].seen) {
			if err := c.Process.Signal(steps[0].send); err != nil {
				t.Fatal(err)
			}
			steps = steps[1:]
		}
	}
	c.Wait()
	if code := c.ProcessState.ExitCode(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	lines := strings.Split(written.String(), "\r\n")
	if last := lines[len(lines)-1]; last != "" && !strings.HasSuffix(last, statusline.Erase) {
		t.Errorf("%q is left on the terminal", last)
	}
	// What stands before the last carriage return of a line was erased.
	if !slices.ContainsFunc(lines, func(l string) bool {
		return strings.HasPrefix(strings.TrimPrefix(l[strings.LastIndex(l, "\r")+1:], "\x1b[K"), "step:  1  loss: ")
	}) {
		t.Errorf("no line about step 1 in %q", lines)
	}
}

// What is no terminal gets lines and nothing else.
func TestNoProgressInAPipe(t *testing.T) {
	r, w := io.Pipe()
	go func() {
		run(smallRun(t.TempDir()), w, io.Discard)
		w.Close()
	}()
	text, err := io.ReadAll(r)
	if err != nil || strings.ContainsAny(string(text), "\r\x1b") || !strings.Contains(string(text), "\nstep:  1  loss: ") {
		t.Errorf("%v: %q", err, text)
	}
}
