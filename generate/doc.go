// Package generate continues token sequences with a trained model.
//
// A [Generator] has Programs on one graph.Store: that of one token, which decodes, and
// those of 2, 4, 8 … tokens, which read a prompt in chunks (prefill) without a padded
// row. They share the parameters, the arena, and a cache in which every attention module
// keeps what it needs of the tokens before: a token costs one row of work and one pass
// over the cache. See attention.Cache.
//
// Without the cache ([Options].NoCache) every token costs a forward pass over the whole
// sequence, as in training. Grouped-query attention gives the same logits either way, bit
// for bit. Latent attention works on the cached latent vectors directly and rounds
// differently in the last bits: the logits agree to about 1e-5 of their size, and a greedy
// choice can differ only where the two best logits are as near to each other as that.
//
// What a sampler draws depends on the seed and the token's place in the sequence alone.
package generate
