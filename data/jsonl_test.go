package data

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func readAll(t testing.TB, s Source) []string {
	t.Helper()
	texts := make([]string, s.Len())
	// Backwards: the lines are read in any order.
	for i := s.Len() - 1; i >= 0; i-- {
		var err error
		if texts[i], err = s.Document(context.Background(), i); err != nil {
			t.Fatal(err)
		}
	}
	return texts
}

func TestJSONLines(t *testing.T) {
	long := strings.Repeat("long ", 1<<19) // more than the reader's buffer
	for _, test := range []struct {
		name, content string
		want          []string
	}{
		{"plain", `{"text":"a"}` + "\n" + `{"text":"b"}` + "\n", []string{"a", "b"}},
		{"no last line break", `{"text":"a"}` + "\n" + `{"text":"b"}`, []string{"a", "b"}},
		{"CRLF", `{"text":"a"}` + "\r\n" + `{"text":"b"}` + "\r\n", []string{"a", "b"}},
		{"blank lines", "\n \t\r\n" + `{"text":"a"}` + "\n\n\n" + `{"text":"b"}` + "\n\n", []string{"a", "b"}},
		{"byte-order mark", "\uFEFF" + `{"text":"a"}`, []string{"a"}},
		{"spaces", ` { "id" : [ 1 , { "text" : "no" } ] , "text" : "a" , "x" : null } ` + "\n", []string{"a"}},
		{"escapes", `{"text":"\"\\\n\u00e9\u0000\ud83d\ude00 \ud800"}`, []string{"\"\\\né\x00😀 \uFFFD"}},
		{"escaped name", `{"te\u0078t":"a"}`, []string{"a"}},
		{"other case", `{"Text":"A","text":"a","TEXT":"B"}`, []string{"a"}},
		{"twice", `{"text":"a","text":"b"}`, []string{"b"}},
		{"brackets in strings", `{"a":"}]\\\"{","text":"}","b":{"c":"]\\"}}`, []string{"}"}},
		{"values of every kind", `{"a":-1.5e+3,"b":true,"c":false,"d":null,"e":{},"f":[],"g":"","text":"t","h":[[],{"i":[0]}]}`, []string{"t"}},
		{"empty text", `{"text":""}`, []string{""}},
		{"long line", `{"text":"` + long + `"}` + "\n" + `{"text":"b"}`, []string{long, "b"}},
	} {
		path := filepath.Join(t.TempDir(), "a.jsonl")
		if err := os.WriteFile(path, []byte(test.content), 0o666); err != nil {
			t.Fatal(err)
		}
		source, err := Files(context.Background(), "", path)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if got := readAll(t, source); fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s: got %.200q, want %.200q", test.name, got, test.want)
		}
	}
}

// What is wrong is said with file, line and what to do, before anything is trained.
func TestJSONLineErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	good := `{"text":"good"}` + "\n"
	for _, test := range []struct{ content, want string }{
		{`{"body":"a","id":1}`, `data: a.jsonl:2: not a document: the object has no field "text", it has "body", "id"; name the field that holds the text`},
		{`{}` + "\n", `data: a.jsonl:2: not a document: the object has no field "text", it has none; name the field that holds the text`},
		{`{"text":["a"]}` + "\n", `data: a.jsonl:2: not a document: field "text" is an array; a text is a string`},
		{`{"text":null}` + "\n", `data: a.jsonl:2: not a document: field "text" is null; a text is a string`},
		{`{"text":12}` + "\n", `field "text" is a number`},
		{`{"text":true}` + "\n", `field "text" is a boolean`},
		{`{"text":{}}` + "\n", `field "text" is an object`},
		{`"text"` + "\n", `data: a.jsonl:2: not a document: the line is a string; write an object with the text in field "text"`},
		{`[{"text":"a"}]` + "\n", `the line is an array`},
		{"\n\n" + `{"text":"a",}` + "\n", `data: a.jsonl:4: not a document: byte 13: invalid JSON: invalid character '}' looking for beginning of object key string; write one object a line`},
		{`{"text":"a"}{"text":"b"}` + "\n", `byte 13: invalid JSON`},
		{"{\n" + `"text":"a"}`, `data: a.jsonl:2: not a document: byte 2: invalid JSON: unexpected end of JSON input; write one object a line`},
		{`{"text":"cut of`, `data: a.jsonl:2: not a document: byte 15: invalid JSON: unexpected end of JSON input; write one object a line; this last line has no end: if the file was cut off, delete the line`},
		{"{\"text\":\"caf\xe9\"}\n", `data: a.jsonl:2: not a document: byte 13 is not UTF-8; convert the file to UTF-8`},
		{"{\"text\":\"a\x00\"}\n", `data: a.jsonl:2: not a document: byte 11 is NUL; the file is damaged or is not UTF-8: write it anew`},
		{"{\"text\":\"a\tb\"}\n", `byte 11: invalid JSON: invalid character '\t' in string literal`},
		{"\uFEFF" + good, `byte 1: invalid JSON`}, // only the file may begin with one
	} {
		if err := os.WriteFile("a.jsonl", []byte(good+test.content), 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := Files(context.Background(), "", "a.jsonl")
		if !errors.Is(err, ErrLine) || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "data: a.jsonl:") {
			t.Errorf("%q:\ngot  %v\nwant %s", test.content, err, test.want)
		}
	}
}

