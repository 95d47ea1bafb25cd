package train

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/data"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/atomicfile"
)

// costFolder is where cost tables are kept: that of the options, or lethe/costs in the
// user's folder of caches.
func (o Options) costFolder() (string, error) {
	if o.CostFolder != "" {
		return o.CostFolder, nil
	}
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "lethe", "costs"), err
}

// knownCosts are costs and where they are from.
type knownCosts struct {
	checkpoint.Costs
	from string
}

// reportedCosts are those that a report reckons with, which measures nothing: those of the
// options, or what is kept of a device that so many ranks share, or estimates.
func (o Options) reportedCosts(d device.Device, ranks int) (knownCosts, error) {
	if o.Costs != nil {
		return knownCosts{o.Costs, "the given table"}, nil
	}
	folder, err := o.costFolder()
	if err == nil {
		like := newCostTable(d, ranks)
		path := filepath.Join(folder, costFileName(like))
		known, err := loadCosts(path, like)
		if err == nil {
			return knownCosts{known, path}, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return knownCosts{}, fmt.Errorf("%w; remove it, or have a run in mode \"budget\" write another", err)
		}
	}
	return knownCosts{checkpoint.DefaultCosts(), "estimates, for nothing was measured on this machine"}, nil
}

// newCostTable is the table of a device that so many ranks of this process share, with
// nothing measured.
func newCostTable(d device.Device, ranks int) *checkpoint.CostTable {
	return &checkpoint.CostTable{Machine: machineName(), Kernels: d.Level(), Threads: d.Workers(), Ranks: ranks,
		Roofline: checkpoint.DefaultCosts(), Ops: map[string]int64{}}
}

// costFileName is the name of a table's file: of what it was measured on.
func costFileName(t *checkpoint.CostTable) string {
	h := fnv.New64a()
	fmt.Fprint(h, t.Machine, "\n", t.Threads, "\n", t.Ranks)
	return fmt.Sprintf("%s-%016x.json", t.Kernels, h.Sum64())
}

// loadCosts reads what was measured before of the same device and number of ranks. There
// being no file wraps fs.ErrNotExist.
func loadCosts(path string, like *checkpoint.CostTable) (*checkpoint.CostTable, error) {
	t, err := LoadCosts(path)
	if err == nil && (t.Machine != like.Machine || t.Kernels != like.Kernels || t.Threads != like.Threads || t.Ranks != like.Ranks) {
		err = fmt.Errorf("train: costs %s: it is of %s, %s kernels, %d threads and %d ranks", path, t.Machine, t.Kernels, t.Threads, t.Ranks)
	}
	return t, err
}

// LoadCosts reads a table of what operations cost, such as a run in mode "budget" keeps.
func LoadCosts(path string) (*checkpoint.CostTable, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("train: costs: %w", err)
	}
	t, err := checkpoint.ParseCostTable(text)
	if err != nil {
		return nil, fmt.Errorf("train: costs %s: %w", path, err)
	}
	return t, nil
}

// machineName is the model of the processors and their number.
func machineName() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	model, processors := "unknown processors", 0
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "processor":
			processors++
		case "model name":
			model = strings.TrimSpace(value)
		}
	}
	return fmt.Sprintf("%d × %s", processors, model)
}

// costMeter measures what operations cost. The first rank of the job does; the others take
// part in what it runs, and take over its table.
type costMeter struct {
	*Trainer
	ranks []*rank // of this process, with the forward pass alone
	table *checkpoint.CostTable
	path  string // of the table's file; empty if it cannot be kept
	note  string // what was done
}

// measureCosts returns the table of the job: what is known from before, and what the
// operations and links of this config take. It changes nothing in the ranks of the run.
func (t *Trainer) measureCosts(ctx context.Context) (*checkpoint.CostTable, error) {
	m := &costMeter{Trainer: t}
	defer m.close()
	err := m.open()
	if err == nil {
		err = m.allOf(ctx, m.ranks, func(ctx context.Context, r *rank) error { return m.measure(ctx, r) })
	}
	if err != nil {
		return nil, fmt.Errorf("train: costs of operations: %w", err)
	}
	t.costNote = m.note
	return m.table, nil
}

