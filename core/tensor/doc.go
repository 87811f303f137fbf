// Package tensor holds the raw tensor: a buffer and an interpretation of its
// bytes (dtype, shape, strides, offset), with checked views. The module root does not
// export it; it exports tensors with named axes.
//
// A [Tensor] is a plain value that owns one reference to its buffer. Copying the struct
// does not add a reference. A view has its own reference and is released on its own.
// The shape counts logical elements. Strides and offset count storage elements: blocks
// for a block-quantized dtype, whose last axis has size/block storage elements.
package tensor
