// Package lethe trains transformer and mixture-of-experts models that are written as
// Gorgonia expression graphs, and decides for every value of the forward pass whether
// to keep it until the backward pass or to compute it again.
//
// This package holds only the documentation's example. Begin with package train to
// train a model, package graph to build one, and package checkpoint to say what is
// kept.
package lethe
