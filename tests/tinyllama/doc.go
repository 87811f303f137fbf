// Package tinyllama writes models of llama and other families for tests: a few hundred
// kilobytes of GGUF that are generated from a seed, so that a clean clone can run the whole
// path from a file to text. The weights are random. They are scaled so that greedy text does
// not repeat and the largest logit differs clearly from the next. The text has no meaning.
//
// The bytes depend only on [Options] or [Shape]. They are the same on every platform and in
// every Go version. If they change, every number that was recorded from them is wrong.
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
