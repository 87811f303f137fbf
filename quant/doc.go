// Package quant holds the reference codecs of the stored formats: block-quantized
// rows, and scalar float rows, to f32 and back.
//
// The decoders are the specification that every kernel is checked against, on any
// processor or device. They are bit-exact with ggml 0.23, with two exceptions that
// are named where they occur: the sign and payload of NaNs, and the E8M0 scale 255
// of [dtype.MXFP4], which is a NaN as the OCP Microscaling specification says.
//
// The encoders write the bytes that ggml 0.23 writes, with or without an importance
// vector. They differ where its result is not defined, or useless: values that a
// format cannot hold are refused, the scale of an MXFP4 block below 2^-125 is the
// smallest one, and the sums in a Q8_K block of zeros are zeros.
//
// The order of the f32 operations is therefore part of each codec, and products that
// feed a sum, even in a later statement, are rounded by an explicit conversion, so
// that no compiler fuses the two.
//
// On amd64 with AVX2, F16C and BMI1 the encoders of Q4_0 and Q4_1 are assembly where
// there is no importance vector. The Go code is their specification, and all there is
// with the build tag noasm.
//
// A row is a run of whole blocks along the last axis. Bytes are little-endian and need
// no alignment. Nothing here keeps a reference to its arguments or starts goroutines,
// and only errors and the tables of the IQ encoders, built on first use, allocate.
//
// The package knows nothing of tensors, strides or devices, and does not choose a
// format or compute importance vectors.
package quant
