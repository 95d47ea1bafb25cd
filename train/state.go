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
// A job of several processes writes a file of tensors from each, in which a tensor that
// ranks divide is in parts; the index puts them together.
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
	// before, if it is not nil, is done before a state is written, by the first of its writers.
	before  func() error
	writers *writers // of a state; nil if this process writes all of it
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
	parts := make([]part, len(tensors))
	for i, t := range tensors {
		parts[i] = whole(t)
	}
	return f.save(meta, parts)
}

// save writes this process' parts of a state. All writers call it, and all return the same.
func (f StateFolder) save(meta StateMeta, parts []part) (warnings []string, err error) {
	if f.fs == nil {
		f.fs = atomicfile.OS
	}
	fail := func(err error) error {
		return fmt.Errorf("train: state: step %d is not saved: %w; states saved before are intact", meta.Step, err)
	}
	if meta.Step < 0 {
		return nil, fail(errors.New("a step is 0 or more"))
	}
	path := filepath.Join(f.Path, stateName(meta.Step))
	var dir *atomicfile.Dir
	err = f.writers.lead(func() (err error) {
		dir, err = f.begin(path)
		return err
	})
	if err != nil {
		return nil, fail(err)
	}
	if dir == nil {
		dir = atomicfile.JoinDir(f.fs, path)
	}
	files, err := f.writeParts(dir, parts)
	if err == nil {
		err = f.writers.lead(func() error { return f.finish(dir, meta, files) })
	}
	if err != nil {
		if f.writers.rank() == 0 {
			// Room on a full disk matters more than what a failed clean-up says.
			_ = dir.Abort()
		}
		return nil, fail(err)
	}
	if f.writers.rank() != 0 {
		return nil, nil
	}
	return f.prune(f.fs, meta.Step), nil
}

// begin makes the folder of a state that is not complete.
func (f StateFolder) begin(path string) (*atomicfile.Dir, error) {
	if f.before != nil {
		if err := f.before(); err != nil {
			return nil, err
		}
	}
	if err := atomicfile.MkdirAll(f.fs, f.Path); err != nil {
		return nil, err
	}
	if err := atomicfile.Recover(f.fs, f.Path, isStateName); err != nil {
		return nil, err
	}
	return atomicfile.CreateDir(f.fs, path)
}

// contents are what one process has written.
type contents struct {
	Files   []indexedFile
	Tensors []indexedTensor
}

// writeParts writes the file of this process and returns what all have written.
func (f StateFolder) writeParts(dir *atomicfile.Dir, parts []part) ([]contents, error) {
	var own contents
	name := tensorFile(f.writers.rank())
	failure := dir.WriteFile(name, func(w io.Writer) (err error) {
		own, err = f.writeTensors(w, name, parts)
		return err
	})
	text, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	texts, err := f.writers.share(text, failure)
	if err != nil {
		return nil, err
	}
	all := make([]contents, len(texts))
	for i, text := range texts {
		if err := json.Unmarshal(text, &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// finish gives a folder that has all its tensors an index, and its name.
func (f StateFolder) finish(dir *atomicfile.Dir, meta StateMeta, files []contents) error {
	index := stateIndex{Version: stateVersion, StateMeta: meta}
	for _, c := range files {
		index.Files, index.Tensors = append(index.Files, c.Files...), append(index.Tensors, c.Tensors...)
	}
	text, err := index.encode()
	if err != nil {
		return err
	}
	// Last: a folder with an index has everything the index names.
	err = dir.WriteFile(indexFile, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	if err != nil {
		return err
	}
	return dir.Commit()
}

func (f StateFolder) writeTensors(w io.Writer, name string, parts []part) (contents, error) {
	list := make([]safetensors.Tensor, len(parts))
	byName := make(map[string]part, len(parts)) // for the file has an order of its own
	for i, p := range parts {
		list[i], byName[p.Name] = safetensors.Tensor(p.Tensor), p
	}
	out := &sumWriter{w: w, pace: f.pace}
	entries, err := safetensors.Write(out, list, nil)
	if err != nil {
		return contents{}, err
	}
	c := contents{Files: []indexedFile{{Name: name, Bytes: out.bytes, HeaderCRC32C: formatCRC(out.sums[0])}}}
	for i, e := range entries {
		t := indexedTensor{
			Name: e.Name, DType: e.DType.String(), Shape: append([]int{}, e.Shape...),
			File: name, Offset: e.Offset, Bytes: e.Bytes, CRC32C: formatCRC(out.sums[1+i]),
		}
		if p := byName[e.Name]; !p.isWhole() {
			t.Global, t.Start = p.global, p.start
		}
		c.Tensors = append(c.Tensors, t)
	}
	return c, nil
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
