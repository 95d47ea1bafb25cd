package train

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"unicode"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/internal/safetensors"
)

// State is an open state on disk. Close it.
type State struct {
	StateMeta
	path    string
	index   stateIndex
	files   map[string]*safetensors.File
	tensors map[string]*storedTensor
	chunk   []byte // of a piece that is being read
}

// storedTensor is a tensor as the files have it.
type storedTensor struct {
	TensorInfo
	pieces []piece // one, or those that processes have written; without overlap they are all of it
}

// piece is a part of a tensor in a file; its Data is nil.
type piece struct {
	part
	file, crc32c string
}

// TensorInfo describes a tensor of a state.
type TensorInfo struct {
	Name  string
	DType device.DType
	Shape []int
	Bytes int64
}

// OpenState opens the folder of one state, such as state/step-00000020, and
// checks its index and the headers and lengths of its files. The tensors are
// checked as they are read, or all at once by [State.Verify].
func OpenState(path string) (*State, error) {
	s := newState(path)
	if err := s.open(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func newState(path string) *State {
	return &State{path: path, files: map[string]*safetensors.File{}, tensors: map[string]*storedTensor{}}
}

// broken is the error for a file of the state that cannot be used.
func (s *State) broken(file string, err error) error {
	// A path error says the path itself.
	var pathErr *os.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	fix := "delete the folder, or resume from another state"
	if errors.Is(err, os.ErrPermission) {
		fix = "make it readable"
	}
	return fmt.Errorf("train: state: %s: %w; %s", filepath.Join(s.path, file), err, fix)
}

func (s *State) open() error {
	text, err := os.ReadFile(filepath.Join(s.path, indexFile))
	if err != nil {
		return s.broken(indexFile, err)
	}
	return s.openIndexed(text)
}

// openIndexed opens the files that the content of state.json names.
func (s *State) openIndexed(text []byte) (err error) {
	if s.index, err = decodeIndex(text); err != nil {
		return s.broken(indexFile, err)
	}
	s.StateMeta = s.index.StateMeta
	for _, f := range s.index.Files {
		if f.Name != filepath.Base(f.Name) || strings.ContainsFunc(f.Name, unicode.IsControl) || s.files[f.Name] != nil {
			return s.broken(indexFile, fmt.Errorf("%q is not the name of one file in the folder", f.Name))
		}
		if err := s.openFile(f); err != nil {
			return s.broken(f.Name, err)
		}
	}
	for _, t := range s.index.Tensors {
		if err := s.addTensor(t); err != nil {
			return s.broken(indexFile, err)
		}
	}
	for _, t := range s.tensors {
		if err := t.complete(); err != nil {
			return s.broken(indexFile, err)
		}
	}
	for name, f := range s.files {
		for _, e := range f.Entries() {
			if t := s.tensors[e.Name]; t == nil || !t.has(name) {
				return s.broken(name, fmt.Errorf("holds %s, which %s does not list", e.Name, indexFile))
			}
		}
	}
	return nil
}

func (s *State) openFile(f indexedFile) error {
	path := filepath.Join(s.path, f.Name)
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() != f.Bytes {
		return fmt.Errorf("truncated or changed: %d bytes, %s says %d", info.Size(), indexFile, f.Bytes)
	}
	file, err := safetensors.Open(path)
	if err != nil {
		return errors.Unwrap(err) // broken names the path
	}
	s.files[f.Name] = file
	if sum := checksum(file.Header()); sum != f.HeaderCRC32C {
		return fmt.Errorf("corrupt: the checksum of its header is %s, not %s", sum, f.HeaderCRC32C)
	}
	return nil
}

// addTensor takes a tensor of the index if the file says the same about it.
func (s *State) addTensor(t indexedTensor) error {
	file, ok := s.files[t.File]
	if !ok {
		return fmt.Errorf("%q is in %q, which is not a file of the state", t.Name, t.File)
	}
	e, ok := file.Lookup(t.Name)
	if !ok || e.DType.String() != t.DType || !slices.Equal(e.Shape, t.Shape) || e.Offset != t.Offset || e.Bytes != t.Bytes {
		return fmt.Errorf("%q is not what %s holds", t.Name, t.File)
	}
	p := piece{part{Tensor{Name: t.Name, DType: e.DType, Shape: t.Shape}, t.Global, t.Start}, t.File, t.CRC32C}
	if t.Global == nil && t.Start == nil {
		p.part = whole(p.Tensor)
	}
	known := s.tensors[t.Name]
	if known == nil {
		known = &storedTensor{TensorInfo: TensorInfo{Name: t.Name, DType: e.DType, Shape: p.global}}
		s.tensors[t.Name] = known
	}
	return known.add(p)
}

// add takes another piece.
func (t *storedTensor) add(p piece) error {
	fits := len(p.start) == len(p.Shape) && p.DType == t.DType && slices.Equal(p.global, t.Shape) && len(p.global) == len(p.Shape)
	for i := 0; fits && i < len(p.start); i++ {
		fits = p.start[i] >= 0 && p.start[i] <= p.global[i]-p.Shape[i]
	}
	if !fits {
		return fmt.Errorf("%q in %q is no part of %v%v: %v%v from %v of %v", p.Name, p.file, t.DType, t.Shape, p.DType, p.Shape, p.start, p.global)
	}
	for _, q := range t.pieces {
		if q.overlaps(p.part) {
			return fmt.Errorf("%q is listed twice", p.Name)
		}
	}
	t.pieces = append(t.pieces, p)
	t.Bytes += p.bytes()
	return nil
}

// complete refuses a tensor of which something is missing.
func (t *storedTensor) complete() error {
	left := t.Bytes / int64(t.DType.Size())
	for _, d := range t.Shape {
		if d == 0 {
			return nil
		}
		if left%int64(d) != 0 {
			left = 0
		}
		left /= int64(d)
	}
	if left != 1 {
		return fmt.Errorf("%q is not whole: its %d parts are %d bytes of %v%v", t.Name, len(t.pieces), t.Bytes, t.DType, t.Shape)
	}
	return nil
}

// has reports whether a piece is in the file.
func (t *storedTensor) has(file string) bool {
	return slices.ContainsFunc(t.pieces, func(p piece) bool { return p.file == file })
}

// Path is the folder of the state.
func (s *State) Path() string { return s.path }

// Tensors lists what the state holds, by name.
func (s *State) Tensors() []TensorInfo {
	list := make([]TensorInfo, 0, len(s.tensors))
	for name := range s.tensors {
		info, _ := s.Lookup(name)
		list = append(list, info)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list
}

// Lookup finds a tensor by name.
func (s *State) Lookup(name string) (TensorInfo, bool) {
	t, ok := s.tensors[name]
	if !ok {
		return TensorInfo{}, false
	}
	return t.TensorInfo, true
}

// Read fills the Data of each tensor from the state. Names, dtypes and shapes
// must be exactly those of the state: a tensor that only one side has is an
// error, for it means another model. Nothing is read unless all fit. If a
// checksum does not match, Data holds what was read.
func (s *State) Read(tensors []Tensor) error {
	list := make([][]part, len(tensors))
	for i, t := range tensors {
		list[i] = []part{whole(t)}
	}
	return s.readAll(list)
}

// readAll is Read for parts, each list being of one tensor.
func (s *State) readAll(list [][]part) error {
	seen := make(map[string]bool, len(list))
	for _, parts := range list {
		for _, p := range parts {
			if err := s.fits(p); err != nil {
				return err
			}
			seen[p.Name] = true
		}
	}
	for _, info := range s.Tensors() {
		if !seen[info.Name] {
			return fmt.Errorf("train: state: %s: holds %s %v%v, which the model does not have; use the config it was trained with, or start another run from it with state.initial_load_path", s.path, info.Name, info.DType, info.Shape)
		}
	}
	for _, parts := range list {
		if err := s.readParts(parts); err != nil {
			return err
		}
	}
	return nil
}

// ReadTensor fills the Data of one tensor, whatever else the state holds.
func (s *State) ReadTensor(t Tensor) error { return s.readParts([]part{whole(t)}) }

// readParts fills parts of one tensor. Each piece of it that has something of them is read
// once, a chunk at a time: no more than the parts and a chunk is held.
func (s *State) readParts(parts []part) error {
	for _, p := range parts {
		if err := s.fits(p); err != nil {
			return err
		}
	}
	for _, p := range s.tensors[parts[0].Name].pieces {
		wanted := slices.DeleteFunc(slices.Clone(parts), func(to part) bool { return !to.overlaps(p.part) })
		if len(wanted) == 0 {
			continue
		}
		sum, err := s.readPiece(p, wanted)
		if err != nil {
			return s.broken(p.file, err)
		}
		if err := s.checked(p.file, p.Name, p.crc32c, sum); err != nil {
			return err
		}
	}
	return nil
}

// chunkBytes is how much of a piece is read at a time.
const chunkBytes = 1 << 20

// readPiece copies what the parts have of a piece and returns its checksum.
func (s *State) readPiece(p piece, parts []part) (uint32, error) {
	if p.sameBox(parts[0]) && len(parts) == 1 {
		err := s.files[p.file].Read(p.Name, parts[0].Data)
		return crc32.Checksum(parts[0].Data, castagnoli), err
	}
	entry, _ := s.files[p.file].Lookup(p.Name)
	from := s.files[p.file].Section(entry)
	if s.chunk == nil {
		s.chunk = make([]byte, chunkBytes)
	}
	sum := uint32(0)
	for c := range p.chunks(chunkBytes) {
		c.Data = s.chunk[:c.bytes()]
		if _, err := io.ReadFull(from, c.Data); err != nil {
			return 0, err
		}
		sum = crc32.Update(sum, castagnoli, c.Data)
		for _, to := range parts {
			to.fill(c)
		}
	}
	return sum, nil
}

func (s *State) fits(p part) error {
	info, ok := s.Lookup(p.Name)
	if !ok {
		return fmt.Errorf("train: state: %s: has no %s, which the model needs as %v%v; use the config it was trained with, or start another run from it with state.initial_load_path", s.path, p.Name, p.DType, p.global)
	}
	if info.DType != p.DType || !slices.Equal(info.Shape, p.global) {
		return fmt.Errorf("train: state: %s: %s is %v%v, the model needs %v%v; use the config it was trained with, or start another run from it with state.initial_load_path", s.path, p.Name, info.DType, info.Shape, p.DType, p.global)
	}
	if int64(len(p.Data)) != p.bytes() {
		return fmt.Errorf("train: state: %s: %s has %d bytes, the slice to fill %d", s.path, p.Name, p.bytes(), len(p.Data))
	}
	return nil
}

// Verify reads every tensor and checks its checksum.
func (s *State) Verify() error {
	sum := crc32.New(castagnoli)
	buffer := make([]byte, 1<<20)
	for _, t := range s.index.Tensors {
		file := s.files[t.File]
		e, _ := file.Lookup(t.Name)
		sum.Reset()
		n, err := io.CopyBuffer(struct{ io.Writer }{sum}, struct{ io.Reader }{file.Section(e)}, buffer)
		if err == nil && n != t.Bytes {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return s.broken(t.File, err)
		}
		if err := s.checked(t.File, t.Name, t.CRC32C, sum.Sum32()); err != nil {
			return err
		}
	}
	return nil
}

func (s *State) checked(file, name, crc32c string, sum uint32) error {
	if got := formatCRC(sum); got != crc32c {
		return s.broken(file, fmt.Errorf("corrupt: the checksum of %s is %s, not %s", name, got, crc32c))
	}
	return nil
}

// Close closes the files.
func (s *State) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
