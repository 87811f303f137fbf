// Package llm runs language models from GGUF files. It uses the public API of package
// fucina.
//
// [Open] maps a file and checks it. A [Model] holds the weights on one engine, and
// goroutines may share it. A [Session] is one sequence of tokens. One goroutine at a time
// drives it. [Session.Generate] streams text, and [Conversation] lays out the turns of a chat.
// [Session.Save] and [Model.LoadSession] keep a session beyond the end of the program. Close
// the sessions before their model, and the model before its engine.
//
// The metadata of a file gives its family and every dimension of the network. Files are
// untrusted: Open checks every dimension against the tensors. Open refuses a file with
// tensors that the family does not use, because ignoring them would give wrong results.
//
// # The cache
//
// A model has one cache of keys and values for all its sessions, of Options.CacheTokens tokens in
// pages of 32. Sessions take pages as they decode tokens, and share them: [Session.Fork] shares
// all pages of a session, and a session that begins with the same tokens as another, open or
// recently closed, takes over its pages instead of computing them. A page that is shared is
// copied before it is written, so that no session sees what another does. The sessions of a model
// take turns, one step of the network at a time.
//
// # Cancellation
//
// Methods that compute take a context.Context, and return its error when it is done. The CPU
// checks it within operations too; a device first ends the work that it was given. The
// session remains usable. Loading a model and encoding a text into tokens cannot be
// cancelled.
//
// # Families
//
//   - llama: grouped-query attention, biases where a file has them, tied embeddings;
//     rotary angles scaled linearly, by llama 3's divisors or by YaRN.
//   - qwen2: biases on queries, keys and values. qwen3: a norm on each query and key
//     head.
//   - gemma2 and gemma3: norms after attention and MLP, GELU, scaled embeddings, soft
//     caps, and blocks that see only a window of the last tokens, whose older keys and values
//     are given back.
//   - phi3: queries, keys and values in one matrix, gate and up in another; LongRoPE, whose
//     angles depend on the length of the session. As in llama.cpp, the sliding window of a
//     file is ignored, because converters have not written it reliably.
//
// Each family is an entry of one table, and the forward pass is the same for all.
// [RegisterFamily] adds an entry at run time.
package llm
