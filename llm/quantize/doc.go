// Package quantize stores a model's matrices in block formats, with the choices that
// llama.cpp's quantizer makes.
//
// A [FileType] is a recipe: a format for most matrices, and rules for the matrices that
// matter more, by their role and layer. [Plan] returns the format of every tensor without
// reading data. [Write] and [File] write the result. It is the same as that of llama.cpp
// v0.4.0 with ggml 0.23: the same tensors in the same order, with the same formats and the
// same bytes, for any number of threads.
//
// The following tensors do not change: those with one dimension, those whose name does not
// end in "weight", norms, and small matrices that a model is sensitive to, such as the
// router of experts. If the rows of a matrix do not consist of whole blocks of its format,
// the matrix gets a format of shorter blocks, or f16.
//
// An [Importance] says how much each input of a matrix matters (llama.cpp's "imatrix").
// Encoders weigh their error with it. Matrices in IQ3_XXS or in an IQ1 or IQ2 format need
// importance data, in every recipe, and so do matrices in Q2_K in the recipe Q2_K_S.
// Embeddings and output.weight need it only in IQ1_S, IQ2_XXS and IQ2_XS, whose encoders
// do not work without it. Files with importance data are untrusted input, like model files.
//
// # Memory
//
// The input is read from its mapping, and its pages are dropped after each tensor. Rows are
// encoded one band at a time and go directly to the output. The mapping uses at most the
// memory of the largest tensor, and the rest about a megabyte for each of
// [Options.Threads].
//
// # Differences from llama.cpp
//
// llama.cpp ends the process if an encoder lacks its importance data, and with NaN or
// infinite weights it writes a broken file or fails late. Here these are errors; missing
// importance data is reported before anything is written, and a value that is not finite is
// also an error in a tensor that does not change. As in llama.cpp, keys about importance
// data of an earlier quantization remain if there is no importance data now.
//
// This package refuses importance data that llama.cpp accepts: data with a negative number,
// with two entries of one name, with counts that are not finite or do not divide the length
// of the entry, and with a truncated end. llama.cpp treats every name of five bytes as one
// that ends in "weight". A model whose alignment is not 32 keeps its alignment here;
// llama.cpp keeps the key and lays out the tensors for 32.
package quantize
