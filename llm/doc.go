// Package llm runs language models from GGUF files: an ordinary consumer of the
// public API.
//
// [Open] maps a file and checks it; a [Model] holds its weights once per engine and
// may be shared by goroutines. A [Session] is one conversation: a context of the
// engine and a KV cache, driven by one goroutine at a time. [Session.Generate]
// streams text.
//
// Which family a file belongs to, and every dimension of the network, comes from
// its metadata. Files are untrusted: every dimension is checked against the
// tensors before use, and a file with tensors that the family does not use is
// refused, because ignoring them would give wrong results.
//
// Families: llama (grouped-query attention, tied embeddings, linear, llama 3 and
// YaRN rotary scaling).
package llm
