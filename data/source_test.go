package data

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/data/corpus"
)

func TestCorpusHoldsOutItsEnd(t *testing.T) {
	whole, err := Corpus("moby_dick")
	if err != nil {
		t.Fatal(err)
	}
	train, heldOut, err := Split(whole, 0.1)
	if err != nil {
		t.Fatal(err)
	}
	if train.Name() != "moby_dick/train" || heldOut.Name() != "moby_dick/held_out" || train.Len() != 124 || heldOut.Len() != 14 {
		t.Errorf("%s has %d documents, %s %d", train.Name(), train.Len(), heldOut.Name(), heldOut.Len())
	}
	if train.Fingerprint() == heldOut.Fingerprint() {
		t.Error("both parts have one fingerprint")
	}
	for _, test := range []struct {
		source Source
		i      int
		want   string
	}{{train, 0, "ETYMOLOGY."}, {train, 123, "CHAPTER 122. "}, {heldOut, 0, "CHAPTER 123. "}, {heldOut, 13, "Epilogue"}} {
		text, err := test.source.Document(context.Background(), test.i)
		if err != nil || !strings.HasPrefix(text, test.want) {
			t.Errorf("%s: document %d starts with %.20q, want %q (%v)", test.source.Name(), test.i, text, test.want, err)
		}
	}
}

func TestCorpusUnknown(t *testing.T) {
	_, err := Corpus("walden")
	if !errors.Is(err, corpus.ErrUnknown) || !strings.HasPrefix(err.Error(), "data: ") || !strings.Contains(err.Error(), "moby_dick") {
		t.Errorf("got %v", err)
	}
}

func TestSplit(t *testing.T) {
	for _, test := range []struct {
		documents int
		fraction  float64
		heldOut   int // 0: an error
	}{{10, 0.1, 1}, {11, 0.1, 2}, {30, 0.1, 3}, {2, 0.1, 1}, {1, 0.1, 0}, {3, 0.99, 0}, {100, 0.29, 29}, {5, 0, 0}, {5, 1, 0}} {
		_, heldOut, err := Split(Documents("text", make([]string, test.documents)...), test.fraction)
		if test.heldOut == 0 {
			if err == nil || !strings.HasPrefix(err.Error(), "data: text: ") {
				t.Errorf("%v of %d: got %v, want an error", test.fraction, test.documents, err)
			}
			continue
		}
		if err != nil || heldOut.Len() != test.heldOut {
			t.Errorf("%v of %d: got %v, %v, want %d", test.fraction, test.documents, heldOut, err, test.heldOut)
		}
	}
}

func TestConcat(t *testing.T) {
	ctx := context.Background()
	a, b := Documents("a", "1", "2"), Documents("b", "3")
	both, err := Concat(a, Documents("nothing"), b)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for i := range both.Len() {
		text, err := both.Document(ctx, i)
		if err != nil {
			t.Fatal(err)
		}
		got += text
	}
	if got != "123" || both.Name() != "a,nothing,b" {
		t.Errorf("%s is %q", both.Name(), got)
	}
	other, err := Concat(b, a)
	if err != nil || other.Fingerprint() == both.Fingerprint() {
		t.Errorf("another order has the same fingerprint (%v)", err)
	}
	if one, err := Concat(a); one != a || err != nil {
		t.Errorf("got %v, %v", one, err)
	}
	for _, none := range [][]Source{nil, {Documents("x"), Documents("y")}} {
		if _, err := Concat(none...); !errors.Is(err, ErrNoDocument) {
			t.Errorf("got %v", err)
		}
	}
}
