package data

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ErrNoDocument is returned when a source would be without a document.
var ErrNoDocument = errors.New("no document")

// ErrChanged is returned by a source of files for a file that is not what it was when
// the source was opened.
var ErrChanged = errors.New("the file changed while in use")

// Files returns a source of files, whose text is read when its turn comes. A file is
// one document; a file whose name ends with .jsonl or .ndjson has a document in each
// line, a JSON object whose field of that name is the text ("" means "text"). The
// package's documentation says what such a file may hold.
//
// A path is a file, a glob pattern ("books/*.txt"), or a folder: then all regular files
// in it and below, except hidden ones. Files are in the order of the paths given,
// within a pattern or folder in lexical order; a file that is named twice is there
// once. Compressed and other binary files are refused.
//
// Every JSONL file is read through once, which finds all that is wrong with its lines
// and keeps 8 bytes a document. The fingerprint is made of base names and sizes, so
// that a run may move to another folder or machine, of the contents of JSONL files and
// of the field. A change of a text file that keeps its size is not noticed between two
// runs; a change of any file while it is in use is an [ErrChanged].
func Files(ctx context.Context, field string, paths ...string) (Source, error) {
	if field == "" {
		field = "text"
	}
	s := &files{name: strings.Join(paths, ","), field: field}
	seen := map[string]bool{}
	for _, path := range paths {
		if err := s.add(path, seen); err != nil {
			return nil, fmt.Errorf("data: %s: %w", path, err)
		}
	}
	digest := sha256.New()
	for i := range s.files {
		f := &s.files[i]
		s.first = append(s.first, s.documents)
		fmt.Fprintf(digest, "%q %d\n", filepath.Base(f.path), f.size)
		if !f.isJSONL {
			s.documents++
			continue
		}
		sum, err := f.index(ctx, field)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(digest, "%q %x\n", field, sum)
		s.documents += len(f.lines)
	}
	if s.documents == 0 {
		return nil, fmt.Errorf("data: %s: %w: give a text file, a JSONL file with a line, a folder or a pattern", s.name, ErrNoDocument)
	}
	s.fingerprint = fingerprint(digest.Sum(nil))
	return s, nil
}

type files struct {
	name        string
	field       string
	files       []file
	first       []int // number of each file's first document
	documents   int
	fingerprint string
}

type file struct {
	path     string
	size     int64
	modified time.Time
	isJSONL  bool
	lines    []int64 // where each document's line begins
}

func (s *files) Name() string        { return s.name }
func (s *files) Len() int            { return s.documents }
func (s *files) Fingerprint() string { return s.fingerprint }

func (s *files) Document(_ context.Context, i int) (string, error) {
	at := holder(s.first, i)
	f := &s.files[at]
	if f.isJSONL {
		return f.line(i-s.first[at], s.field)
	}
	text, err := f.read(0, f.size)
	return string(text), err
}

// read returns the bytes [from, to) of the file. A file that was written to is an
// error: the order of all that follows would silently be another.
func (f *file) read(from, to int64) ([]byte, error) {
	r, err := f.open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	text := make([]byte, to-from)
	if n, err := r.ReadAt(text, from); err == io.EOF && n < len(text) {
		return nil, f.changed("it ends at byte %d", from+int64(n))
	} else if err != nil && err != io.EOF {
		return nil, f.errorf("%w", withoutPath(err, f.path))
	}
	return text, nil
}

// open opens the file if it is still the one that was found.
func (f *file) open() (*os.File, error) {
	r, err := os.Open(f.path)
	if err != nil {
		return nil, f.errorf("%w", withoutPath(err, f.path))
	}
	if err := f.check(r); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (f *file) check(r *os.File) error {
	info, err := r.Stat()
	switch {
	case err != nil:
		return f.errorf("%w", withoutPath(err, f.path))
	case info.Size() != f.size:
		return f.changed("it has %d bytes, at the start it had %d", info.Size(), f.size)
	case !info.ModTime().Equal(f.modified):
		return f.changed("it was written to at %s, at the start it was of %s", info.ModTime().Format(time.RFC3339Nano), f.modified.Format(time.RFC3339Nano))
	}
	return nil
}

func (f *file) changed(format string, arguments ...any) error {
	return f.errorf("%w: "+format, append([]any{ErrChanged}, arguments...)...)
}

func (f *file) errorf(format string, arguments ...any) error {
	return fmt.Errorf("data: %s: "+format, append([]any{f.path}, arguments...)...)
}

// add puts the files of a path, a pattern or a folder at the end.
func (s *files) add(path string, seen map[string]bool) error {
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
			err = s.addFolder(match, seen)
		case !info.Mode().IsRegular():
			err = fmt.Errorf("%s is not a regular file: %v", match, info.Mode().Type())
		default:
			err = s.addFile(match, info, seen)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *files) addFolder(folder string, seen map[string]bool) error {
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
			return s.addFile(file, info, seen)
		}
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: the folder has no regular file that is not hidden", ErrNoDocument)
	}
	return err
}

// binaryEndings are of files that would be trained on as garbage.
var binaryEndings = map[string]string{
	".gz": "decompress it first: documents are read in any order", ".zst": "decompress it first: documents are read in any order",
	".bz2": "decompress it first: documents are read in any order", ".xz": "decompress it first: documents are read in any order",
	".zip": "unpack it into a folder", ".tar": "unpack it into a folder",
	".parquet": "convert it to JSONL", ".arrow": "convert it to JSONL",
}

func (s *files) addFile(path string, info fs.FileInfo, seen map[string]bool) error {
	ending := strings.ToLower(filepath.Ext(path))
	if fix, binary := binaryEndings[ending]; binary {
		return fmt.Errorf("%s is not text: %s", filepath.Base(path), fix)
	}
	key := filepath.Clean(path)
	if absolute, err := filepath.Abs(path); err == nil {
		key = absolute
	}
	if !seen[key] {
		seen[key] = true
		s.files = append(s.files, file{path: path, size: info.Size(), modified: info.ModTime(), isJSONL: ending == ".jsonl" || ending == ".ndjson"})
	}
	return nil
}

// withoutPath drops the path of a system error whose message already has it.
func withoutPath(err error, path string) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok && e.Path == path {
		return e.Err
	}
	return err
}
