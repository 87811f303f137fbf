// Package quant holds the reference codecs of the stored formats: block-quantized
// rows, and scalar float rows, to f32 and back.
//
// The decoders are the specification that every kernel is checked against, on any
// processor or device. They are bit-exact with ggml 0.23, with two exceptions that
// are named where they occur: the sign and payload of NaNs, and the E8M0 scale 255
// of [dtype.MXFP4], which is a NaN as the OCP Microscaling specification says. The
// order of the f32 operations is therefore part of each decoder, and products that
// feed a sum, even in a later statement, are rounded by an explicit conversion, so
// that no compiler fuses the two.
//
// A row is a run of whole blocks along the last axis. Source bytes are
// little-endian and need no alignment. Nothing here allocates, keeps a reference
// to its arguments or starts goroutines.
//
// The package knows nothing of tensors, strides or devices, and does not choose a
// format: it encodes where the encoder needs no calibration data.
package quant
