package quantity

import "testing"

func TestCut(t *testing.T) {
	for _, test := range []struct {
		text, number string
		factor       float64
		ok           bool
	}{
		{"512MiB", "512", 1 << 20, true},
		{"1.5 GB", "1.5 ", 1e9, true},
		{"7B", "7", 1, true},
		{"3kB", "3", 1e3, true},
		{"0.5", "0.5", 1, false},
		{"", "", 1, false},
	} {
		if number, factor, ok := Cut(test.text, Bytes); number != test.number || factor != test.factor || ok != test.ok {
			t.Errorf("Cut(%q) = %q, %v, %v", test.text, number, factor, ok)
		}
	}
}