// open compiles the forward pass of every rank, on a Store of its own.
func (m *costMeter) open() error {
	if m.world.leads() {
		if err := m.load(); err != nil {
			return err
		}
	}
	c := m.config
	c.Validation.UseEMA = false // there is no average yet
	for _, s := range m.world.seats {
		r := &rank{index: s.rank, config: c, layout: m.layout, ends: s.ends, flight: s.flight, store: newStore(m.device, c, s.rank, s.ends), programs: &programs{}}
		m.ranks = append(m.ranks, r)
		compiler, err := newCompiler(c, m.options, r.store, s.ends)
		if err != nil {
			return err
		}
		if r.programs.evaluate, err = compiler.evaluate(); err != nil {
			return err
		}
		r.model = compiler.model
	}
	return nil
}

func (m *costMeter) close() {
	for _, r := range m.ranks {
		r.close()
	}
}

// load reads the table that is kept, or begins one with the rates of the device. What cannot
// be read is measured again.
func (m *costMeter) load() error {
	m.table = newCostTable(m.device, len(m.world.seats))
	folder, err := m.options.costFolder()
	if err != nil {
		m.warnings = append(m.warnings, fmt.Sprintf("costs of operations are not kept: %v", err))
	} else {
		m.path = filepath.Join(folder, costFileName(m.table))
		known, err := loadCosts(m.path, m.table)
		if err == nil {
			m.table = known
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			m.warnings = append(m.warnings, fmt.Sprintf("%v; they are measured again", err))
		}
	}
	if m.table.FLOPs, _, err = peakFLOPs(m.device); err != nil {
		return err
	}
	m.table.Bandwidth, err = memoryBandwidth(m.device)
	return err
}

// measure is one rank's part: the forward pass a few times if the first rank lacks the time
// of an operation, the link to the others, and to take over the table.
func (m *costMeter) measure(ctx context.Context, r *rank) error {
	missing := ""
	if r.index == 0 && m.lacks(r.programs.evaluate) {
		missing = "operations"
	}
	if err := r.share(ctx, m.device, &missing); err != nil {
		return err
	}
	if missing != "" {
		if err := m.timeForward(ctx, r); err != nil {
			return err
		}
	}
	if err := m.timeLink(ctx, r); err != nil {
		return err
	}
	var text string
	if r.index == 0 {
		m.keep(missing != "")
		encoded, err := m.table.Encode()
		if err != nil {
			return err
		}
		text = string(encoded)
	}
	if err := r.share(ctx, m.device, &text); err != nil {
		return err
	}
	if m.world.leads() {
		return nil
	}
	var err error
	m.table, err = checkpoint.ParseCostTable([]byte(text))
	return err
}

// share replaces a text by that of the first rank.
func (r *rank) share(ctx context.Context, d device.Device, text *string) error {
	if r.ends.data == nil {
		return nil
	}
	all, err := exchange(ctx, d, r.ends.data, []byte(*text))
	if err == nil {
		*text = string(all[0])
	}
	return err
}

func (m *costMeter) lacks(p *graph.Program) bool {
	if !m.device.HostAccessible() {
		return false // steps are enqueued: when they end is not seen
	}
	for _, s := range p.Steps {
		if _, known := m.table.Ops[checkpoint.OpKey(s.Node)]; checkpoint.Timed(s.Node) && !known {
			return true
		}
	}
	return false
}

// timedPasses are made after one that warms up.
const timedPasses = 3

// timeForward runs the forward pass on the first batch.
func (m *costMeter) timeForward(ctx context.Context, r *rank) error {
	begin := time.Now()
	machine, err := newMicrobatchMachine(r.programs.evaluate, graph.CheckOff)
	if err != nil {
		return err
	}
	r.machines.evaluate = machine // closed with the rank
	source, err := m.data.source(ctx, m.config.Training, m.layout.dataRank(r.index), m.layout.dataRanks())
	if err != nil {
		return err
	}
	defer source.Close()
	var b data.Batch
	if err := source.Next(ctx, &b); err != nil {
		return err
	}
	if err := b.Check(m.config.Training.LocalBatchSize, m.config.Training.SeqLen, r.model.Vocab()); err != nil {
		return err
	}
	machine.feed(&b, 1/float64(max(b.Valid, 1)))
	timer := &opTimer{least: map[*graph.Node]time.Duration{}}
	for i := range 1 + timedPasses {
		if i == 1 && r.index == 0 {
			machine.Trace(timer)
		}
		if err := machine.Run(ctx, graph.RunOptions{Step: 1}); err != nil {
			return err
		}
	}
	if r.index == 0 {
		n := timer.into(m.table.Ops)
		m.note = fmt.Sprintf("%d operations timed in %.1f s", n, time.Since(begin).Seconds())
	}
	return nil
}

