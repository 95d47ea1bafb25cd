package cpu

// attentionTasks are the argument blocks of the attention kernels.
type attentionTasks[T float] struct{}
