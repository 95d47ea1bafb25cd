package data

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"unicode/utf8"
)

// ErrLine is returned for a line of a JSONL file that is not a document.
var ErrLine = errors.New("not a document")

// maxLine bounds the memory that one document takes.
const maxLine = 256 << 20

const byteOrderMark = "\uFEFF"

// index reads the file once, checks every line, notes where the documents begin and
// returns the SHA-256 of the contents.
func (f *file) index(ctx context.Context, field string) (sum []byte, err error) {
	r, err := f.open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	digest := sha256.New()
	lines := lineReader{r: bufio.NewReaderSize(io.TeeReader(r, digest), 1<<20)}
	offset := int64(0)
	for number := 1; ; number++ {
		line, err := lines.next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("data: %s:%d: %w", f.path, number, withoutPath(err, f.path))
		}
		start := offset
		offset += int64(len(line))
		if text, found := bytes.CutPrefix(line, []byte(byteOrderMark)); found && start == 0 {
			start, line = int64(len(byteOrderMark)), text
		}
		if isBlank(line) {
			continue
		}
		if _, err := textOf(line, field); err != nil {
			if line[len(line)-1] != '\n' {
				err = fmt.Errorf("%w; this last line has no end: if the file was cut off, delete the line", err)
			}
			return nil, fmt.Errorf("data: %s:%d: %w", f.path, number, err)
		}
		f.lines = append(f.lines, start)
	}
	if offset != f.size {
		return nil, f.changed("it has %d bytes, at the start it had %d", offset, f.size)
	}
	f.lines = append([]int64(nil), f.lines...) // without the room that append made
	return digest.Sum(nil), f.check(r)
}

// line reads the i-th document.
func (f *file) line(i int, field string) (string, error) {
	from, to := f.lines[i], f.size
	if i+1 < len(f.lines) {
		to = f.lines[i+1]
	}
	// Any number of blank lines may follow.
	line, err := f.read(from, min(to, from+maxLine))
	if err != nil {
		return "", err
	}
	if end := bytes.IndexByte(line, '\n'); end >= 0 {
		line = line[:end]
	}
	text, err := textOf(line, field)
	if err != nil {
		return "", f.changed("the line at byte %d: %w", from, err)
	}
	return text, nil
}

// lineReader reads lines of any length up to maxLine, line break included. A line is
// valid until the next.
type lineReader struct {
	r    *bufio.Reader
	long []byte
}

func (l *lineReader) next() ([]byte, error) {
	line, err := l.r.ReadSlice('\n')
	if err == nil {
		return line, nil
	}
	l.long = append(l.long[:0], line...)
	for err == bufio.ErrBufferFull {
		line, err = l.r.ReadSlice('\n')
		if l.long = append(l.long, line...); len(l.long) > maxLine {
			return nil, fmt.Errorf("%w: the line is longer than %d MiB; divide the text among several lines", ErrLine, maxLine>>20)
		}
	}
	if err == io.EOF && len(l.long) > 0 {
		err = nil
	}
	return l.long, err
}

func isBlank(line []byte) bool { return len(bytes.Trim(line, " \t\r\n")) == 0 }

// textOf returns the text of a line: the value of a field of a JSON object. The error
// wraps ErrLine and says what to do.
func textOf(line []byte, field string) (string, error) {
	if at := bytes.IndexByte(line, 0); at >= 0 {
		return "", fmt.Errorf("%w: byte %d is NUL; the file is damaged or is not UTF-8: write it anew", ErrLine, at+1)
	}
	if !utf8.Valid(line) {
		return "", fmt.Errorf("%w: byte %d is not UTF-8; convert the file to UTF-8", ErrLine, invalidUTF8(line)+1)
	}
	if !json.Valid(line) {
		var value json.RawMessage
		err := json.Unmarshal(line, &value)
		at := int64(0)
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = syntax.Offset
		}
		return "", fmt.Errorf("%w: byte %d: invalid JSON: %w; write one object a line", ErrLine, at, err)
	}
	line = bytes.Trim(line, " \t\r\n")
	if line[0] != '{' {
		return "", fmt.Errorf("%w: the line is %s; write an object with the text in field %q", ErrLine, kindOf(line), field)
	}
	// As in encoding/json, the last of several fields of one name counts.
	var value []byte
	for k, v := range members(line) {
		if spells(k, field) {
			value = v
		}
	}
	switch {
	case value == nil:
		return "", fmt.Errorf("%w: the object has no field %q, it has %s; name the field that holds the text", ErrLine, field, memberNames(line))
	case value[0] != '"':
		return "", fmt.Errorf("%w: field %q is %s; a text is a string", ErrLine, field, kindOf(value))
	}
	return unquote(value), nil
}

func invalidUTF8(line []byte) int {
	at := 0
	for {
		r, n := utf8.DecodeRune(line[at:])
		if r == utf8.RuneError && n <= 1 {
			return at
		}
		at += n
	}
}

func kindOf(value []byte) string {
	switch value[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// members yields the keys and values of an object, as they are written. The object is
// known to be valid JSON, so that strings and brackets are all there is to look at.
func members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for i := skipSpace(object, 1); object[i] != '}'; {
			keyEnd := skipString(object, i)
			from := skipSpace(object, skipSpace(object, keyEnd)+1) // behind the colon
			to := skipValue(object, from)
			if !yield(object[i:keyEnd], object[from:to]) {
				return
			}
			if i = skipSpace(object, to); object[i] == ',' {
				i = skipSpace(object, i+1)
			}
		}
	}
}

func memberNames(object []byte) string {
	var names []string
	for key := range members(object) {
		if len(names) == 10 {
			names = append(names, "…")
			break
		}
		names = append(names, fmt.Sprintf("%.40q", unquote(key)))
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func skipSpace(text []byte, i int) int {
	for text[i] == ' ' || text[i] == '\t' || text[i] == '\r' || text[i] == '\n' {
		i++
	}
	return i
}

// skipString returns the place behind the string that begins at i.
func skipString(text []byte, i int) int {
	start := i + 1
	for i = start; ; i++ {
		i += bytes.IndexByte(text[i:], '"')
		backslashes := 0
		for i-backslashes > start && text[i-backslashes-1] == '\\' {
			backslashes++
		}
		if backslashes%2 == 0 {
			return i + 1
		}
	}
}

// skipValue returns the place behind the value that begins at i.
func skipValue(text []byte, i int) int {
	for depth := 0; ; {
		switch text[i] {
		case '"':
			i = skipString(text, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\r', '\n':
			i++
			continue // only inside brackets: a value begins with none of them
		default: // a number or a word
			for !strings.ContainsRune(",:]} \t\r\n", rune(text[i])) {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
}

// spells is whether a valid JSON string has this value.
func spells(quoted []byte, text string) bool {
	if inner := quoted[1 : len(quoted)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner) == text
	}
	return unquote(quoted) == text
}

// unquote returns the value of a valid JSON string. As in encoding/json, half a
// surrogate pair becomes U+FFFD.
func unquote(quoted []byte) string {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	var text string
	_ = json.Unmarshal(quoted, &text) // of what is known to be valid
	return text
}
