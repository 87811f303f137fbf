// Package quant holds the reference codecs of the stored formats. They convert rows of
// blocks, and rows of scalar floats, to f32 and back.
//
// The decoders are the specification that every kernel is checked against, on any
// processor or device. They are bit-exact with ggml 0.23, with two exceptions: the sign
// and payload of NaNs, and the E8M0 scale 255 of [dtype.MXFP4], which is a NaN as in the
// OCP Microscaling specification.
//
// The encoders write the same bytes as ggml 0.23, with or without an importance vector.
// They differ where ggml's result is undefined or useless: values that a format cannot
// hold are refused, the scale of an MXFP4 block below 2^-125 is the smallest one, and the
// sums in a Q8_K block of zeros are zeros.
//
// The order of the f32 operations is therefore part of each codec. Every product that is
// added to a sum is rounded by an explicit conversion, so that no compiler fuses the two.
//
// On amd64 with AVX2, F16C and BMI1, assembly encodes Q4_0 and Q4_1 if there is no
// importance vector. The Go code is its specification, and is the only code with the build
// tag noasm.
//
// A row is a run of whole blocks along the last axis. Bytes are little-endian and need no
// alignment. No function keeps a reference to its arguments or starts goroutines. Only
// errors and the tables of the IQ encoders, which are built on first use, allocate.
//
// The package has no tensors, strides or devices. It does not choose a format or compute
// importance vectors.
package quant
