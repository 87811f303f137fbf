// Package sample chooses the next token from a model's logits.
//
// A Sampler is a chain: stages narrow or reweight the candidates, and a picker
// takes one of those that are left. Temperature 0 is the chain of one picker,
// the largest logit. Any other temperature t divides the logits by t and draws
// from their softmax,
//
//	p[i] = exp(l[i]/t) / sum_j exp(l[j]/t),
//
// in float64 and with the largest logit subtracted first, so that no logit and
// no temperature overflows.
//
// Randomness comes from the PCG generator of math/rand/v2 and is drawn once for
// each sampled token: the same seed and the same logits give the same ids.
// Sampling allocates nothing once a Sampler has seen a vocabulary size.
package sample
