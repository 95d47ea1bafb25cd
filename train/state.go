package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/internal/atomicfile"
	"github.com/lethe-go/lethe/internal/safetensors"
)

// Tensor is one named array of a state: a parameter, an optimizer moment, a
// persistent value of the graph. Data holds its elements in row-major order,
// little-endian; it is a view, and is neither kept nor copied as a whole.
type Tensor struct {
	Name  string
	DType device.DType
	Shape []int
	Data  []byte
}

// StateMeta is what a state says besides its tensors.
type StateMeta struct {
	// Step is the number of optimizer steps that are done.
	Step int `json:"step"`
	// KernelLevel is the instruction set that computed the tensors. On another
	// one training goes on, but not bit for bit.
	KernelLevel string `json:"kernel_level"`
	// ConfigHash is [Config.Hash] of the run.
	ConfigHash string `json:"config_hash"`
	// Loader is where the data loader stands, as the JSON it was saved with.
	Loader json.RawMessage `json:"loader"`
}

// StateFolder is where a run keeps its states, one folder for each:
//
//	step-00000020/
//	    state.json                  meta, index of tensors, checksums
//	    tensors-00000.safetensors   the data
//
// A state is complete or not there: see package atomicfile. One process at a
// time may save; anyone may read.
type StateFolder struct {
	// Path of the folder; Save makes it.
	Path string
	// KeepLatest is how many states Save leaves; 0 keeps all.
	KeepLatest int

	fs   atomicfile.FS // nil is the operating system's
	pace *pacer        // of writing; nil is full speed
}

// ErrNoState is returned by [StateFolder.LoadLatest] if there is nothing to
// load, not even something broken.
var ErrNoState = errors.New("no state")

// Skipped is a state that LoadLatest did not take, and why.
type Skipped struct {
	Path   string
	Reason error
}

// Save writes a state and then deletes those that KeepLatest does not keep.
// On an error nothing that was complete before is lost. A warning is about
// cleaning up: the state itself is safe.
func (f StateFolder) Save(meta StateMeta, tensors []Tensor) (warnings []string, err error) {
	fs := f.fs
	if fs == nil {
		fs = atomicfile.OS
	}
	fail := func(err error) error {
		return fmt.Errorf("train: state: step %d is not saved: %w; states saved before are intact", meta.Step, err)
	}
	if meta.Step < 0 {
		return nil, fail(errors.New("a step is 0 or more"))
	}
	if err := atomicfile.MkdirAll(fs, f.Path); err != nil {
		return nil, fail(err)
	}
	if err := atomicfile.Recover(fs, f.Path, isStateName); err != nil {
		return nil, fail(err)
	}
	path := filepath.Join(f.Path, stateName(meta.Step))
	dir, err := atomicfile.CreateDir(fs, path)
	if err != nil {
		return nil, fail(err)
	}
	if err := f.writeState(dir, meta, tensors); err != nil {
		// Room on a full disk matters more than what a failed clean-up says.
		_ = dir.Abort()
		return nil, fail(err)
	}
	if err := dir.Commit(); err != nil {
		return nil, fail(err)
	}
	return f.prune(fs, meta.Step), nil
}

