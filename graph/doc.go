// Package graph turns a model, written as a Gorgonia expression graph, into a
// program that runs in planned memory.
//
// # From model to step
//
// A [Builder] wraps one gorgonia.ExprGraph and records what Gorgonia cannot
// hold: scopes, regions, phases, effects and source lines. Model code applies
// [Op]s to [Value]s. [Builder.Backward] adds the gradients to the same graph.
// [Builder.Graph] lowers the whole to [Node]s, for which package checkpoint
// makes a [Plan]; [Compile] schedules the nodes, the reruns among them, gives
// every value a place in one arena and returns a [Program]. A [Machine] runs it.
//
// # Errors
//
// Building never panics and needs no error checks: the first mistake is kept, a
// Value made after it is poisoned, and Graph and Compile return it with the
// scope, the shapes and the source line.
//
// # State
//
// A [Store] owns parameters and persistent state by fully qualified name.
// Several Programs bind to one Store and share one arena. Scratch variables, such as
// gradients, lie in it and hand values from one Program of a step to the next.
package graph
