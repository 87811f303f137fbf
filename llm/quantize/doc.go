// Package quantize stores a model's matrices in block formats, with the choices
// that llama.cpp's quantizer makes.
//
// A [FileType] is a recipe: a format for most matrices and rules for those that
// matter more, by their role and layer. [Plan] says what becomes of every tensor,
// without touching data; [Write] and [File] do it. The result is llama.cpp's
// (v0.4.0, ggml 0.23): the same tensors in the same order, the same format for
// each and the same bytes, whatever the number of threads.
//
// What is left as it is: tensors of one dimension, those whose name does not end in
// "weight", norms, and the small matrices that a model is sensitive to, such as an
// expert router. A matrix whose rows are not whole blocks of its format gets a
// format of shorter blocks, or f16.
//
// An [Importance] says how much each input of a matrix matters (llama.cpp's
// "imatrix"); encoders weigh their error with it. Matrices in an IQ1 or IQ2 format or
// in IQ3_XXS need it, whichever recipe gives it to them, as do those in Q2_K of the
// recipe Q2_K_S; of these formats, embeddings and output.weight need it in IQ1_S,
// IQ2_XXS and IQ2_XS only, which have no encoder without. Such files are untrusted
// input, as model files are.
//
// # Memory
//
// The input is read from its mapping, whose pages are dropped tensor by tensor.
// Rows are encoded a band at a time and go straight to the output: memory is
// bounded by the largest tensor, and what is not the file's own by about a megabyte
// for each of [Options.Threads].
//
// # Differences
//
// llama.cpp ends the process where an encoder misses its importance data, and
// writes what NaN and infinite weights lead to, or fails late; here these are
// errors, the first before anything is written, and so are such values in a tensor that
// is kept as it is. The keys of an input that was
// quantized with importance data before stay where none is given now, as there.
//
// Importance data with a negative number, an entry that comes twice, counts that are
// not finite or do not divide the entry's length, or an end that is cut off is refused
// here, and taken there. llama.cpp takes any name of five bytes for one that ends in
// "weight". A model whose alignment is not 32 keeps it here; there the key stays, and
// the tensors are laid out for 32.
package quantize
