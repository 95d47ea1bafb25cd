package data

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// writeTree makes files in a new folder and works there.
func writeTree(t *testing.T, files map[string]string) {
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFiles(t *testing.T) {
	writeTree(t, map[string]string{
		"b.txt": "B", "a.txt": "A", "books/z.txt": "Z", "books/deep/y": "Y", "books/.hidden": "H", "books/.git/x": "X", "odd[1].txt": "O", "books/empty": "",
	})
	if err := os.Symlink("books", "link"); err != nil {
		t.Skip(err)
	}
	for _, test := range []struct {
		paths []string
		want  string
	}{
		{[]string{"b.txt", "a.txt"}, "B A"},
		{[]string{"*.txt"}, "A B O"},
		{[]string{"books"}, "Y  Z"},
		{[]string{"link"}, "Y  Z"},
		{[]string{"odd[1].txt"}, "O"},
		{[]string{"a.txt", "./a.txt", "*.txt"}, "A B O"},
		{[]string{"b*"}, "B Y  Z"},
		{[]string{"books/.hidden"}, "H"},
	} {
		source, err := Files(context.Background(), "", test.paths...)
		if err != nil {
			t.Errorf("%v: %v", test.paths, err)
			continue
		}
		var texts []string
		for i := range source.Len() {
			text, err := source.Document(context.Background(), i)
			if err != nil {
				t.Error(err)
			}
			texts = append(texts, text)
		}
		if got := strings.Join(texts, " "); got != test.want {
			t.Errorf("%v: got %q, want %q", test.paths, got, test.want)
		}
	}
}

func TestFilesErrorsNameThePath(t *testing.T) {
	writeTree(t, map[string]string{"folder/.hidden": "H", "a.txt": "A"})
	for _, test := range []struct {
		path, want string
		is         error
	}{
		{"gone.txt", "data: gone.txt: no such file or directory", fs.ErrNotExist},
		{"gone/*.txt", "data: gone/*.txt: no document: nothing matches the pattern", ErrNoDocument},
		{"[", "data: [: syntax error in pattern", filepath.ErrBadPattern},
		{"folder", "data: folder: no document: the folder has no regular file that is not hidden", ErrNoDocument},
	} {
		_, err := Files(context.Background(), "", "a.txt", test.path)
		if !errors.Is(err, test.is) || err.Error() != test.want {
			t.Errorf("got %v, want %s", err, test.want)
		}
	}
	if _, err := Files(context.Background(), "", os.DevNull); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a device: got %v", err)
	}
	if _, err := Files(context.Background(), ""); !errors.Is(err, ErrNoDocument) {
		t.Errorf("no path: got %v", err)
	}
}

func TestTextFileThatChanges(t *testing.T) {
	writeTree(t, map[string]string{"a.txt": "A"})
	source, err := Files(context.Background(), "", "a.txt")
	if err != nil {
		t.Fatal(err)
	}
	before := source.Fingerprint()
	if err := os.WriteFile("a.txt", []byte("AA"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = source.Document(context.Background(), 0)
	if err == nil || err.Error() != "data: a.txt: the file changed while in use: it has 2 bytes, at the start it had 1" {
		t.Errorf("got %v", err)
	}
	if source, err = Files(context.Background(), "", "a.txt"); err != nil || source.Fingerprint() == before {
		t.Errorf("the fingerprint did not change (%v)", err)
	}
	if err := os.Remove("a.txt"); err != nil {
		t.Fatal(err)
	}
	if _, err = source.Document(context.Background(), 0); err == nil || err.Error() != "data: a.txt: no such file or directory" {
		t.Errorf("got %v", err)
	}
}

// A run that moves to another folder keeps its fingerprint.
func TestFilesFingerprintIsOfTheContents(t *testing.T) {
	writeTree(t, map[string]string{"one/a": "A", "two/a": "A", "two/b": "B", "three/c": "A"})
	var got []string
	for _, path := range []string{"one", "two/a", "two", "three"} {
		source, err := Files(context.Background(), "", path)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, source.Fingerprint())
	}
	if got[0] != got[1] || got[0] == got[2] || slices.Contains(got[:3], got[3]) {
		t.Errorf("fingerprints %v", got)
	}
}
