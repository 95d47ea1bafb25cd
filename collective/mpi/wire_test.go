//go:build mpi

package mpi

import (
	"strings"
	"testing"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/internal/call"
	"github.com/lethe-go/lethe/device"
)

func TestHeaderRoundTrip(t *testing.T) {
	want := call.Header{Kind: collective.KindAllToAll, DType: device.BFloat16, Rank: 3, Dims: [device.MaxRank]int{0, 1 << 40, 7},
		Root: 5, Sequence: 1 << 33, Sends: 12, Expects: 1 << 35, Node: "layers.3.moe.dispatch"}
	b := make([]byte, headerBytes)
	encodeHeader(b, &want)
	got, err := decodeHeader(b)
	got.Node = nodeOf(b)
	if err != nil || got != want {
		t.Errorf("%+v, want %+v; error %v", got, want, err)
	}
	want.Node = strings.Repeat("layers.", 100) + "moe"
	encodeHeader(b, &want)
	if n := nodeOf(b); len(n) != headerBytes-nodeAt || !strings.HasSuffix(want.Node, n) {
		t.Errorf("a node of %d bytes arrives as %q", len(want.Node), n)
	}
}

func FuzzHeader(f *testing.F) {
	b := make([]byte, headerBytes)
	encodeHeader(b, &call.Header{Kind: collective.KindBroadcast, DType: device.Int32, Rank: 1, Node: "norm"})
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		b = append(b, make([]byte, headerBytes)...)[:headerBytes]
		h, err := decodeHeader(b)
		h.Node = nodeOf(b)
		if err != nil {
			return
		}
		mine := call.Header{Kind: collective.KindBarrier}
		if err := call.Agree(0, &mine, 1, &h); err != nil && err.Error() == "" {
			t.Error("an empty error")
		}
		again := make([]byte, headerBytes)
		encodeHeader(again, &h)
		if back, err := decodeHeader(again); err != nil || nodeOf(again) != h.Node {
			t.Errorf("%+v becomes %+v: %v", h, back, err)
		}
	})
}

func FuzzNotice(f *testing.F) {
	b := make([]byte, noticeBytes)
	(&notice{kind: abort, cause: timeoutCause, group: 7, generation: 1, rank: 2, text: "rank 2: late"}).encode(b)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		n := decodeNotice(append(b, make([]byte, noticeBytes)...)[:noticeBytes])
		again := make([]byte, noticeBytes)
		n.encode(again)
		if back := decodeNotice(again); back != n {
			t.Errorf("%+v becomes %+v", n, back)
		}
		_ = (&remote{n.text, n.cause}).Unwrap()
	})
}
