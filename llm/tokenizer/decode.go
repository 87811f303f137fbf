package tokenizer

import "unicode/utf8"

// AppendPiece appends the text of one token to dst and returns the extended slice. U+2581
// becomes a space, and a byte token its byte. Unused tokens and ids outside of the
// vocabulary have no text. Control and unknown tokens have their spelling if special is
// set, and no text otherwise. The result may end within a character: see Stream.
func (t *Tokenizer) AppendPiece(dst []byte, id int32, special bool) []byte {
	return append(dst, t.piece(id, special)...)
}

func (t *Tokenizer) piece(id int32, special bool) string {
	if !t.vocab.has(id) || !special && t.vocab.silent(id) {
		return ""
	}
	return t.vocab.piece[id]
}

// first returns the piece of the first token of a text, without the space that encoding
// added in front.
func (t *Tokenizer) first(id int32, special bool) string {
	p := t.piece(id, special)
	if t.stripSpace && p != "" && p[0] == ' ' {
		return p[1:]
	}
	return p
}

// Decode returns the text of ids, without control and unknown tokens. If encoding adds a
// space in front of a text, Decode removes one leading space of the first token; as in
// llama.cpp, a space after a leading BOS token remains. The result may be invalid UTF-8.
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

// StreamOptions says how a Stream decodes. The zero value is for ids that a model generates
// after a prompt.
type StreamOptions struct {
	// Start says that the ids begin a text. As in Decode, one leading space of the first
	// token is then removed.
	Start bool
	// Special shows control and unknown tokens.
	Special bool
}

// Stream decodes ids one by one and never splits a character. It holds back the first bytes
// of a character until the character is complete. The concatenation of all results of Next
// and Flush is strings.ToValidUTF8(text, "\uFFFD") of the whole text. Only one goroutine at
// a time may use a Stream.
type Stream struct {
	t       *Tokenizer
	opt     StreamOptions
	held    []byte
	invalid bool // whether the last byte that was released was invalid
}

// NewStream returns a new Stream.
func (t *Tokenizer) NewStream(opt StreamOptions) *Stream {
	return &Stream{t: t, opt: opt}
}

// Next returns the characters that id completes. For a byte token that is often "". A run of
// bytes that are not part of any character becomes one U+FFFD.
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

// Flush ends the text. It returns U+FFFD if the last character is incomplete, unless invalid
// bytes directly in front of it have already given one, and "" otherwise. The Stream can
// then decode another text, whose leading space remains.
func (s *Stream) Flush() string {
	var out []byte
	if len(s.held) > 0 {
		out = s.release(out, s.held[:1])
	}
	s.held = s.held[:0]
	s.invalid = false
	return string(out)
}

// release appends char to out if it is valid, and U+FFFD for the first of a run of invalid
// bytes.
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
