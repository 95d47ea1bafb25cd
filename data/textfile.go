package data

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrNoDocument is returned when a source would be without a document.
var ErrNoDocument = errors.New("no document")

// TextFiles returns a source whose documents are files, one each, read when their
// turn comes. A path is a file, a glob pattern ("books/*.txt"), or a folder: then
// all regular files in it and below, except hidden ones. Files are in the order of
// the paths given, within a pattern or folder in lexical order; a file that is
// named twice is one document.
//
// The fingerprint is made of the files' base names and sizes, so that a run may
// move to another folder or machine; a change that keeps a file's size is not
// noticed.
func TextFiles(paths ...string) (Source, error) {
	t := &textFiles{name: strings.Join(paths, ",")}
	seen := map[string]bool{}
	for _, path := range paths {
		if err := t.add(path, seen); err != nil {
			return nil, fmt.Errorf("data: %s: %w", path, err)
		}
	}
	if len(t.files) == 0 {
		return nil, fmt.Errorf("data: %w: give a text file, a folder or a pattern", ErrNoDocument)
	}
	digest := sha256.New()
	for _, f := range t.files {
		fmt.Fprintf(digest, "%q %d\n", filepath.Base(f.path), f.size)
	}
	t.fingerprint = fingerprint(digest.Sum(nil))
	return t, nil
}

type textFiles struct {
	name        string
	files       []textFile
	fingerprint string
}

type textFile struct {
	path string
	size int64
}

func (t *textFiles) Name() string        { return t.name }
func (t *textFiles) Len() int            { return len(t.files) }
func (t *textFiles) Fingerprint() string { return t.fingerprint }

// Document reads a file. A size other than the one at the start is an error:
// the order of all that follows would silently be another.
func (t *textFiles) Document(_ context.Context, i int) (string, error) {
	f := t.files[i]
	text, err := os.ReadFile(f.path)
	if err != nil {
		return "", fmt.Errorf("data: %s: %w", f.path, withoutPath(err, f.path))
	}
	if int64(len(text)) != f.size {
		return "", fmt.Errorf("data: %s: the file changed while in use: it has %d bytes, at the start it had %d", f.path, len(text), f.size)
	}
	return string(text), nil
}

// add puts the files of a path, a pattern or a folder at the end.
func (t *textFiles) add(path string, seen map[string]bool) error {
	matches := []string{path}
	// A file whose name looks like a pattern is still a file.
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(path, "*?[") {
		if matches, err = filepath.Glob(path); err != nil {
			return err
		}
		if len(matches) == 0 {
			return fmt.Errorf("%w: nothing matches the pattern", ErrNoDocument)
		}
	}
	for _, match := range matches {
		info, err := os.Stat(match)
		switch {
		case err != nil:
			return withoutPath(err, path)
		case info.IsDir():
			err = t.addFolder(match, seen)
		case !info.Mode().IsRegular():
			err = fmt.Errorf("%s is not a regular file: %v", match, info.Mode().Type())
		default:
			t.addFile(match, info, seen)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *textFiles) addFolder(folder string, seen map[string]bool) error {
	found := false
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != "." && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			return nil
		}
		file := filepath.Join(folder, filepath.FromSlash(name))
		info, err := os.Stat(file) // through a link, unlike entry
		if err != nil {
			return err
		}
		if info.Mode().IsRegular() {
			found = true
			t.addFile(file, info, seen)
		}
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: the folder has no regular file that is not hidden", ErrNoDocument)
	}
	return err
}

func (t *textFiles) addFile(path string, info fs.FileInfo, seen map[string]bool) {
	key := filepath.Clean(path)
	if absolute, err := filepath.Abs(path); err == nil {
		key = absolute
	}
	if !seen[key] {
		seen[key] = true
		t.files = append(t.files, textFile{path, info.Size()})
	}
}

// withoutPath drops the path of a system error whose message already has it.
func withoutPath(err error, path string) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok && e.Path == path {
		return e.Err
	}
	return err
}
