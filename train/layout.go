package train

import (
	"fmt"
	"slices"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/flight"
	"github.com/lethe-go/lethe/collective/local"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/moe"
	"github.com/lethe-go/lethe/parallel"
)

// layout says which rank holds what. Every rank trains on sequences of its own. The ranks
// of a replica follow one another; those of an expert group, which do too, divide the
// experts of every layer among them. Two replicas of four ranks, with eight experts a layer:
//
//	              one expert group    the next
//	replica 0     rank 0    rank 1    rank 2    rank 3
//	replica 1     rank 4    rank 5    rank 6    rank 7
//	              experts   experts   experts   experts
//	              0 … 3     4 … 7     0 … 3     4 … 7
//
// Tokens travel within an expert group. If parameters are sharded, the ranks of a replica
// divide the rows of what is no expert among them, and those of one place in their expert
// groups, such as 0 and 2, the experts of that place. If not, a replica is one expert group.
// Gradients of what is divided are added up over the ranks of the same place in their
// replica, such as 0 and 4, all others over the data group, which is all ranks.
type layout struct {
	replicas int // data_parallel_replicate_degree
	shards   int // data_parallel_shard_degree
	experts  int // expert_parallel_degree
}

// Values of parallelism.fsdp_reshard_after_forward.
const (
	reshardAlways = "always"
	reshardNever  = "never"
)

func newLayout(c ParallelismConfig) layout {
	return layout{replicas: c.DataParallelReplicateDegree, shards: c.DataParallelShardDegree, experts: c.ExpertParallelDegree}
}

// ranks of the job.
func (l layout) ranks() int { return l.replicas * l.replicaRanks() }

// processRanks are those that one process has.
func (l layout) processRanks(backend string) int {
	if backend == localBackend {
		return l.ranks()
	}
	return 1
}

// replicaRanks are those of one replica.
func (l layout) replicaRanks() int { return max(l.shards, l.experts) }

// replica that a rank belongs to, and its place in it.
func (l layout) replica(rank int) int { return rank / l.replicaRanks() }
func (l layout) place(rank int) int   { return rank % l.replicaRanks() }

// part of the experts that a rank's place in its expert group holds.
func (l layout) part(rank int) int { return rank % l.experts }

// fits refuses another number of ranks than the layout has.
func (l layout) fits(ranks int) error {
	if l.ranks() == ranks {
		return nil
	}
	return fmt.Errorf("train: config: parallelism: data_parallel_replicate_degree %d × the larger of data_parallel_shard_degree %d and expert_parallel_degree %d must equal the number of processes, which is %d; start %d of them, such as with mpirun -n %d, or change the degrees",
		l.replicas, l.shards, l.experts, ranks, l.ranks(), l.ranks())
}

// checkExperts refuses a model whose experts cannot be divided so.
func (l layout) checkExperts(m Model) error {
	b, ok := m.(Balanced)
	if !ok {
		if l.experts > 1 {
			return fmt.Errorf("train: config: parallelism.expert_parallel_degree: must be 1 for %s, which has no experts: %d; set 1, and parallelism.data_parallel_replicate_degree=%d for as many ranks", m.Name(), l.experts, l.ranks())
		}
		return nil
	}
	if b.Experts()%l.experts != 0 {
		return fmt.Errorf("train: config: parallelism.expert_parallel_degree: must divide the %d experts of %s: %d; set a divisor", b.Experts(), m.Name(), l.experts)
	}
	if l.shards > 1 && b.Experts()%l.shards != 0 {
		return fmt.Errorf("train: config: parallelism.data_parallel_shard_degree: must divide the %d experts of %s: %d; set a divisor, and parallelism.data_parallel_replicate_degree for more ranks", b.Experts(), m.Name(), l.shards)
	}
	return nil
}

// all lists n ranks.
func (layout) all(n int) []int {
	ranks := make([]int, n)
	for r := range ranks {
		ranks[r] = r
	}
	return ranks
}

