// Package net computes the network of a language model, a transformer whose blocks all have
// the same form. [Load] reads its weights from a file, [Network.Forward] runs tokens through
// the blocks, and [Network.Logits] returns the scores of the tokens that may follow.
//
// Each file of this package is a part of the network:
//
//	forward.go      x = embedding; x = block(x) for each block; logits = output(norm(x))
//	attention.go    the first half of a block
//	feedforward.go  the second half of a block
//	projection.go   matrices of products, and norms
//	step.go         the rows of a step, and what changes from step to step in one upload
//	angles.go       the rotation of queries and keys by their positions
//	load.go         which tensors of a file a network has
//	weights.go      how a tensor is checked and loaded
//
// The differences between families of models are data (package arch): a weight that a family
// does not have is the zero Tensor, and no code tests the name of a family.
//
// # Memory
//
// A Network owns its weights, which are Shared tensors. It is immutable, so any number of
// goroutines may use it at once. The tensors of a step belong to frames that the step closes,
// except its result. Each large value is moved into its last use, which bounds the memory of a
// batch.
package net
