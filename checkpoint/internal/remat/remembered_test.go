package remat

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

// What is remembered of a layer is what would be found, also after one number of it has
// changed; equal layers at other times share it.
func TestRememberedMenus(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	changed := 0
	for range 2 * mostRemembered {
		layers, _, ok := randomSchedule(r, 3+r.IntN(6), false).layers()
		if !ok {
			t.Fatal("no layers")
		}
		for _, l := range layers {
			before := l.menu()
			if again := l.lowered(l.floors()).menu(); len(before.choices) > 0 && &again.choices[0] != &before.choices[0] {
				t.Fatal("the menu of an equal layer was found again")
			}
			l.ops[0].cost++
			now := l.menu()
			if want := l.choose(); !reflect.DeepEqual(now, want) {
				t.Fatalf("menu %+v, want %+v", now, want)
			}
			if !reflect.DeepEqual(now, before) {
				changed++
			}
		}
	}
	if changed == 0 {
		t.Error("no menu depends on a cost")
	}
}
