// Package dtype defines the element formats of buffers and tensors, and everything that
// depends on a format alone: geometry, predicates, the compute and output policy, and
// scalar conversions.
//
// A [DType] is a format tag, not a Go type. Scalar formats store one storage
// element per logical element. Block-quantized formats store one packed block
// struct per [DType.BlockSize] logical elements, always along the last axis;
// their layouts are the wire formats of GGML, and the compiler checks their sizes. One
// table, [registry], is the source of every property.
//
// The package does not decode or encode blocks (package quant does), and has no memory or
// devices.
package dtype
