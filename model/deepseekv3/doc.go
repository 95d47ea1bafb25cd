// Package deepseekv3 is the mixture-of-experts decoder of DeepSeek-V3 (arXiv
// 2412.19437): multi-head latent attention, a few dense layers, then layers of routed
// and shared experts. Names and initial values are torchtitan's:
//
//	tok_embeddings.weight                                   [Vocab, Dim]
//	layers.N.attention_norm.weight, ffn_norm.weight         [Dim]
//	layers.N.attention.wq.weight                            [Heads·(NoPE+RoPE), Dim]
//	layers.N.attention.wq_a.weight, q_norm, wq_b            with a latent query
//	layers.N.attention.wkv_a.weight, kv_norm, wkv_b, wo
//	layers.N.feed_forward.w1.weight, w2, w3                 dense layers
//	layers.N.moe.router.gate.weight                         [Experts, Dim]
//	layers.N.moe.experts.w1, w2, w3                         [Experts, …]
//	layers.N.moe.shared_experts.w1.weight, w2, w3
//	norm.weight, output.weight
//
// The states layers.N.moe.router.expert_bias and layers.N.moe.tokens_per_expert
// are moved by moe.Balance, not by a gradient, and count as no parameters.
//
// testdata holds losses, gradients and loads of experts that PyTorch computed from the
// same random numbers; testdata/generate.py made them.
package deepseekv3
