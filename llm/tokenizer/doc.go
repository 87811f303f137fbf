// Package tokenizer turns text into the token ids a model was trained on and
// ids back into text. It is built from the arrays a model file carries under
// tokenizer.ggml.*, needs no other data, and gives the ids llama.cpp gives for
// the same file.
//
// One model of tokenization is provided: "llama", the SentencePiece byte-pair
// vocabulary with byte fallback. What does not depend on the model (the
// vocabulary, special tokens in the text, decoding, streaming) is kept apart
// from what does (turning a stretch of plain text into ids), behind the
// encoder interface of this package.
//
// # Encoding
//
// Encode first cuts the text at special tokens: user-defined tokens always,
// control and unknown tokens only when ParseSpecial is set. Longer tokens cut
// first, then lower ids; within one token the leftmost occurrence wins. Every
// stretch between special tokens is then encoded by itself.
//
// For "llama" a stretch is encoded so: one space goes in front of it
// (AddSpacePrefix), so at the start of the text and behind every special token;
// spaces become U+2581, and, starting from single characters, the adjacent pair whose
// concatenation is the vocabulary entry of highest score is merged until no
// pair is an entry; equal scores merge leftmost first. A character that is no
// entry becomes its byte tokens <0x00>..<0xFF>, or the unknown token where the
// vocabulary lacks one of them.
//
// Two properties of this algorithm are worth knowing. Merging sees the whole
// vocabulary, so plain text may merge into a control token whose parts are
// entries as well, ParseSpecial or not. And two kinds of text do not come back
// from decoding as they were: U+2581 in the text comes back as a space, and in
// invalid UTF-8 a space behind a truncated character as U+2581.
//
// # Decoding
//
// Decode gives bytes as the tokens spell them, valid UTF-8 or not; a Stream
// gives the same text in pieces that never split a character. Control and
// unknown tokens are silent unless asked for.
//
// # Invariants
//
// A Tokenizer never changes after New and may be used by any number of
// goroutines. Encoding takes O(n log n) time and O(n) memory for n bytes of
// text, whatever the vocabulary holds. Vocabularies come from untrusted files:
// New checks every length and id, and no vocabulary that it accepts makes a
// later call panic.
package tokenizer
