// Package sample chooses the next token from a model's logits, and ends text at
// stop strings.
//
// A Sampler is a chain of stages that narrow or reweight the candidates, followed by a
// picker that chooses one of the remaining candidates. The stages are logit bias, penalties
// of tokens that occurred, top-k, typical-p, top-p, min-p and temperature. They have
// llama.cpp's formulas and, by default, its order; Params.Stages gives another order. The
// stages DRY, top-n-sigma and XTC of llama.cpp do not exist here; llama.cpp's defaults do
// not use them. A stage whose parameter is zero is left out. Probabilities in a stage are
// the softmax of the logits after the earlier stages.
//
// Temperature 0 chooses the largest logit after the chain. Any other temperature t divides
// the logits by t and draws from their softmax,
//
//	p[i] = exp(l[i]/t) / sum_j exp(l[j]/t),
//
// in float64 and with the largest logit subtracted first, so that nothing overflows.
//
// Random numbers come from the PCG generator of math/rand/v2. Each sampled token uses one
// number, so the same seed and the same logits give the same ids. Sampling allocates nothing
// after the first token of a vocabulary size, once the history is full.
//
// A [StopMatcher] ends the text of a token stream at stop strings.
package sample
