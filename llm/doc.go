// Package llm runs language models from GGUF files: an ordinary consumer of the
// public API.
//
// [Open] maps a file and checks it; a [Model] holds its weights once per engine and
// may be shared by goroutines. A [Session] is one sequence of tokens: a context of the
// engine and a KV cache, driven by one goroutine at a time. [Session.Generate]
// streams text, and [Conversation] lays out the turns of a chat. Sessions are closed
// before their model, and the model before its engine.
//
// Which family a file belongs to, and every dimension of the network, comes from
// its metadata. Files are untrusted: every dimension is checked against the
// tensors before use, and a file with tensors that the family does not use is
// refused, because ignoring them would give wrong results.
//
// # Cancellation
//
// Whatever computes takes a context.Context and returns its error when it is done: soon on
// the CPU, which looks at it within an op too, and after the work that a device was given.
// A session remains usable then. Loading a model and encoding a text into tokens cannot be
// cancelled.
//
// # Families
//
//   - llama: grouped-query attention, biases where a file has them, tied embeddings;
//     rotary angles stretched linearly, by llama 3's divisors or by YaRN.
//   - qwen2: biases on queries, keys and values. qwen3: a norm on each query and key
//     head.
//   - gemma2 and gemma3: norms after attention and MLP, GELU, scaled embeddings, soft
//     caps, blocks that see only a window of the last tokens. Their caches hold all
//     tokens nevertheless.
//   - phi3: queries, keys and values in one matrix, gate and up in another; LongRoPE,
//     whose set of angles depends on the session's length. A file's sliding window is
//     ignored, as llama.cpp does: converters have not written it reliably.
//
// What a family adds is an entry of one table; the forward pass, in llm/internal/net, is
// the same for all.
// [RegisterFamily] adds an entry to the table at run time.
package llm
