package train

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lethe-go/lethe/data/tokenizer"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/generate"
	"github.com/lethe-go/lethe/graph"
)

// Pretrained is the model of a state on disk, without what training needs besides: no
// gradients, no moments, no data. Close it.
type Pretrained struct {
	// Config of the run that saved the state.
	Config Config
	// Model of the run, and Tokenizer of the text it was trained on.
	Model     Model
	Tokenizer tokenizer.Tokenizer
	// Warnings tell of newer states that are broken.
	Warnings []string

	state       *State
	device      device.Device
	closeDevice func() error // if it is open
	ema         bool
	store       *graph.Store
	loaded      map[*graph.Variable]bool
}

// PretrainedOptions are not part of the run's config; the zero value works.
type PretrainedOptions struct {
	// Model that was trained in place of the one the config names.
	Model Model
	// Device to run on; nil is the CPU.
	Device device.Device
	// Threads of the CPU; 0 means training.threads of the config.
	Threads int
	// EMA takes the moving average of the parameters, which optimizer.ema_decay keeps,
	// in place of the parameters.
	EMA bool
}

// OpenPretrained opens the newest state of a run, given its job.dump_folder, or one
// state, given its folder step-…, whose config is then that of the nearest folder above
// it. Parameters are read when there is need of them.
func OpenPretrained(path string, o PretrainedOptions) (*Pretrained, error) {
	p := &Pretrained{Tokenizer: tokenizer.Byte{}, loaded: map[*graph.Variable]bool{}}
	if err := p.open(path, o); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Pretrained) open(path string, o PretrainedOptions) error {
	if err := p.find(path); err != nil {
		return err
	}
	p.ema = o.EMA
	dtype, err := device.ParseDType(p.Config.Training.DType)
	if err != nil {
		return fmt.Errorf("train: config: training.dtype: %w", err)
	}
	if p.Model = o.Model; p.Model == nil {
		if p.Model, err = newModel(p.Config, dtype); err != nil {
			return err
		}
	}
	if p.device, p.closeDevice, err = openDevice(o.Device, cmp.Or(o.Threads, p.Config.Training.Threads)); err != nil {
		return err
	}
	p.store = graph.NewStore(p.device, graph.StoreOptions{})
	return nil
}

// find opens config and state.
func (p *Pretrained) find(path string) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("train: %w; give the job.dump_folder of a run", err)
	}
	state, skipped, err := findState(path)
	for _, s := range skipped {
		p.Warnings = append(p.Warnings, fmt.Sprintf("%s is not used: %v", s.Path, s.Reason))
	}
	if err != nil {
		return err
	}
	p.state = state
	config := filepath.Join(path, ConfigFile)
	if !exists(config) {
		if config, err = configAbove(state.Path()); err != nil {
			return err
		}
	}
	p.Config, err = LoadConfig(config)
	p.Config.Job.DumpFolder = filepath.Dir(config) // the run may have been moved
	return err
}

// configAbove is the config of the run that a state lies in: that of the nearest folder
// above it.
func configAbove(state string) (string, error) {
	folder, err := filepath.Abs(state)
	if err != nil {
		return "", fmt.Errorf("train: %s: %w", state, err)
	}
	for {
		above := filepath.Dir(folder)
		if above == folder {
			return "", fmt.Errorf("train: %s: no folder above it has a %s, which says what the model is; put the run's there", state, ConfigFile)
		}
		if path := filepath.Join(above, ConfigFile); exists(path) {
			return path, nil
		}
		folder = above
	}
}

// Path of the state, and the optimizer Step it was saved at.
func (p *Pretrained) Path() string { return p.state.Path() }

func (p *Pretrained) Step() int { return p.state.Step }

// Generator returns a Generator of the model with the parameters of the state. Close it
// before p. A model that is not a generate.Model is an error.
func (p *Pretrained) Generator(o generate.Options) (*generate.Generator, error) {
	m, ok := p.Model.(generate.Model)
	if !ok {
		return nil, fmt.Errorf("train: %s cannot generate: it has no method Logits; make it a generate.Model", p.Model.Name())
	}
	g, err := generate.New(p.store, m, o)
	if err != nil {
		return nil, err
	}
	if err = p.fits(o); err == nil {
		err = p.load()
	}
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// fits refuses parameters and a cache that the machine has no memory for, before they
// are allocated.
func (p *Pretrained) fits(o generate.Options) error {
	if need, have := p.store.Bytes(), machineMemory(); have > 0 && need > have {
		return fmt.Errorf("train: %s needs %s for parameters and a cache of %d tokens, this machine has %s; set a smaller max_seq_len", p.Model.Name(), formatBytes(need), o.MaxSeqLen, formatBytes(have))
	}
	return nil
}

// load reads what the model has declared and was not read before.
func (p *Pretrained) load() error {
	var missing []*graph.Variable
	for _, v := range p.store.Variables() {
		if !p.loaded[v] && (v.Kind == graph.Parameter || v.Kind == graph.State) {
			v.Init = graph.Zeros // it would be drawn for nothing
			missing = append(missing, v)
		}
	}
	if err := p.store.Allocate(); err != nil {
		return err
	}
	for _, v := range missing {
		name := v.Name
		if p.ema && v.Kind == graph.Parameter {
			name = averagePrefix + name
			if _, ok := p.state.Lookup(name); !ok {
				return fmt.Errorf("train: state: %s: has no moving average of %s; train with optimizer.ema_decay, or take the parameters themselves", p.state.Path(), v.Name)
			}
		}
		if err := p.state.ReadTensor(Tensor{Name: name, DType: v.Spec.DType, Shape: v.Spec.Shape, Data: memory(v)}); err != nil {
			return err
		}
		p.loaded[v] = true
	}
	return nil
}

// Close frees the memory and closes the files.
func (p *Pretrained) Close() error {
	var errs []error
	if p.store != nil {
		errs = append(errs, p.store.Close())
	}
	if p.closeDevice != nil {
		errs = append(errs, p.closeDevice())
	}
	if p.state != nil {
		errs = append(errs, p.state.Close())
	}
	return errors.Join(errs...)
}
