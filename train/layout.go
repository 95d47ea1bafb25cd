package train

import (
	"fmt"
	"slices"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/flight"
	"github.com/lethe-go/lethe/collective/local"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/moe"
)

// layout says which rank holds what. Every rank trains on sequences of its own. The
// ranks of an expert group, which follow one another, divide the experts of every layer
// among them and are together one replica of the model; what is no expert is whole on
// every rank. Two replicas of four ranks, with eight experts a layer:
//
//	              expert groups →
//	replica 0     rank 0    rank 1    rank 2    rank 3
//	replica 1     rank 4    rank 5    rank 6    rank 7
//	↓ replica     experts   experts   experts   experts
//	  groups      0, 1      2, 3      4, 5      6, 7
//
// Tokens travel within an expert group. Gradients of experts are added up over a replica
// group, all others over the data group, which is all ranks.
type layout struct {
	replicas int // data_parallel_replicate_degree
	experts  int // expert_parallel_degree
}

func newLayout(c ParallelismConfig) layout {
	return layout{replicas: c.DataParallelReplicateDegree, experts: c.ExpertParallelDegree}
}

// ranks of the job.
func (l layout) ranks() int { return l.replicas * l.experts }

// replica that a rank belongs to: its place in its replica group.
func (l layout) replica(rank int) int { return rank / l.experts }

// part of the experts that a rank holds: its place in its expert group.
func (l layout) part(rank int) int { return rank % l.experts }

// fits refuses another number of ranks than the layout has.
func (l layout) fits(ranks int) error {
	if l.ranks() == ranks {
		return nil
	}
	return fmt.Errorf("train: config: parallelism: data_parallel_replicate_degree %d × expert_parallel_degree %d must equal the number of processes, which is %d; start %d of them, such as with mpirun -n %d, or change the degrees",
		l.replicas, l.experts, ranks, l.ranks(), l.ranks())
}

// all lists n ranks.
func (layout) all(n int) []int {
	ranks := make([]int, n)
	for r := range ranks {
		ranks[r] = r
	}
	return ranks
}

// expertGroup and replicaGroup list the ranks of the groups that a rank is in.
func (l layout) expertGroup(rank int) []int {
	return slices.DeleteFunc(l.all(l.ranks()), func(r int) bool { return l.replica(r) != l.replica(rank) })
}

func (l layout) replicaGroup(rank int) []int {
	return slices.DeleteFunc(l.all(l.ranks()), func(r int) bool { return l.part(r) != l.part(rank) })
}

// copies lists the ranks that hold the same of a variable as the ranks of a part do: all
// ranks, if it is not divided.
func (l layout) copies(divided bool, part int) []int {
	ranks := l.all(l.ranks())
	if !divided {
		return ranks
	}
	return slices.DeleteFunc(ranks, func(r int) bool { return l.part(r) != part })
}

// parameters places those of a rank; nil if all are whole.
func (l layout) parameters(rank int) graph.Layout {
	if l.experts == 1 {
		return nil
	}
	return moe.ExpertLayout{Rank: l.part(rank), Ranks: l.experts}
}

// ends are a rank's ends of its groups; nil where it would be alone.
type ends struct{ data, expert, replica collective.Group }

// all lists the groups that are there.
func (e ends) all() []collective.Group {
	var list []collective.Group
	for _, g := range []collective.Group{e.data, e.expert, e.replica} {
		if g != nil {
			list = append(list, g)
		}
	}
	return list
}

// abort ends all groups, so that no rank waits for this one.
func (e ends) abort(cause error) {
	for _, g := range e.all() {
		g.Abort(cause)
	}
}

// recorded returns the ends of a rank's groups as its flight recorder sees them.
func (l layout) recorded(r *flight.Recorder, rank int, e ends) ends {
	for _, x := range []struct {
		end   *collective.Group
		ranks []int
	}{{&e.data, l.all(l.ranks())}, {&e.expert, l.expertGroup(rank)}, {&e.replica, l.replicaGroup(rank)}} {
		if *x.end != nil {
			*x.end = r.Group(*x.end, x.ranks)
		}
	}
	return e
}

// localEnds connects ranks that are goroutines of this process.
func (l layout) localEnds(link local.Link) ([]ends, error) {
	list := make([]ends, l.ranks())
	connect := func(name string, size int, at func(i int) *collective.Group) error {
		if size == 1 {
			return nil
		}
		groups, err := local.New(size, local.Options{Name: name, Link: link})
		for i, g := range groups {
			*at(i) = g
		}
		return err
	}
	if err := connect("data", l.ranks(), func(i int) *collective.Group { return &list[i].data }); err != nil {
		return nil, err
	}
	for replica := range l.replicas {
		if err := connect("expert", l.experts, func(i int) *collective.Group { return &list[replica*l.experts+i].expert }); err != nil {
			return nil, err
		}
	}
	for part := range l.experts {
		if err := connect("replica", l.replicas, func(i int) *collective.Group { return &list[i*l.experts+part].replica }); err != nil {
			return nil, err
		}
	}
	return list, nil
}
