// Package tensor holds the raw tensor: a buffer and an interpretation of its
// bytes (dtype, shape, strides, offset), with checked views. It is internal
// substrate: the module root exports named-axis tensors instead.
//
// A [Tensor] is a plain value that owns one reference to its buffer; copying the
// struct does not take another. Views take their own reference and are released
// on their own. Shape is logical. Strides and offset count storage elements:
// blocks for a block-quantized dtype, whose last axis is therefore shape/block
// storage elements long.
package tensor
