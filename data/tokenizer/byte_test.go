package tokenizer_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/data/tokenizer"
)

func ExampleByte() {
	var b tokenizer.Byte
	ids := b.Encode("é!")
	fmt.Println(ids, b.Vocab(), b.EOS())
	fmt.Println(b.Decode(append(ids, b.EOS())))
	// Output:
	// [195 169 33] 257 256
	// é!
}

func FuzzByteRoundTrip(f *testing.F) {
	f.Add("Call me Ishmael—")
	f.Add("")
	f.Add("\x00\xff\xfe\x80")
	f.Fuzz(func(t *testing.T, text string) {
		var b tokenizer.Byte
		ids := b.Encode(text)
		if got := b.Decode(ids); got != text {
			t.Errorf("%q came back as %q", text, got)
		}
		for _, id := range ids {
			if id < 0 || int(id) >= b.Vocab() || id == b.EOS() {
				t.Errorf("%q: id %d is outside the text's vocabulary", text, id)
			}
		}
		prefix := []int32{7}
		if got := b.AppendEncode(prefix, text); got[0] != 7 || b.Decode(got[1:]) != text {
			t.Errorf("AppendEncode(%v, %q) = %v", prefix, text, got)
		}
	})
}

func TestDecodeSkipsWhatHasNoText(t *testing.T) {
	if got := (tokenizer.Byte{}).Decode([]int32{-1, 65, 256, 66, 2047}); got != "AB" {
		t.Errorf("got %q, want AB", got)
	}
}

func TestLookup(t *testing.T) {
	if b, err := tokenizer.Lookup("byte"); err != nil || b.Name() != "byte" {
		t.Errorf("got %v, %v", b, err)
	}
	if _, err := tokenizer.Lookup("bite"); !errors.Is(err, tokenizer.ErrUnknown) || !strings.Contains(err.Error(), "byte") {
		t.Errorf("got %v", err)
	}
}

func BenchmarkByteAppendEncode(b *testing.B) {
	text := strings.Repeat("Call me Ishmael. ", 1000)
	var ids []int32
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		ids = tokenizer.Byte{}.AppendEncode(ids[:0], text)
	}
}
