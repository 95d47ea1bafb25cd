// Package checkpoint decides what happens to every value of the forward pass
// until the backward pass needs it: it is kept, it is computed again, or it is moved
// away and brought back.
//
// # Regions and policies
//
// [Region] marks a part of the model and gives it a [Policy], a function from a
// node to a [Decision]. Regions nest. [None], [Full], [Selective], [SaveKinds]
// and [SaveNames] are policies; [Override], [Offload] and [First] change and combine them;
// any function will do. [Name] tags a value so that a policy can speak of it.
//
// # Who decides
//
// [Resolve] turns the regions of a finished graph, and the lists a user gives in
// the configuration, into a plan. For each node the first of these that has an
// answer decides:
//
//  1. the patterns in Options.ForceRecompute;
//  2. the lists Options.Save, Options.Rerun and Options.Offload;
//  3. the policy of the innermost region, then those around it: a policy that
//     answers [Auto] leaves the node to the next one;
//  4. nobody: the value is saved, as plain differentiation would do.
//
// Two answers of the same rank that contradict each other are an error that
// names both.
//
// # Rules no answer can change
//
//   - A discrete choice (top-k) is made once, so that a rerun cannot route
//     differently, and a side effect happens once.
//   - A view is never saved: it follows the value whose memory it shares. A wait
//     follows the collective it waits for. Tags of both count as tags of what
//     they follow.
//   - A value is saved if something outside its region reads it: an op of
//     another region or of none, an output of the program, or an op built after
//     Backward. Its region is the one whose policy decided, or the innermost if
//     a pattern or a list did. Regions inside a region belong to it.
//   - Results on the host and outputs of the program are not offloaded. Otherwise what can
//     be saved can be offloaded: it runs once.
//
// # Rules that give way to a name
//
// Collectives, host results (of an op that makes the host wait, or puts its result
// on the host) and routing counts (integers that such an op reads, or that ranks
// exchange) are saved although a policy would recompute everything, so that a rerun
// neither communicates nor waits. A decision to rerun them must be meant for
// them: [MustRecompute] from a policy, their kind or tag in Options.Rerun, or a
// pattern whose last segment is their kind. [PreferRecompute], which [Full] and
// the other policies that ship answer for the rest, and a pattern that names a
// scope do not suffice.
//
// Whatever a plan says, a value that no later op reads is neither kept nor
// rerun. [Explain] shows what becomes of each value, and why.
package checkpoint
