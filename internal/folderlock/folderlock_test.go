//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows

package folderlock_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/internal/folderlock"
)

// The child of TestHolderIsKilled locks the folder that this variable names.
const childFolder = "LETHE_TEST_LOCK_FOLDER"

func TestMain(m *testing.M) {
	if folder := os.Getenv(childFolder); folder != "" {
		_, err := folderlock.Acquire(folder)
		fmt.Println(err)
		select {}
	}
	os.Exit(m.Run())
}

func TestAcquire(t *testing.T) {
	folder := t.TempDir()
	l, err := folderlock.Acquire(folder)
	if err != nil {
		t.Fatal(err)
	}
	_, err = folderlock.Acquire(folder)
	var held *folderlock.HeldError
	if !errors.As(err, &held) || held.PID != os.Getpid() || !strings.Contains(err.Error(), filepath.Join(folder, "lock")) {
		t.Errorf("locked twice: %v", err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if l, err = folderlock.Acquire(folder); err != nil {
		t.Fatal(err)
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
	if _, err := folderlock.Acquire(filepath.Join(folder, "missing")); err == nil || errors.As(err, &held) {
		t.Errorf("no folder: %v", err)
	}
}

func TestHolderIsKilled(t *testing.T) {
	folder := t.TempDir()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childFolder+"="+folder)
	says, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(says).ReadString('\n')
	if err != nil || line != "<nil>\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	_, err = folderlock.Acquire(folder)
	var held *folderlock.HeldError
	if !errors.As(err, &held) || held.PID != child.Process.Pid {
		t.Errorf("held by process %d: %v", child.Process.Pid, err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	l, err := folderlock.Acquire(folder)
	if err != nil {
		t.Fatalf("after the holder was killed: %v", err)
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}
