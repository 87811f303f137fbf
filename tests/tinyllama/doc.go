// Package tinyllama writes llama models, and those of other families, for tests: a
// few hundred kilobytes of GGUF that follow from a seed, so that a clean clone can
// run the whole path from a file to text. The weights are random, scaled so that
// greedy text wanders and the largest logit stands clear of the next; the text means
// nothing.
//
// The bytes are a function of [Options], or of [Shape], alone, the same on every
// platform and in every Go version: a change of them is a change of every number
// recorded from them.
//
// # The generator
//
// A tensor's elements, in storage order, come from SplitMix64 (Steele, Lea and
// Flood, "Fast splittable pseudorandom number generators", 2014): the state
// advances by 0x9E3779B97F4A7C15 and is mixed into 64 bits. The state starts at
// the seed xor the FNV-1a hash of the tensor's name, so that a tensor does not
// depend on the others. The top 24 bits, as a number u of [-1, 1), give an
// element: u*s for a matrix, 1+u/4 for the scale of a norm, with a scale s that
// [New] documents. Each is one rounded f32 operation, which no platform fuses.
package tinyllama