func (f StateFolder) writeState(dir *atomicfile.Dir, meta StateMeta, tensors []Tensor) error {
	index := stateIndex{Version: stateVersion, StateMeta: meta}
	err := dir.WriteFile(tensorFile, func(w io.Writer) error {
		var err error
		index.Files, index.Tensors, err = f.writeTensors(w, tensors)
		return err
	})
	if err != nil {
		return err
	}
	text, err := index.encode()
	if err != nil {
		return err
	}
	// Last: a folder with an index has everything the index names.
	return dir.WriteFile(indexFile, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

func (f StateFolder) writeTensors(w io.Writer, tensors []Tensor) ([]indexedFile, []indexedTensor, error) {
	list := make([]safetensors.Tensor, len(tensors))
	for i, t := range tensors {
		list[i] = safetensors.Tensor(t)
	}
	out := &sumWriter{w: w, pace: f.pace}
	entries, err := safetensors.Write(out, list, nil)
	if err != nil {
		return nil, nil, err
	}
	file := indexedFile{Name: tensorFile, Bytes: out.bytes, HeaderCRC32C: formatCRC(out.sums[0])}
	indexed := make([]indexedTensor, len(entries))
	for i, e := range entries {
		indexed[i] = indexedTensor{
			Name: e.Name, DType: e.DType.String(), Shape: append([]int{}, e.Shape...),
			File: tensorFile, Offset: e.Offset, Bytes: e.Bytes, CRC32C: formatCRC(out.sums[1+i]),
		}
	}
	return []indexedFile{file}, indexed, nil
}

// sumWriter passes on what it is given in pieces, and keeps the checksum of every call:
// safetensors.Write makes one for the header and then one for each tensor.
type sumWriter struct {
	w     io.Writer
	pace  *pacer
	bytes int64
	sums  []uint32
}

// pieceBytes is small enough that the kernel copies what the checksum has brought into
// the cache, and that the goroutine does not hold a processor for long.
const pieceBytes = 256 << 10

func (s *sumWriter) Write(p []byte) (n int, err error) {
	var sum uint32
	for n < len(p) && err == nil {
		start := time.Now()
		piece := p[n:min(n+pieceBytes, len(p))]
		sum = crc32.Update(sum, castagnoli, piece)
		var k int
		k, err = s.w.Write(piece)
		n += k
		s.pace.rest(time.Since(start))
	}
	s.sums = append(s.sums, sum)
	s.bytes += int64(n)
	return n, err
}

// prune deletes old states. It keeps the one just saved and the newest others
// that look complete; what is broken is not counted, and goes with its age.
func (f StateFolder) prune(fs atomicfile.FS, saved int) (warnings []string) {
	if f.KeepLatest <= 0 {
		return nil
	}
	found, _, err := f.list()
	if err != nil {
		return []string{fmt.Sprintf("train: state: old states are not deleted: %v", err)}
	}
	kept := 1
	for _, s := range found {
		switch {
		case s.step == saved:
		case kept < f.KeepLatest:
			state, err := OpenState(s.path)
			if err != nil {
				continue // broken, but young enough to be looked at
			}
			state.Close()
			kept++
			if s.step > saved {
				warnings = append(warnings, fmt.Sprintf("train: state: %s is newer than step %d, just saved, and is what a restart loads; delete it if it is from another run", s.path, saved))
			}
		default:
			if err := atomicfile.RemoveDir(fs, s.path); err != nil {
				warnings = append(warnings, fmt.Sprintf("train: state: old state is not deleted: %v; delete %s", err, s.path))
			}
		}
	}
	return warnings
}

// LoadLatest opens the newest state that is complete and whose checksums all
// verify. Every newer one that is not is reported in skipped, for the caller to
// show. With nothing saved at all the error is [ErrNoState]; with nothing that
// loads it is another one, so that a run never starts over by accident.
func (f StateFolder) LoadLatest() (state *State, skipped []Skipped, err error) {
	found, odd, err := f.list()
	if err != nil {
		return nil, nil, err
	}
	skipped = odd
	for _, s := range found {
		state, err := OpenState(s.path)
		if err == nil {
			if err = state.Verify(); err == nil {
				return state, skipped, nil
			}
			state.Close()
		}
		skipped = append(skipped, Skipped{s.path, err})
	}
	if len(found) == 0 {
		return nil, skipped, fmt.Errorf("train: state: %s: %w", f.Path, ErrNoState)
	}
	return nil, skipped, fmt.Errorf("train: state: %s: none of %d states loads; the newest: %w; move the folder away to start over", f.Path, len(found), skipped[len(odd)].Reason)
}

// Steps lists the steps that have a state, oldest first, complete or not.
func (f StateFolder) Steps() ([]int, error) {
	found, _, err := f.list()
	if err != nil {
		return nil, err
	}
	var steps []int
	for _, s := range slices.Backward(found) {
		if len(steps) == 0 || steps[len(steps)-1] != s.step {
			steps = append(steps, s.step)
		}
	}
	return steps, nil
}

// Load opens the state of one step, without reading its tensors.
func (f StateFolder) Load(step int) (*State, error) {
	path := filepath.Join(f.Path, stateName(step))
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		// The complete one, if a save was killed while it replaced it.
		if _, err := os.Lstat(path + atomicfile.OldSuffix); err == nil {
			path += atomicfile.OldSuffix
		}
	}
	return OpenState(path)
}

type foundState struct {
	step int
	path string
}

// list finds the states, newest first. A folder that a killed save left as
// NAME.old comes after NAME. What looks like a state but is not is odd.
func (f StateFolder) list() (found []foundState, odd []Skipped, err error) {
	entries, err := os.ReadDir(f.Path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("train: state: %w; make the folder readable", err)
	}
	for _, e := range entries {
		path := filepath.Join(f.Path, e.Name())
		name := strings.TrimSuffix(e.Name(), atomicfile.OldSuffix)
		switch {
		case !strings.HasPrefix(name, statePrefix) || strings.HasSuffix(name, atomicfile.TempSuffix):
		case isStateName(name):
			step, _ := parseStateName(name)
			found = append(found, foundState{step, path})
		default:
			odd = append(odd, Skipped{path, fmt.Errorf("train: state: %s: the name is not that of a state: %s; name it like %s", path, e.Name(), stateName(20))})
		}
	}
	slices.SortFunc(found, func(a, b foundState) int {
		if a.step != b.step {
			return b.step - a.step
		}
		return strings.Compare(a.path, b.path)
	})
	return found, odd, nil
}
