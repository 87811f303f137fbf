// Package shape holds the arithmetic of tensor shapes that every layer shares:
// the inline [Shape] value, checked element counts, row-major strides and
// broadcasting.
//
// A shape has 1 to [MaxRank] axes and no zero-sized axis; a scalar is {1}. Counts
// and strides are in storage elements: blocks for a block-quantized format,
// elements otherwise. Every product of sizes is checked for overflow, because sizes come
// from files.
package shape
