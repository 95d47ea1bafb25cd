// Package train trains a model: it reads a config, builds and compiles the
// Programs, feeds them, reports, and saves what a run needs to go on.
//
// # A step
//
// [New] makes a [Trainer]: a graph.Store with the parameters, and on it the
// Programs of an optimizer step, which run in this order:
//
//	accumulate   forward and backward of a microbatch; the first of a step writes
//	             the gradients, further ones add to them
//	norm         global norm of the gradients, and the factor that clips them
//	update       an Optimizer on every parameter, and moving averages
//
// A loss or a norm that is not finite ends the run between norm and update, so
// that neither parameters nor moments are ever spoilt. All microbatches of a
// step are fetched before the first runs, for the loss is divided by the labels
// of the whole step: accumulation computes what one large batch would. A further
// Program, the forward pass alone, measures held-out data.
//
// # A run
//
// [Trainer.Run] makes steps up to training.steps. It writes to job.dump_folder:
// config.toml, metrics.jsonl ([Metrics]) and states ([StateFolder]). A run that
// finds a state goes on from it, and its numbers are bit for bit those of a run
// that never stopped: parameters, moments, the position in the data and the step,
// which keys all random numbers, are the whole of what a step depends on.
// [Compare] tells where two runs differ.
//
// # Errors
//
// What a change of the config, the data or the command line mends is a
// [ConfigError]. [ErrStopped] says that a run was told to end and can go on.
package train