// expertGroup, replicaGroup, shardGroup and expertShardGroup list the ranks of the groups
// that a rank is in.
func (l layout) expertGroup(rank int) []int {
	return l.those(func(r int) bool { return r/l.experts == rank/l.experts })
}

func (l layout) replicaGroup(rank int) []int {
	return l.those(func(r int) bool { return l.place(r) == l.place(rank) })
}

func (l layout) shardGroup(rank int) []int {
	return l.those(func(r int) bool { return l.shards > 1 && l.replica(r) == l.replica(rank) })
}

func (l layout) expertShardGroup(rank int) []int {
	return l.those(func(r int) bool { return l.replica(r) == l.replica(rank) && l.part(r) == l.part(rank) })
}

func (l layout) those(belongs func(rank int) bool) []int {
	return slices.DeleteFunc(l.all(l.ranks()), func(r int) bool { return !belongs(r) })
}

// copies lists the ranks that hold the same of a variable as the ranks of a place do: all
// ranks, if it is not divided.
func (l layout) copies(divided bool, place int) []int {
	if !divided {
		return l.all(l.ranks())
	}
	return l.replicaGroup(place)
}

// parameters places those of a rank; nil if all are whole.
func (l layout) parameters(rank int, e ends) graph.Layout {
	if l.replicaRanks() == 1 {
		return nil
	}
	return parallel.Layout{Experts: moe.ExpertLayout{Rank: l.part(rank), Ranks: l.experts}, Shard: e.shard, ExpertShard: e.expertShard}
}

// ends are a rank's ends of its groups; nil where it would be alone.
type ends struct{ data, expert, replica, shard, expertShard collective.Group }

// whole are the ranks of a replica, nil if that is a rank alone.
func (e ends) whole() collective.Group {
	if e.shard != nil {
		return e.shard
	}
	return e.expert
}

// groupKind is a set of groups, of which every rank is in one or, if that would be alone, in
// none.
type groupKind struct {
	name  string
	ranks func(rank int) []int // that are in one group with a rank
	end   func(*ends) *collective.Group
}

// groups lists the kinds. The first is the one of all ranks.
func (l layout) groups() []groupKind {
	return []groupKind{
		{"data", func(int) []int { return l.all(l.ranks()) }, func(e *ends) *collective.Group { return &e.data }},
		{"expert", l.expertGroup, func(e *ends) *collective.Group { return &e.expert }},
		{"replica", l.replicaGroup, func(e *ends) *collective.Group { return &e.replica }},
		{"shard", l.shardGroup, func(e *ends) *collective.Group { return &e.shard }},
		{"expert_shard", l.expertShardGroup, func(e *ends) *collective.Group { return &e.expertShard }},
	}
}

// all lists the groups that are there.
func (e ends) all() []collective.Group {
	var list []collective.Group
	for _, kind := range (layout{}).groups() {
		if g := *kind.end(&e); g != nil {
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
	for _, kind := range l.groups() {
		if end := kind.end(&e); *end != nil {
			*end = r.Group(*end, kind.ranks(rank))
		}
	}
	return e
}

// seats are the places of a rank in its groups, without any other rank.
func (l layout) seats(rank int) ends {
	var e ends
	for _, kind := range l.groups() {
		if members := kind.ranks(rank); len(members) > 1 {
			*kind.end(&e) = collective.Seat(kind.name, slices.Index(members, rank), len(members))
		}
	}
	return e
}

// localEnds connects ranks that are goroutines of this process.
func (l layout) localEnds(link local.Link) ([]ends, error) {
	list := make([]ends, l.ranks())
	for _, kind := range l.groups() {
		for rank := range list {
			members := kind.ranks(rank)
			if len(members) < 2 || members[0] != rank {
				continue // one group for all of its members
			}
			groups, err := local.New(len(members), local.Options{Name: kind.name, Link: link})
			if err != nil {
				return nil, err
			}
			for i, r := range members {
				*kind.end(&list[r]) = groups[i]
			}
		}
	}
	return list, nil
}
