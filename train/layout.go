package train

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/flight"
	"github.com/lethe-go/lethe/collective/local"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/moe"
	"github.com/lethe-go/lethe/parallel"
)

// layout says which rank holds what. The ranks of a tensor group compute the same sequences
// together, and every tensor group has sequences of its own. Its ranks follow one another, and
// so do the tensor groups of a replica and those of an expert group, which divide the experts
// of every layer among them. Two replicas of four tensor groups, of one rank each, with eight
// experts a layer:
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
// replica, such as 0 and 4, all others over the data group, which is all ranks. With tensor
// groups of several ranks, each of them belongs to expert and shard groups of its own, and
// what tensor groups divide is added up over the ranks of the same place in them.
type layout struct {
	replicas int // data_parallel_replicate_degree
	shards   int // data_parallel_shard_degree
	experts  int // expert_parallel_degree
	tensors  int // tensor_parallel_degree
}

// Values of parallelism.fsdp_reshard_after_forward.
const (
	reshardAlways = "always"
	reshardNever  = "never"
)

func newLayout(c ParallelismConfig) layout {
	return layout{replicas: c.DataParallelReplicateDegree, shards: c.DataParallelShardDegree, experts: c.ExpertParallelDegree, tensors: c.TensorParallelDegree}
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
func (l layout) replicaRanks() int { return l.shardPlaces() * l.tensors }

// shardPlaces are the tensor groups of a replica, dataRanks those of the job.
func (l layout) shardPlaces() int { return max(l.shards, l.experts) }
func (l layout) dataRanks() int   { return l.replicas * l.shardPlaces() }

// replica that a rank belongs to.
func (l layout) replica(rank int) int { return rank / l.replicaRanks() }

// dataRank is the number of a rank's tensor group, shardPlace that in its replica, and
// tensorPlace the rank's place in the group.
func (l layout) dataRank(rank int) int    { return rank / l.tensors }
func (l layout) shardPlace(rank int) int  { return l.dataRank(rank) % l.shardPlaces() }
func (l layout) tensorPlace(rank int) int { return rank % l.tensors }

// part of the experts that a rank's place in its expert group holds.
func (l layout) part(rank int) int { return l.dataRank(rank) % l.experts }

// fits refuses another number of ranks than the layout has.
func (l layout) fits(ranks int) error {
	if l.ranks() == ranks {
		return nil
	}
	return fmt.Errorf("train: config: parallelism: data_parallel_replicate_degree %d × the larger of data_parallel_shard_degree %d and expert_parallel_degree %d × tensor_parallel_degree %d must equal the number of processes, which is %d; start %d of them, such as with mpirun -n %d, or change the degrees",
		l.replicas, l.shards, l.experts, l.tensors, ranks, l.ranks(), l.ranks())
}

// checkExperts refuses a model whose experts cannot be divided so.
func (l layout) checkExperts(m Model) error {
	b, ok := m.(Balanced)
	if !ok {
		if l.experts > 1 {
			return fmt.Errorf("train: config: parallelism.expert_parallel_degree: must be 1 for %s, which has no experts: %d; set 1, and parallelism.data_parallel_replicate_degree=%d for as many ranks", m.Name(), l.experts, l.dataRanks())
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

// checkTensors refuses a model that tensor groups cannot compute together.
func (l layout) checkTensors(m Model, loss Loss) error {
	const key = "train: config: parallelism.tensor_parallel_degree"
	if l.tensors == 1 {
		return nil
	}
	s, ok := m.(Shared)
	if !ok {
		return fmt.Errorf("%s: must be 1 for %s, which does not say what ranks may share: %d; set 1, or implement train.Shared", key, m.Name(), l.tensors)
	}
	if loss != nil {
		return fmt.Errorf("%s: must be 1 for a loss of one's own, which reads all logits of a token: %d; set 1, and parallelism.data_parallel_shard_degree for more ranks", key, l.tensors)
	}
	uneven := func(ranks int) (list []string) {
		for _, x := range s.Shared() {
			if x.Size%ranks != 0 {
				list = append(list, fmt.Sprintf("the %d %s", x.Size, x.Name))
			}
		}
		return list
	}
	list := uneven(l.tensors)
	if len(list) == 0 {
		return nil
	}
	fits := l.tensors - 1
	for len(uneven(fits)) > 0 {
		fits--
	}
	return fmt.Errorf("%s: must divide %s of %s: %d; set %d", key, strings.Join(list, " and "), m.Name(), l.tensors, fits)
}

// all lists n ranks.
func (layout) all(n int) []int {
	ranks := make([]int, n)
	for r := range ranks {
		ranks[r] = r
	}
	return ranks
}

// expertGroup, shardGroup, expertShardGroup and tensorGroup list the ranks of the groups that
// a rank is in.
func (l layout) expertGroup(rank int) []int {
	return l.those(func(r int) bool {
		return l.dataRank(r)/l.experts == l.dataRank(rank)/l.experts && l.tensorPlace(r) == l.tensorPlace(rank)
	})
}

func (l layout) shardGroup(rank int) []int {
	return l.those(func(r int) bool {
		return l.shards > 1 && l.replica(r) == l.replica(rank) && l.tensorPlace(r) == l.tensorPlace(rank)
	})
}

func (l layout) expertShardGroup(rank int) []int {
	return l.those(func(r int) bool {
		return l.replica(r) == l.replica(rank) && l.part(r) == l.part(rank) && l.tensorPlace(r) == l.tensorPlace(rank)
	})
}

func (l layout) tensorGroup(rank int) []int {
	return l.those(func(r int) bool { return l.dataRank(r) == l.dataRank(rank) })
}

func (l layout) those(belongs func(rank int) bool) []int {
	return slices.DeleteFunc(l.all(l.ranks()), func(r int) bool { return !belongs(r) })
}

// parameters places those of a rank; nil if all are whole.
func (l layout) parameters(rank int, e ends) graph.Layout {
	if l.replicaRanks() == 1 {
		return nil
	}
	return parallel.Layout{Experts: moe.ExpertLayout{Rank: l.part(rank), Ranks: l.experts}, Tensor: e.tensor, Shard: e.shard, ExpertShard: e.expertShard}
}

// ends are a rank's ends of its groups; nil where it would be alone.
type ends struct {
	data, expert, replica, shard, expertShard, tensor collective.Group
	// model are the ranks of a replica, tensorCopies and shardCopies those of one place in
	// all tensor groups and in all replicas. They are there only if there are several of
	// both places.
	model, tensorCopies, shardCopies collective.Group
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
		{"replica", l.copiesOf(division{tensor: true, shard: true}), func(e *ends) *collective.Group { return &e.replica }},
		{"shard", l.shardGroup, func(e *ends) *collective.Group { return &e.shard }},
		{"expert_shard", l.expertShardGroup, func(e *ends) *collective.Group { return &e.expertShard }},
		{"tensor", l.tensorGroup, func(e *ends) *collective.Group { return &e.tensor }},
		{"model", l.ofBoth(l.partsOf(division{tensor: true, shard: true})), func(e *ends) *collective.Group { return &e.model }},
		{"tensor_copies", l.ofBoth(l.copiesOf(division{tensor: true})), func(e *ends) *collective.Group { return &e.tensorCopies }},
		{"shard_copies", l.ofBoth(l.copiesOf(division{shard: true})), func(e *ends) *collective.Group { return &e.shardCopies }},
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