// endless is a line without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestLineTooLong(t *testing.T) {
	r := lineReader{r: bufio.NewReaderSize(endless{}, 1<<20)}
	if _, err := r.next(); !errors.Is(err, ErrLine) || !strings.Contains(err.Error(), "longer than 256 MiB") {
		t.Errorf("got %v", err)
	}
}

func TestJSONLField(t *testing.T) {
	writeTree(t, map[string]string{"a.jsonl": `{"text":"no","a \"b\"":"yes"}`})
	source, err := Files(context.Background(), `a "b"`, "a.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, source); got[0] != "yes" {
		t.Errorf("got %q", got)
	}
	other, err := Files(context.Background(), "text", "a.jsonl")
	if err != nil || other.Fingerprint() == source.Fingerprint() {
		t.Errorf("another field has the same fingerprint (%v)", err)
	}
}

// A folder may hold both kinds; empty files give no document.
func TestFilesOfBothKinds(t *testing.T) {
	writeTree(t, map[string]string{
		"data/a.txt": "A", "data/b.jsonl": `{"text":"B"}` + "\n" + `{"text":"C"}`, "data/c.NDJSON": `{"text":"D"}`, "data/d.jsonl": "\n", "data/e.txt": "E",
	})
	source, err := Files(context.Background(), "", "data")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(readAll(t, source), ""); got != "ABCDE" {
		t.Errorf("got %q", got)
	}
	if _, err := Files(context.Background(), "", "data/d.jsonl"); !errors.Is(err, ErrNoDocument) {
		t.Errorf("a file of blank lines: %v", err)
	}
}

