package atomicfile_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lethe-go/lethe/internal/atomicfile"
	"github.com/lethe-go/lethe/internal/atomicfile/crashfs"
)

// matrix runs try with every mode at every operation that a run without one
// makes, and check after each. prepare makes what is there before.
func matrix(t *testing.T, prepare func(folder string), try func(fs *crashfs.FS, folder string) error, check func(folder string, err error) error) {
	t.Helper()
	run := func(fs *crashfs.FS) error {
		folder := t.TempDir()
		prepare(folder)
		err := try(fs, folder)
		if err == nil && fs.Mode == crashfs.PowerLoss {
			fs.LosePower() // what succeeded is durable
		}
		if checkErr := check(folder, err); checkErr != nil {
			t.Errorf("%v at operation %d, seed %d: %v (the write returned %v)", fs.Mode, fs.At, fs.Seed, checkErr, err)
		}
		return err
	}
	var count crashfs.FS
	if err := run(&count); err != nil {
		t.Fatal(err)
	}
	for at := 1; at <= count.Ops+1; at++ {
		for _, mode := range []crashfs.Mode{crashfs.Fail, crashfs.Full, crashfs.ReadOnly, crashfs.Kill} {
			run(&crashfs.FS{At: at, Mode: mode})
		}
		for seed := range uint64(10) {
			run(&crashfs.FS{At: at, Mode: crashfs.PowerLoss, Seed: seed})
		}
	}
}

func write(content string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, content)
		return err
	}
}

func TestWrite(t *testing.T) {
	matrix(t,
		func(folder string) { os.WriteFile(filepath.Join(folder, "f"), []byte("old"), 0o644) },
		func(fs *crashfs.FS, folder string) error {
			return atomicfile.Write(fs, filepath.Join(folder, "f"), write("new content"))
		},
		func(folder string, err error) error {
			got, readErr := os.ReadFile(filepath.Join(folder, "f"))
			if readErr != nil || (string(got) != "new content" && (err == nil || string(got) != "old")) {
				return fmt.Errorf("content is %q, %v", got, readErr)
			}
			return nil
		})
}

func buildDir(fs atomicfile.FS, path, content string) error {
	d, err := atomicfile.CreateDir(fs, path)
	if err != nil {
		return err
	}
	for _, name := range []string{"a", "b"} {
		if err := d.WriteFile(name, write(content+name)); err != nil {
			return errors.Join(err, d.Abort())
		}
	}
	return d.Commit()
}

// dirContent is what both files of a folder agree on.
func dirContent(path string) (string, error) {
	a, err := os.ReadFile(filepath.Join(path, "a"))
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(filepath.Join(path, "b"))
	if err != nil {
		return "", err
	}
	content, _ := strings.CutSuffix(string(a), "a")
	if string(b) != content+"b" {
		return "", fmt.Errorf("a is %q, b is %q", a, b)
	}
	return content, nil
}

func all(string) bool { return true }

func TestDirReplaces(t *testing.T) {
	matrix(t,
		func(folder string) {
			if err := buildDir(&crashfs.FS{}, filepath.Join(folder, "d"), "old"); err != nil {
				t.Fatal(err)
			}
		},
		func(fs *crashfs.FS, folder string) error { return buildDir(fs, filepath.Join(folder, "d"), "new") },
		func(folder string, err error) error {
			path := filepath.Join(folder, "d")
			content, readErr := dirContent(path)
			if errors.Is(readErr, os.ErrNotExist) {
				content, readErr = dirContent(path + atomicfile.OldSuffix)
			}
			if readErr != nil || (content != "new" && (err == nil || content != "old")) {
				return fmt.Errorf("before recovery: %q, %v", content, readErr)
			}
			if err := atomicfile.Recover(&crashfs.FS{}, folder, all); err != nil {
				return err
			}
			if after, err := dirContent(path); err != nil || after != content {
				return fmt.Errorf("recovery: %q, %v; before %q", after, err, content)
			}
			if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
				return fmt.Errorf("left are %v, %v", entries, err)
			}
			return nil
		})
}

func TestDirNew(t *testing.T) {
	matrix(t,
		func(string) {},
		func(fs *crashfs.FS, folder string) error { return buildDir(fs, filepath.Join(folder, "d"), "new") },
		func(folder string, err error) error {
			content, readErr := dirContent(filepath.Join(folder, "d"))
			if readErr == nil && content == "new" {
				return nil
			}
			if _, statErr := os.Stat(filepath.Join(folder, "d")); err == nil || !errors.Is(statErr, os.ErrNotExist) {
				return fmt.Errorf("%q, %v", content, readErr)
			}
			return nil
		})
}

func TestRecoverSurvives(t *testing.T) {
	matrix(t,
		func(folder string) {
			path := filepath.Join(folder, "d")
			for _, step := range []error{
				buildDir(&crashfs.FS{}, path, "old"),
				os.Rename(path, path+atomicfile.OldSuffix),
				os.Mkdir(path+atomicfile.TempSuffix, 0o755),
				buildDir(&crashfs.FS{}, filepath.Join(folder, "e"), "e-old"),
				os.Rename(filepath.Join(folder, "e"), filepath.Join(folder, "e.old")),
				buildDir(&crashfs.FS{}, filepath.Join(folder, "e"), "e-new"),
			} {
				if step != nil {
					t.Fatal(step)
				}
			}
		},
		func(fs *crashfs.FS, folder string) error { return atomicfile.Recover(fs, folder, all) },
		func(folder string, _ error) error {
			if err := atomicfile.Recover(&crashfs.FS{}, folder, all); err != nil {
				return err
			}
			for name, want := range map[string]string{"d": "old", "e": "e-new"} {
				if got, err := dirContent(filepath.Join(folder, name)); err != nil || got != want {
					return fmt.Errorf("%s: %q, %v", name, got, err)
				}
			}
			return nil
		})
}

func TestRemoveDir(t *testing.T) {
	matrix(t,
		func(folder string) {
			if err := buildDir(&crashfs.FS{}, filepath.Join(folder, "d"), "x"); err != nil {
				t.Fatal(err)
			}
		},
		func(fs *crashfs.FS, folder string) error {
			return atomicfile.RemoveDir(fs, filepath.Join(folder, "d"))
		},
		func(folder string, err error) error {
			content, readErr := dirContent(filepath.Join(folder, "d"))
			if errors.Is(readErr, os.ErrNotExist) {
				if _, statErr := os.Stat(filepath.Join(folder, "d")); statErr == nil {
					return fmt.Errorf("the folder has lost a file: %v", readErr)
				}
				return nil
			}
			if readErr != nil || content != "x" || err == nil {
				return fmt.Errorf("%q, %v", content, readErr)
			}
			return nil
		})
}

func TestRecoverLeavesOthers(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"mine.tmp", "other.tmp", "other.old"} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := atomicfile.Recover(atomicfile.OS, folder, func(name string) bool { return name == "mine" }); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(folder); len(entries) != 2 {
		t.Errorf("left are %v", entries)
	}
}

func TestMkdirAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	for range 2 {
		if err := atomicfile.MkdirAll(atomicfile.OS, path); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		t.Error(err)
	}
}

func TestErrorsNameThePath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	broken := errors.New("broken source")
	err := atomicfile.Write(atomicfile.OS, path, func(io.Writer) error { return broken })
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
	err = atomicfile.WriteFile(filepath.Join(path, "missing", "f"), nil)
	if !errors.Is(err, syscall.ENOENT) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 0 {
		t.Errorf("left are %v", entries)
	}
}
