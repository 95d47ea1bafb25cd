// Package llama3 is the dense decoder of Llama 3 (Grattafiori et al. 2024, "The
// Llama 3 Herd of Models"), with torchtitan's names and initial values, so that
// weights in Meta's layout load under their own names:
//
//	tok_embeddings.weight                       [Vocab, Dim]
//	layers.N.attention_norm.weight              [Dim]
//	layers.N.attention.wq.weight                [Heads·HeadDim, Dim]
//	layers.N.attention.wk.weight, wv.weight     [KVHeads·HeadDim, Dim]
//	layers.N.attention.wo.weight                [Dim, Heads·HeadDim]
//	layers.N.ffn_norm.weight                    [Dim]
//	layers.N.feed_forward.w1.weight, w3.weight  [Hidden, Dim]
//	layers.N.feed_forward.w2.weight             [Dim, Hidden]
//	norm.weight                                 [Dim]
//	output.weight                               [Vocab, Dim]
//
// testdata holds losses, gradients and optimizer steps that PyTorch computed from
// the same random numbers; testdata/generate.py made them.
package llama3