// opTimer takes the least time of every node that runs on the compute lane.
type opTimer struct {
	running *graph.Node
	since   time.Time
	least   map[*graph.Node]time.Duration
}

// Begin implements graph.Tracer: what began before has ended.
func (t *opTimer) Begin(_ int, step *graph.Step) {
	now := time.Now()
	if t.running != nil {
		d := now.Sub(t.since)
		if known, ok := t.least[t.running]; !ok || d < known {
			t.least[t.running] = d
		}
	}
	t.running = nil
	if step != nil && step.Kind == graph.Run && checkpoint.Timed(step.Node) {
		t.running, t.since = step.Node, time.Now()
	}
}

func (*opTimer) Waited(*graph.Step)   {}
func (*opTimer) End(error)            {}
func (*opTimer) Started(*graph.Step)  {}
func (*opTimer) Finished(*graph.Step) {}

// into adds the mean over the nodes of each op that is not known yet, and returns their
// number.
func (t *opTimer) into(ops map[string]int64) int {
	type sum struct{ nanoseconds, nodes int64 }
	sums := map[string]sum{}
	for n, d := range t.least {
		key := checkpoint.OpKey(n)
		s := sums[key]
		sums[key] = sum{s.nanoseconds + d.Nanoseconds(), s.nodes + 1}
	}
	added := 0
	for key, s := range sums {
		if _, known := ops[key]; !known {
			ops[key] = s.nanoseconds / s.nodes
			added++
		}
	}
	return added
}

// timeLink has all ranks exchange next to nothing, and then enough for a rate.
func (m *costMeter) timeLink(ctx context.Context, r *rank) error {
	g := r.ends.data
	if g == nil {
		return nil
	}
	const columns = 1 << 16 // 256 KiB for each rank
	empty, err := timeAllToAll(ctx, m.device, g, 1, 8)
	if err != nil {
		return err
	}
	full, err := timeAllToAll(ctx, m.device, g, columns, 3)
	if err != nil {
		return err
	}
	if r.index == 0 {
		m.table.LinkLatency = empty.Nanoseconds()
		m.table.LinkBandwidth = float64(4*columns*g.Size()) / max(full-empty, time.Microsecond).Seconds()
	}
	return nil
}

// timeAllToAll is the least time in which each rank sends so many float32 to each.
func timeAllToAll(ctx context.Context, d device.Device, g collective.Group, columns, times int) (time.Duration, error) {
	n := g.Size() * columns
	buffer, err := d.Alloc(device.OnHost, int64(8*n))
	if err != nil {
		return 0, err
	}
	defer buffer.Free()
	in := device.NewTensor(buffer, 0, device.Float32, g.Size(), columns)
	out := device.NewTensor(buffer, int64(4*n), device.Float32, g.Size(), columns)
	least := time.Duration(math.MaxInt64)
	for range times {
		begin := time.Now()
		if err := g.AllToAll(ctx, out, in, device.Tensor{}, device.Tensor{}); err != nil {
			return 0, err
		}
		least = min(least, time.Since(begin))
	}
	return least, nil
}

// keep writes the table, for other runs on this machine.
func (m *costMeter) keep(timed bool) {
	if !timed {
		m.note = "known"
	}
	if m.path == "" {
		return
	}
	text, err := m.table.Encode()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(m.path), 0o777)
	}
	if err == nil {
		err = atomicfile.WriteFile(m.path, text)
	}
	if err != nil {
		m.warnings = append(m.warnings, fmt.Sprintf("costs of operations are not kept: %v", err))
		return
	}
	m.note += ", " + m.path
}

// memoryBandwidth is the rate at which a copy that fits into no cache reads and writes, in
// bytes a second.
func memoryBandwidth(d device.Device) (float64, error) {
	const bytes = 64 << 20
	buffer, err := d.Alloc(device.OnDevice, 2*bytes)
	if err != nil {
		return 0, err
	}
	defer buffer.Free()
	from := device.NewTensor(buffer, 0, device.Float32, bytes/4)
	to := device.NewTensor(buffer, bytes, device.Float32, bytes/4)
	q := d.NewQueue()
	defer q.Close()
	q.Fill(from, 0)
	var best float64
	for range 4 {
		begin := time.Now()
		q.Copy(to, from)
		if err := q.Sync(); err != nil {
			return 0, err
		}
		best = max(best, 2*bytes/time.Since(begin).Seconds())
	}
	return best, nil
}
