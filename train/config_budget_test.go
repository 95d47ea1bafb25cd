package train

import (
	"testing"
)

func TestMemoryBudget(t *testing.T) {
	for text, want := range map[string]MemoryBudget{
		"512MiB":   {Bytes: 512 << 20},
		"1.5 GiB":  {Bytes: 3 << 29},
		"2GB":      {Bytes: 2e9},
		"1_000kB":  {Bytes: 1e6},
		"7B":       {Bytes: 7},
		"0.5":      {Fraction: 0.5},
		"1":        {Fraction: 1},
		"":         {},
		"1e-3TiB":  {Bytes: 1099511627},
		"12345678": {}, "0": {}, "-1": {}, "MiB": {}, "-2MiB": {}, "9e99TiB": {}, "NaN": {}, "NaNB": {}, "0.1B": {}, "5 apples": {},
	} {
		var m MemoryBudget
		err := m.UnmarshalText([]byte(text))
		if m != want || (err == nil) != (want != MemoryBudget{} || text == "") {
			t.Errorf("%q: %+v, %v; want %+v", text, m, err, want)
		}
	}
}

// What is written is read back as the same.
func FuzzMemoryBudget(f *testing.F) {
	for _, s := range []string{"512MiB", "0.25", "1e3kB", "9223372036854774784B", "1_0.5GB", "", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var m, again MemoryBudget
		if m.UnmarshalText([]byte(text)) != nil {
			return
		}
		written, _ := m.MarshalText()
		if err := again.UnmarshalText(written); err != nil || again != m {
			t.Errorf("%q is %+v, written as %q it is %+v, %v", text, m, written, again, err)
		}
	})
}

func TestMemoryBudgetOfARank(t *testing.T) {
	if n, err := (MemoryBudget{Fraction: 0.5}).rank(1000, 4); n != 125 || err != nil {
		t.Error(n, err)
	}
	if n, err := (MemoryBudget{Bytes: 300}).rank(0, 4); n != 300 || err != nil {
		t.Error(n, err)
	}
	if _, err := (MemoryBudget{Fraction: 0.5}).rank(0, 1); err == nil {
		t.Error("a fraction of unknown memory")
	}
}

// A budget stands in a file as a string or a number, and is written as one.
func TestMemoryBudgetInConfig(t *testing.T) {
	for text, want := range map[string]MemoryBudget{
		"'1.5GB'": {Bytes: 15e8},
		"0.25":    {Fraction: 0.25},
		"1":       {Fraction: 1},
		"''":      {},
	} {
		c, err := ParseConfig("x.toml", []byte("[activation_checkpoint]\nmemory_budget = "+text))
		if err != nil || c.ActivationCheckpoint.MemoryBudget != want {
			t.Errorf("%s: %+v, %v", text, c.ActivationCheckpoint.MemoryBudget, err)
		}
		written, err := c.TOML()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseConfig("y.toml", written); err != nil || again.ActivationCheckpoint.MemoryBudget != want {
			t.Errorf("%s: written and read %+v, %v", text, again.ActivationCheckpoint.MemoryBudget, err)
		}
	}
	for _, text := range []string{"true", "512", "2024-01-01", "[1]"} {
		if c, err := ParseConfig("x.toml", []byte("[activation_checkpoint]\nmemory_budget = "+text)); err == nil {
			t.Errorf("%s: %+v", text, c.ActivationCheckpoint.MemoryBudget)
		}
	}
}
