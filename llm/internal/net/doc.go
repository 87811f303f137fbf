// Package net is the network of a language model: a transformer whose blocks are all
// alike. [Load] takes its weights from a file, [Network.Forward] runs tokens through the
// blocks, and [Network.Logits] scores what may follow them.
//
// A file of this package is a part of the network:
//
//	forward.go      x = embedding; x = block(x) for each block; logits = output(norm(x))
//	attention.go    the first half of a block
//	feedforward.go  the second half of a block
//	projection.go   products with matrices, and norms
//	angles.go       the rotation of queries and keys by their positions
//	load.go         which tensors of a file a network has
//	weights.go      how a tensor is checked and taken
//
// What sets families of models apart is data (package arch): a weight that a family does
// not have is zero, and no code asks for a model's name.
//
// # Memory
//
// A Network owns its weights, which are Shared tensors, and is immutable: any number of
// sequences use it at once. Everything that a step computes belongs to frames that the
// step closes, but its result. Within, each large value is moved into its last use, so
// that a batch needs no more memory than it must.
package net
