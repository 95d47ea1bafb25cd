package train

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/lethe-go/lethe/device"
)

// A rank that loads its part of a state holds that and a chunk: of each tensor it keeps what
// it needs as the file goes by. The instrument counts all that is allocated meanwhile.
func TestLoadingHoldsNoMoreThanAPart(t *testing.T) {
	const tensors, rows, columns, ranks = 8, 1000, 1024, 4 // 4 MiB each
	var state []Tensor
	for i := range tensors {
		x := Tensor{Name: fmt.Sprintf("layers.%d.weight", i), DType: device.Float32, Shape: []int{rows, columns}}
		x.Data = make([]byte, whole(x).bytes())
		r := rand.New(rand.NewPCG(1, uint64(i)))
		for at := 0; at < len(x.Data); at += 4 {
			binary.LittleEndian.PutUint32(x.Data[at:], r.Uint32())
		}
		state = append(state, x)
	}
	folder := StateFolder{Path: filepath.Join(t.TempDir(), "state")}
	if _, err := folder.Save(StateMeta{Step: 1}, state); err != nil {
		t.Fatal(err)
	}
	for rank := range ranks {
		var parts [][]part
		for _, x := range state {
			p := part{Tensor{Name: x.Name, DType: x.DType, Shape: []int{rows / ranks, columns}}, x.Shape, []int{rank * rows / ranks, 0}}
			p.Data = make([]byte, p.bytes())
			parts = append(parts, []part{p})
		}
		s, _, err := folder.LoadLatest()
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err = s.readAll(parts)
		runtime.ReadMemStats(&after)
		s.Close()
		if err != nil {
			t.Fatal(err)
		}
		if held := after.TotalAlloc - before.TotalAlloc; held > chunkBytes+256<<10 {
			t.Errorf("rank %d: %d bytes beside its parts were allocated for a state of %d: want a chunk of %d", rank, held, tensors*rows*columns*4, chunkBytes)
		}
		for i, x := range state {
			size := len(parts[i][0].Data)
			if string(parts[i][0].Data) != string(x.Data[rank*size:][:size]) {
				t.Errorf("rank %d: another part of %s", rank, x.Name)
			}
		}
	}
}
