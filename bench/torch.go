package main

import (
	"bufio"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// The peers of PyTorch.
const (
	eager       = "pytorch_eager"
	compiled    = "pytorch_compile"
	asInstalled = "pytorch_as_installed"
)

//go:embed peers/*.py
var peers embed.FS

// tuned makes glibc keep the memory it has. Without, PyTorch gives every large tensor
// back to the system, and each step waits for page faults.
var tuned = []string{"MALLOC_MMAP_THRESHOLD_=4294967296", "MALLOC_TRIM_THRESHOLD_=17179869184", "MALLOC_TOP_PAD_=268435456"}

// torch is a process that makes steps when it is asked to (peers/serve.py).
type torch struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	folder  string
	errors  strings.Builder
	ready   struct {
		PeakBytes int64 `json:"peak_bytes"` // what it added to its resident memory
	}
}

// startTorch starts a process and waits until it is warm.
func startTorch(ctx context.Context, python string, threads int, environment []string, args ...string) (*torch, error) {
	t := &torch{}
	var err error
	if t.folder, err = os.MkdirTemp("", "bench"); err != nil {
		return nil, err
	}
	if err := os.CopyFS(t.folder, peers); err != nil {
		os.RemoveAll(t.folder)
		return nil, err
	}
	script := filepath.Join(t.folder, "peers", "serve.py")
	t.command = exec.CommandContext(ctx, python, append([]string{script, "--threads", strconv.Itoa(threads)}, args...)...)
	t.command.Env = append(cleanEnvironment(), environment...)
	t.command.Stderr = &t.errors
	if t.in, err = t.command.StdinPipe(); err == nil {
		var out io.ReadCloser
		if out, err = t.command.StdoutPipe(); err == nil {
			t.out = bufio.NewReader(out)
			err = t.command.Start()
		}
	}
	if err != nil {
		os.RemoveAll(t.folder)
		return nil, err
	}
	line, err := t.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &t.ready)
	}
	if err != nil {
		return nil, t.failure(err)
	}
	return t, nil
}

// cleanEnvironment leaves out what would make a child's BLAS, threads or memory others
// than those of the row.
func cleanEnvironment() []string {
	var e []string
	for _, v := range os.Environ() {
		switch name, _, _ := strings.Cut(v, "="); {
		case name == "OPENBLAS_CORETYPE", name == "OPENBLAS_L2_SIZE", strings.HasPrefix(name, "MALLOC_"),
			name == "OMP_NUM_THREADS", name == "MKL_NUM_THREADS":
		default:
			e = append(e, v)
		}
	}
	return e
}

// steps makes n steps and returns their seconds.
func (t *torch) steps(n int) (times []float64, err error) {
	if _, err := fmt.Fprintln(t.in, n); err != nil {
		return nil, t.failure(err)
	}
	line, err := t.out.ReadBytes('\n')
	if err != nil {
		return nil, t.failure(err)
	}
	return times, json.Unmarshal(line, &times)
}

// failure ends the process and says what it said last.
func (t *torch) failure(err error) error {
	t.stop()
	said := strings.TrimSpace(t.errors.String())
	if i := strings.LastIndexByte(said, '\n'); i >= 0 {
		said = said[i+1:]
	}
	return fmt.Errorf("%s: %w: %s", strings.Join(t.command.Args, " "), err, said)
}

// stop may be called again.
func (t *torch) stop() {
	t.in.Close()
	t.command.Wait()
	os.RemoveAll(t.folder)
}
