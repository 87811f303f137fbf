package tokenizer

import "unicode/utf8"

// otherBytes is the first character that spells a byte outside of printable Latin-1.
// Byte-level vocabularies spell every byte as one printable character: the printable
// characters of Latin-1 as themselves, and the other 68 bytes, in order, as U+0100 and up.
// (A. Radford et al., "Language models are unsupervised multitask learners", 2019.)
const otherBytes = 0x100

// byteRunes holds the character of each byte.
var byteRunes = func() (runes [256]rune) {
	other := rune(otherBytes)
	for b := range runes {
		switch {
		case b >= '!' && b <= '~', b >= 0xA1 && b <= 0xAC, b >= 0xAE:
			runes[b] = rune(b)
		default:
			runes[b] = other
			other++
		}
	}
	return runes
}()

// runeBytes is the inverse of byteRunes. It has 0 for the character of byte 0, and for
// characters that spell no byte.
var runeBytes = func() (bytes [otherBytes + 68]byte) {
	for b, r := range byteRunes {
		bytes[r] = byte(b)
	}
	return bytes
}()

// fromByteRunes returns the bytes that text spells. It reports false if a character of text
// spells no byte.
func fromByteRunes(text string) (string, bool) {
	if plain(text) {
		return text, true
	}
	raw, ok := appendByteRunes(make([]byte, 0, len(text)), text)
	return string(raw), ok
}

// plain reports whether all characters of text are printable ASCII, which spells itself.
func plain(text string) bool {
	for i := range len(text) {
		if text[i] < '!' || text[i] > '~' {
			return false
		}
	}
	return true
}

// appendByteRunes appends the bytes that text spells. It reports false if a character of
// text spells no byte.
func appendByteRunes(dst []byte, text string) ([]byte, bool) {
	for _, r := range text {
		if int(r) >= len(runeBytes) || byteRunes[runeBytes[r]] != r {
			return dst, false
		}
		dst = append(dst, runeBytes[r])
	}
	return dst, true
}

// wellFormed returns text as llama.cpp reads it. A byte that is not part of a character
// becomes U+FFFD, and a character with an overlong encoding gets its shortest one.
// Surrogates do not change.
func wellFormed(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	b := make([]byte, 0, len(text)+len(text)/2)
	for i := 0; i < len(text); {
		r, size := looseRune(text[i:])
		if r >= 0xD800 && r < 0xE000 {
			b = append(b, text[i:i+size]...)
		} else {
			b = utf8.AppendRune(b, r)
		}
		i += size
	}
	return string(b)
}

// looseRune decodes the first character of text. Its length is the one that the first byte
// announces, even if a shorter encoding exists. looseRune returns U+FFFD and 1 if bytes are
// missing or the value is not a code point.
func looseRune(text string) (rune, int) {
	first := text[0]
	size := charLen(first)
	switch {
	case first < 0x80:
		return rune(first), 1
	case first < 0xC0, first >= 0xF8, len(text) < size:
		return utf8.RuneError, 1
	}
	r := rune(first) & (0x7F >> size)
	for _, b := range []byte(text[1:size]) {
		if b&0xC0 != 0x80 {
			return utf8.RuneError, 1
		}
		r = r<<6 | rune(b&0x3F)
	}
	if r > utf8.MaxRune {
		return utf8.RuneError, 1
	}
	return r, size
}
