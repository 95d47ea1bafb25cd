// Package nn holds the modules that transformers are made of, and their ops.
//
// A module is a function of a *graph.Builder, whose scope names its parameters,
// and of Values. Parameters carry PyTorch's names and layouts, so that weights
// move between both: a linear layer in the scope "layers.0.feed_forward.w1" owns
// "layers.0.feed_forward.w1.weight" with shape [out, in]. A function that has no
// parameters and draws no random numbers takes only Values.
//
// # Shapes and dtypes
//
// Ops work on float32 and float64. Modules accept any number of leading
// dimensions, written [...], and keep them, dynamic rows included; inside, an op
// sees them as rows. Parameters have the dtype of the activations they meet.
//
// # Ops
//
// Every op has the standard kind that policies speak of (matmul, rms_norm, swiglu,
// embedding, dropout, softmax, output_loss, output_logsumexp, mul, scale). A gradient is an op of
// its own, of the kind with "_backward" behind it where it is not one of the
// above; gradients that can be wanted apart can be computed apart.
//
// # Errors
//
// Nothing panics and nothing returns an error: impossible shapes make the
// Builder fail with scope, values and the fix (see package graph). Ids and labels
// outside their table are found by the device and fail the run.
//
// # FLOPs
//
// A matrix product of m×k by k×n counts 2·m·n·k, both as executed and as model
// FLOPs, in forward and in backward. Elementwise ops count their arithmetic as
// executed and nothing as model FLOPs.
package nn
