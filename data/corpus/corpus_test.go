package corpus

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestMobyDick(t *testing.T) {
	text, err := Lookup("moby_dick")
	if err != nil {
		t.Fatal(err)
	}
	documents, err := text.Documents()
	if err != nil {
		t.Fatal(err)
	}
	if len(documents) != 138 {
		t.Fatalf("%d documents, want 138", len(documents))
	}
	for i, want := range map[int]string{0: "ETYMOLOGY. ", 2: "CHAPTER 1. Loomings.\n\nCall me Ishmael.", 136: "CHAPTER 135. ", 137: "Epilogue "} {
		if !strings.HasPrefix(documents[i], want) {
			t.Errorf("document %d starts with %.40q, want %q", i, documents[i], want)
		}
	}
	for i, d := range documents {
		if !utf8.ValidString(d) {
			t.Errorf("document %d is not UTF-8", i)
		}
	}
}

// The digests in the README, the generator and the embedded file must agree.
func TestDigest(t *testing.T) {
	documents, err := texts[0].Documents()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(strings.Join(documents, "\f")))
	for _, name := range []string{"README.md", "generate.go"} {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(content), hex.EncodeToString(sum[:])) {
			t.Errorf("%s does not name the digest %x of the embedded text", name, sum)
		}
	}
}

func TestLookupUnknown(t *testing.T) {
	_, err := Lookup("moby_duck")
	if !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), `"moby_duck"`) || !strings.Contains(err.Error(), "moby_dick") {
		t.Errorf("got %v", err)
	}
}

func FuzzUnpack(f *testing.F) {
	var small bytes.Buffer
	z := gzip.NewWriter(&small)
	if _, err := z.Write([]byte("one\ftwo\n\f")); err != nil {
		f.Fatal(err)
	}
	if err := z.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(small.Bytes())
	f.Add(small.Bytes()[:small.Len()-3])
	f.Add(mobyDick[:1000])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, compressed []byte) {
		if documents, err := unpack("fuzz", compressed); (err == nil) == (len(documents) == 0) {
			t.Errorf("%d documents and error %v", len(documents), err)
		}
	})
}
