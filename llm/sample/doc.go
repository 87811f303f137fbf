// Package sample chooses the next token from a model's logits, and ends text at
// stop strings.
//
// A Sampler is a chain: stages narrow or reweight the candidates, and a picker
// takes one of those that are left. The stages are logit bias, penalties of tokens
// that occurred, top-k, typical-p, top-p, min-p and temperature, with llama.cpp's
// formulas and by default in its order; Params.Stages gives another. Of llama.cpp's
// stages DRY, top-n-sigma and XTC are absent; its defaults do not use them.
// Parameters of zero leave their stage out. Probabilities in a stage are the softmax
// of the logits that earlier stages left.
//
// Temperature 0 takes the largest logit that the chain leaves. Any other
// temperature t divides the logits by t and draws from their softmax,
//
//	p[i] = exp(l[i]/t) / sum_j exp(l[j]/t),
//
// in float64 and with the largest logit subtracted first, so that no logit and
// no temperature overflows.
//
// Randomness comes from the PCG generator of math/rand/v2 and is drawn once for
// each sampled token: the same seed and the same logits give the same ids.
// Sampling allocates nothing once a Sampler has seen a vocabulary size and its
// history is full.
//
// A [StopMatcher] stands behind a token stream's text.
package sample
