package tokenizer

import "unicode/utf8"

// AppendPiece appends the text of one token to dst and returns the extended
// slice: U+2581 as a space, a byte token as its byte, nothing for unused tokens
// and ids outside of the vocabulary. Control and unknown tokens are appended as
// they are spelled if special is set, and not at all otherwise. The result may
// end within a character: see Stream.
func (t *Tokenizer) AppendPiece(dst []byte, id int32, special bool) []byte {
	return append(dst, t.piece(id, special)...)
}

func (t *Tokenizer) piece(id int32, special bool) string {
	if !t.vocab.has(id) || !special && t.vocab.silent(id) {
		return ""
	}
	return t.vocab.piece[id]
}

// first returns the piece of the token that begins a text, without the space
// that encoding put in front of it.
func (t *Tokenizer) first(id int32, special bool) string {
	p := t.piece(id, special)
	if t.stripSpace && p != "" && p[0] == ' ' {
		return p[1:]
	}
	return p
}

// Decode returns the text of ids without control and unknown tokens. Where
// encoding adds a space in front, one leading space of the first token is
// removed; a space behind a leading BOS token stays, as in llama.cpp. The result
// is invalid UTF-8 where the ids are.
func (t *Tokenizer) Decode(ids []int32) string {
	var b []byte
	for i, id := range ids {
		if i == 0 {
			b = append(b, t.first(id, false)...)
		} else {
			b = t.AppendPiece(b, id, false)
		}
	}
	return string(b)
}

// StreamOptions says how a Stream decodes. The zero value suits ids that a
// model generates behind a prompt.
type StreamOptions struct {
	// Start says that the ids begin a text: as in Decode, one leading space of
	// the first token is removed.
	Start bool
	// Special shows control and unknown tokens.
	Special bool
}

// Stream decodes ids as they come and never splits a character: bytes that
// begin one are held back until the rest has come. Everything that Next and
// Flush return, joined, is strings.ToValidUTF8(text, "\uFFFD") of the whole
// text. A Stream is for one goroutine.
type Stream struct {
	t       *Tokenizer
	opt     StreamOptions
	held    []byte
	invalid bool // the last byte that was let go was invalid
}

// NewStream returns a Stream at the beginning of its ids.
func (t *Tokenizer) NewStream(opt StreamOptions) *Stream {
	return &Stream{t: t, opt: opt}
}

// Next returns the characters that id completes; often that is "" for a byte
// token. A run of bytes that cannot be part of any character comes out as one
// U+FFFD.
func (s *Stream) Next(id int32) string {
	var p string
	if s.opt.Start {
		p = s.t.first(id, s.opt.Special)
		s.opt.Start = false
	} else {
		p = s.t.piece(id, s.opt.Special)
	}
	if p == "" {
		return ""
	}
	if len(s.held) == 0 && utf8.ValidString(p) {
		s.invalid = false
		return p
	}
	s.held = append(s.held, p...)
	var out []byte
	n := 0
	for n < len(s.held) && utf8.FullRune(s.held[n:]) {
		_, size := utf8.DecodeRune(s.held[n:])
		out = s.release(out, s.held[n:n+size])
		n += size
	}
	s.held = append(s.held[:0], s.held[n:]...)
	return string(out)
}

// Flush ends the text: it returns U+FFFD for a character that was begun and
// never completed, unless invalid bytes just before gave one already, and "" if
// there is none. The Stream is then at the beginning of a further text, which
// keeps its leading space.
func (s *Stream) Flush() string {
	var out []byte
	if len(s.held) > 0 {
		out = s.release(out, s.held[:1])
	}
	s.held = s.held[:0]
	s.invalid = false
	return string(out)
}

// release appends one character to out, or U+FFFD for the first of a run of
// invalid bytes.
func (s *Stream) release(out, char []byte) []byte {
	if utf8.Valid(char) {
		s.invalid = false
		return append(out, char...)
	}
	if s.invalid {
		return out
	}
	s.invalid = true
	return append(out, "\uFFFD"...)
}
