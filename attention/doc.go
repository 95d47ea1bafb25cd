// Package attention holds rotary positions, masks, the fused attention op and
// grouped-query attention, the module made of them.
//
// # Shapes
//
// Activations are [B, T, D]: batch, sequence, model width. Heads are split by
// views, without transposes: queries [B, T, H, Dqk], keys [B, S, Hkv, Dqk], values
// [B, S, Hkv, Dv] and outputs [B, T, H, Dv]. Scores [B, H, T, S] never exist.
//
// # FLOPs
//
// Model FLOPs of attention are those of two full matrix products in forward,
// 2·B·H·T·S·(Dqk+Dv), without a discount for what is masked, and twice that in
// backward: torchtitan's formula. Executed FLOPs count the pairs of query and key
// that the mask leaves (about half of them if it is causal; what documents hide is
// not known when a graph is built, and not discounted), with the five products
// that backward computes: 2·pairs·H·(3·Dqk+2·Dv).
package attention
