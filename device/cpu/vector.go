package cpu

// vectorTasks are the argument blocks of all kernels but matrix products and attention.
type vectorTasks[T float] struct{}
