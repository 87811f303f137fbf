// Package tokenizer turns text into the token ids a model was trained on and
// ids back into text. It is built from the arrays a model file carries under
// tokenizer.ggml.*, needs no other data, and gives the ids llama.cpp gives for
// the same file.
//
// Three models of tokenization are provided:
//
//   - "llama", the SentencePiece byte-pair vocabulary with byte fallback;
//   - "gpt2", the byte-level byte-pair vocabulary, with the pre-tokenizers that
//     tokenizer.ggml.pre names: those of GPT-2, Llama 3, Qwen 2 and a good many
//     more, but not all that llama.cpp knows;
//   - "bert", the WordPiece vocabulary.
//
// A fourth, "no_vocab", is the absence of one: it opens, so that such a model can
// be run on ids, and encodes nothing.
//
// What does not depend on the model (the vocabulary, special tokens in the text,
// decoding, streaming) is kept apart from what does (turning a stretch of plain
// text into ids), behind the encoder interface of this package.
//
// # Encoding
//
// Encode first cuts the text at special tokens: user-defined tokens always,
// control and unknown tokens only when ParseSpecial is set. Longer tokens cut
// first, then lower ids; within one token the leftmost occurrence wins. Some
// models have special tokens that take the white space next to them with them
// (Config.StripAfter): those of Phi 3 take what follows. Every stretch between
// special tokens is then encoded by itself.
//
// A Frame then adds the tokens that the vocabulary asks for. A whole text (TextFrame)
// has them on both sides. A text that a model is to continue (PromptFrame) has no end.
//
// For "llama" a stretch is encoded so: one space goes in front of it
// (AddSpacePrefix), so at the start of the text and behind every special token;
// spaces become U+2581, and, starting from single characters, the adjacent pair whose
// concatenation is the vocabulary entry of highest score is merged until no
// pair is an entry; equal scores merge leftmost first. A character that is no
// entry becomes its byte tokens <0x00>..<0xFF>, or the unknown token where the
// vocabulary lacks one of them.
//
// Two properties of that algorithm are worth knowing. Merging sees the whole
// vocabulary, so plain text may merge into a control token whose parts are
// entries as well, ParseSpecial or not. And two kinds of text do not come back
// from decoding as they were: U+2581 in the text comes back as a space, and in
// invalid UTF-8 a space behind a truncated character as U+2581.
//
// For "gpt2" the patterns of the pre-tokenizer cut a stretch into words, and
// within a word, starting from single bytes, the adjacent pair that stands first
// in the merges is joined until no pair is among them; the leftmost of equal pairs
// first. Pre-tokenizers such as llama-bpe take a word that is a token as it is.
// A byte that cannot be read as part of a character becomes U+FFFD before. Valid
// UTF-8 comes back from decoding as it was, wherever the vocabulary has all 256
// bytes and a token for every merge; where it has not, bytes are lost, in the
// places where llama.cpp loses them.
//
// For "bert" a stretch is cut into words at spaces; control characters are
// dropped, punctuation, ASCII symbols and ideographs are words by themselves, and
// letters lose their case and their accents unless the file says otherwise. A
// word is cut into the longest tokens from left to right, and is one unknown
// token where that fails. As in llama.cpp, stripping accents takes the first
// character of the canonical decomposition, and so all but the leading consonant
// of a Hangul syllable.
//
// # Decoding
//
// Decode gives bytes as the tokens spell them, valid UTF-8 or not; a Stream
// gives the same text in pieces that never split a character. Control and
// unknown tokens are silent unless asked for. Spaces in front of punctuation are
// kept, unlike in llama.cpp's detokenizer, and so is the space that "bert" has in
// front of every word.
//
// # Invariants
//
// A Tokenizer never changes after New and may be used by any number of
// goroutines. Encoding takes O(n log n) time and O(n) memory for n bytes of
// text, whatever special tokens it holds; for "bert" O(n) times the length of the
// longest token, which is bounded, and the logarithm of the vocabulary's size.
// Vocabularies come from untrusted files: New checks every length and id, and no
// vocabulary that it accepts makes a later call panic.
package tokenizer
