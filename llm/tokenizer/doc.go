// Package tokenizer turns text into the token ids that a model was trained on, and ids
// back into text. A Tokenizer is built from the arrays that a model file has under
// tokenizer.ggml.*, needs no other data, and gives the same ids as llama.cpp for the same
// file.
//
// The package has three models of tokenization:
//
//   - "llama", the SentencePiece byte-pair vocabulary with byte fallback;
//   - "gpt2", the byte-level byte-pair vocabulary, with the pre-tokenizers that
//     tokenizer.ggml.pre names: those of GPT-2, Llama 3, Qwen 2 and many others, but not
//     all that llama.cpp knows;
//   - "bert", the WordPiece vocabulary.
//
// A fourth model, "no_vocab", has no vocabulary. A Tokenizer of it can be built, so that
// such a model can run on ids, but it encodes nothing.
//
// The parts that do not depend on the model are the vocabulary, special tokens in text,
// decoding and streaming. The part that depends on the model encodes a piece of plain
// text, behind the encoder interface of this package.
//
// # Encoding
//
// Encode first cuts the text at special tokens: always at user-defined tokens, and at
// control and unknown tokens only if ParseSpecial is set. Longer tokens cut first, then
// lower ids; of the occurrences of one token, the leftmost cuts first. Some models have
// special tokens that remove the white space next to them (Config.StripBefore,
// Config.StripAfter): those of Phi 3 remove the white space after them. Each piece
// between special tokens is then encoded by itself.
//
// A Frame then adds the tokens that the vocabulary wants around the text. TextFrame is
// for a whole text and adds them on both sides. PromptFrame is for a text that a model
// continues, and adds no token at the end.
//
// For "llama", a piece is encoded in these steps. One space is added in front of it
// (AddSpacePrefix), so at the start of the text and after every special token. Spaces
// become U+2581. Starting from single characters, the adjacent pair whose concatenation
// is the vocabulary entry with the highest score is merged, until no pair is an entry; of
// equal scores, the leftmost pair merges first. A character that is not an entry becomes
// its byte tokens <0x00>..<0xFF>, or the unknown token if the vocabulary lacks one of
// them.
//
// That algorithm has two notable properties. Merging uses the whole vocabulary, so plain
// text may merge into a control token whose parts are entries too, even without
// ParseSpecial. And decoding does not restore two kinds of text: U+2581 becomes a space,
// and in invalid UTF-8 a space after a truncated character becomes U+2581.
//
// For "gpt2", the patterns of the pre-tokenizer cut a piece into words. Within a word,
// starting from single bytes, the adjacent pair that is first in the list of merges is
// merged, until no pair is in the list; of equal pairs, the leftmost merges first.
// Pre-tokenizers such as llama-bpe encode a word that is a token as that token. Before
// that, a byte that is not part of a character becomes U+FFFD. Decoding restores valid
// UTF-8 if the vocabulary has all 256 bytes and a token for every merge. Otherwise bytes
// are lost, in the same places as in llama.cpp.
//
// For "bert", a piece is cut into words at spaces. Control characters are removed.
// Punctuation, ASCII symbols and ideographs are words by themselves. Letters become lower
// case and lose their accents, unless the file says otherwise. A word is cut into the
// longest tokens from left to right; if that fails, the word becomes one unknown token.
// As in llama.cpp, stripping accents keeps the first character of the canonical
// decomposition, which for a Hangul syllable is its leading consonant.
//
// # Decoding
//
// Decode returns the bytes that the tokens spell, valid UTF-8 or not. A Stream returns
// the same text in pieces that never split a character. Control and unknown tokens have
// no text unless the caller asks for it. Unlike llama.cpp's detokenizer, Decode keeps
// spaces in front of punctuation, and the space that "bert" has in front of every word.
//
// # Invariants
//
// A Tokenizer never changes after New, and any number of goroutines may use it. Encoding
// n bytes of text takes O(n log n) time and O(n) memory, for any special tokens in it.
// For "bert" the time is O(n) times the length of the longest token, which is bounded,
// times the logarithm of the size of the vocabulary. Vocabularies come from untrusted
// files: New checks every length and id, and no vocabulary that New accepts makes a later
// call panic.
package tokenizer