func TestBinaryFilesAreRefused(t *testing.T) {
	writeTree(t, map[string]string{"a.jsonl.gz": "", "b.parquet": "", "data/c.txt.zst": ""})
	for path, want := range map[string]string{
		"a.jsonl.gz": "data: a.jsonl.gz: a.jsonl.gz is not text: decompress it first",
		"b.parquet":  "data: b.parquet: b.parquet is not text: convert it to JSONL",
		"data":       "data: data: c.txt.zst is not text: decompress it first",
	} {
		if _, err := Files(context.Background(), "", path); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestJSONLThatChanges(t *testing.T) {
	const first, second = `{"text":"one"}` + "\n" + `{"text":"two"}` + "\n", `{"text":"two"}` + "\n" + `{"text":"one"}` + "\n"
	writeTree(t, map[string]string{"a.jsonl": first})
	write := func(text string, modified time.Time) {
		if err := os.WriteFile("a.jsonl", []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes("a.jsonl", modified, modified); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now().Truncate(time.Second)
	write(first, now)
	source, err := Files(context.Background(), "", "a.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	changed := func(what string) {
		t.Helper()
		if text, err := source.Document(context.Background(), 1); !errors.Is(err, ErrChanged) || !strings.HasPrefix(err.Error(), "data: a.jsonl: ") {
			t.Errorf("%s: got %q, %v", what, text, err)
		}
	}
	write(first[:len(first)-1], now)
	changed("a shorter file")
	write(first+second, now)
	changed("a longer file")
	write(second, now.Add(time.Second))
	changed("another file of the same size")
	write(strings.Replace(first, `"two"`, `"two,`, 1), now)
	changed("a line that is no longer a document")
	if err := os.Remove("a.jsonl"); err != nil {
		t.Fatal(err)
	}
	if _, err := source.Document(context.Background(), 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	// Two runs see the contents, not only the size.
	write(second, now)
	if again, err := Files(context.Background(), "", "a.jsonl"); err != nil || again.Fingerprint() == source.Fingerprint() {
		t.Errorf("other contents have the same fingerprint (%v)", err)
	}
	write(first, now.Add(time.Hour))
	if again, err := Files(context.Background(), "", "a.jsonl"); err != nil || again.Fingerprint() != source.Fingerprint() {
		t.Errorf("the same contents have another fingerprint (%v)", err)
	}
}

func TestIndexStops(t *testing.T) {
	writeTree(t, map[string]string{"a.jsonl": `{"text":"a"}`})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Files(ctx, "", "a.jsonl"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Any texts come back from a file that encoding/json writes, with any other fields.
func TestJSONLRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl")
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.String(), 1, 20).Draw(t, "texts")
		var file bytes.Buffer
		for _, text := range texts {
			object := rapid.MapOf(rapid.String(), rapid.StringN(0, 5, -1)).Draw(t, "object")
			object["text"] = text
			line, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			file.Write(line)
			file.WriteString(rapid.SampledFrom([]string{"\n", "\r\n", "\n\n"}).Draw(t, "end"))
		}
		if err := os.WriteFile(path, file.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
		source, err := Files(context.Background(), "", path)
		if err != nil {
			t.Fatal(err)
		}
		if source.Len() != len(texts) {
			t.Fatalf("%d documents of %d texts", source.Len(), len(texts))
		}
		for i, want := range texts {
			if got, err := source.Document(context.Background(), i); err != nil || got != want {
				t.Fatalf("got %q, %v, want %q", got, err, want)
			}
		}
	})
}

// FuzzTextOf compares a line's text with what encoding/json finds.
func FuzzTextOf(f *testing.F) {
	for _, line := range []string{
		`{"text":"a"}`, ` { "a" : [1, {"text":"b"}], "text" : "\u00e9\"" }`, `{"text":1}`, `{"text":"a","text":null}`, `[]`, `{`, "{\"text\":\"\xff\"}", `{"a":"\\","text":"}"}`, `{"te\u0078t":""}`, "\x00", ``, `-1e5`,
	} {
		f.Add([]byte(line), "text")
	}
	f.Fuzz(func(t *testing.T, line []byte, field string) {
		if isBlank(line) {
			return // never asked
		}
		got, err := textOf(line, field)
		if err != nil && !errors.Is(err, ErrLine) {
			t.Fatal(err)
		}
		var object map[string]any
		broken := json.Unmarshal(line, &object)
		want, ok := object[field].(string)
		ok = ok && broken == nil && utf8.Valid(line)
		if ok != (err == nil) || ok && got != want {
			t.Errorf("%q: got %q, %v, want %q, %v", line, got, err, want, ok)
		}
	})
}

// FuzzJSONL reads any bytes as a file: it is refused, or every document can be read.
func FuzzJSONL(f *testing.F) {
	f.Add([]byte(`{"text":"a"}` + "\n\r\n" + `{"text":"b"}`))
	f.Add([]byte("\uFEFF\n{\"text\":\"a\"}"))
	f.Add([]byte("\n\n"))
	path := filepath.Join(f.TempDir(), "a.jsonl")
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
		source, err := Files(context.Background(), "", path)
		if err != nil {
			if !errors.Is(err, ErrLine) && !errors.Is(err, ErrNoDocument) {
				t.Error(err)
			}
			return
		}
		lines := 0
		for line := range bytes.Lines(bytes.TrimPrefix(content, []byte(byteOrderMark))) {
			if !isBlank(line) {
				lines++
			}
		}
		if got := len(readAll(t, source)); got != lines {
			t.Errorf("%d documents in %d lines", got, lines)
		}
	})
}
