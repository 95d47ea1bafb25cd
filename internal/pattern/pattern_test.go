package pattern

import (
	"fmt"
	"testing"
)

func TestPattern(t *testing.T) {
	const gate = "layers.3.moe.router.gate.matmul:0"
	for _, test := range []struct {
		text, name    string
		matched, kind bool
	}{
		{"moe.router.gate", gate, true, false},
		{"gate", gate, true, false},
		{"layers.3", gate, true, false},
		{"layers.*.moe", gate, true, false},
		{"layers.*.*.router", gate, true, false},
		{"moe.router.gate.matmul", gate, true, true},
		{"matmul", gate, true, true},
		{"matmul:0", gate, true, true},
		{"gate.matmul:0", gate, true, true},
		{"gate.*", gate, true, false},
		{"*", gate, true, false},
		{"*.matmul", gate, true, true},
		{"matmul:1", gate, false, false},
		{"moe.gate", gate, false, false},
		{"moe.*.gate", gate, true, false},
		{"layers.*.gate", gate, false, false},
		{"router.gat", gate, false, false},
		{"uter.gate", gate, false, false},
		{"layers.30", gate, false, false},
		{"a.layers.3.moe.router.gate.matmul:0", gate, false, false},
		{"add", "add:0", true, true},
		{"add", "add.add:0", true, true},
		{"add", "add.mul:0", true, false},
	} {
		p, err := Parse(test.text)
		if err != nil {
			t.Fatal(err)
		}
		if matched, kind := p.Match(test.name); matched != test.matched || kind != test.kind {
			t.Errorf("%q on %q: matched %v, by kind %v; want %v, %v", test.text, test.name, matched, kind, test.matched, test.kind)
		}
	}
}

func TestNear(t *testing.T) {
	names := []string{"layers.0.attention.wq.weight", "layers.0.ffn_norm.weight", "output.weight"}
	for _, test := range []struct{ text, want string }{
		{"atention", "[attention]"},
		{"layers.*.wq", "[layers.*.attention.wq]"},
		{"layers.*.ff_norm", "[layers.*.ffn_norm]"},
		{"layers.0.weight", "[layers.0.ffn_norm.weight]"},
		{"qqqqqqqqqqqqqqqq", "[]"},
	} {
		p, err := Parse(test.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(p.Near(names)); got != test.want {
			t.Errorf("%q: near names %s, want %s", test.text, got, test.want)
		}
	}
}
