// Package eval measures what quantization cost: perplexity of a model on a text, and against a base model the KL
// divergence of the predicted distributions, how often both agree on the most likely token, and the ratio of
// perplexities with a paired bootstrap interval.
//
// Both models run side by side, block by block, over all windows, so memory holds two blocks and the hidden states,
// never two models. Logits exist for a few hundred tokens at a time.
package eval
