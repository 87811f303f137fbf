package chat

import (
	"fmt"
	"strings"

	"github.com/fucina-go/fucina/llm/tokenizer"
)

// Encode returns the token ids of a prompt. A marker that is a token of the vocabulary
// becomes that token. Everything else is plain text, in which special tokens are not
// recognised. addBOS adds the beginning-of-sequence token in front, if the vocabulary wants
// one there.
//
// If contents have no special tokens, the ids are those of the text of [Format], encoded
// with special tokens recognised.
//
// In some vocabularies, markers are user-defined tokens, which are recognised in any text.
// If text contains such a marker, Encode fails with ErrMessage. Errors of the tokenizer are
// returned unchanged.
func Encode(tok *tokenizer.Tokenizer, segments []Segment, addBOS bool) ([]int32, error) {
	e := encoding{tok: tok, last: tokenizer.None}
	if addBOS {
		var err error
		if e.ids, err = tok.Encode("", tokenizer.EncodeOptions{Frame: tokenizer.PromptFrame}); err != nil {
			return nil, err
		}
	}
	for _, s := range segments {
		id := tokenizer.None
		if s.Special {
			var err error
			if id, err = e.marker(s.Text); err != nil {
				return nil, err
			}
		}
		if id == tokenizer.None {
			e.text += s.Text
			continue
		}
		if err := e.flush(id); err != nil {
			return nil, err
		}
		e.ids = append(e.ids, id)
		e.last = id
	}
	if err := e.flush(tokenizer.None); err != nil {
		return nil, err
	}
	return e.ids, nil
}

// encoding is the state of Encode.
type encoding struct {
	tok *tokenizer.Tokenizer
	ids []int32
	// last is the last marker that is a token, or None.
	last int32
	// text is the text after last. The tokenizer encodes it as one piece, as it would in
	// the whole prompt.
	text string
}

// marker returns the id of the special token with the spelling text, or None.
func (e *encoding) marker(text string) (int32, error) {
	id := e.tok.Lookup(text)
	if id == tokenizer.None {
		return id, nil
	}
	ids, err := e.tok.Encode(text, tokenizer.EncodeOptions{ParseSpecial: true})
	if err != nil {
		return 0, err
	}
	if len(ids) != 1 || ids[0] != id {
		return tokenizer.None, nil // a normal token, which text does not become
	}
	return id, nil
}

// flush encodes the text in front of next, which is a marker or None.
func (e *encoding) flush(next int32) error {
	if e.text == "" {
		return nil
	}
	ids, err := e.tok.EncodeBetween(e.last, e.text, next)
	if err != nil {
		return err
	}
	switch m, err := e.forged(e.text); {
	case err != nil:
		return err
	case m != "":
		return fmt.Errorf("%w: the text contains %s, which this vocabulary recognises as a token in any text", ErrMessage, m)
	}
	e.ids, e.text = append(e.ids, ids...), ""
	return nil
}

// forged returns a marker in text that the vocabulary recognises as a token in any text, or
// "" if there is none.
func (e *encoding) forged(text string) (string, error) {
	for _, m := range markers {
		if !strings.Contains(text, m) {
			continue
		}
		id, err := e.marker(m)
		if err != nil {
			return "", err
		}
		if id == tokenizer.None {
			continue
		}
		plain, err := e.tok.Encode(m, tokenizer.EncodeOptions{})
		if err != nil {
			return "", err
		}
		if len(plain) == 1 && plain[0] == id {
			return m, nil
		}
	}
	return "", nil
}

// Strip returns text without the markers that make Encode fail. A model may write such a
// marker in its answer, which becomes a message of the next prompt.
func Strip(tok *tokenizer.Tokenizer, text string) (string, error) {
	e := encoding{tok: tok}
	for {
		m, err := e.forged(text)
		if m == "" || err != nil {
			return text, err
		}
		text = strings.ReplaceAll(text, m, "")
	}
}

// markers has the markers of all templates.
var markers = func() []string {
	var all []string
	seen := map[string]bool{}
	msgs := []Message{{System, ""}, {User, ""}, {Assistant, ""}, {User, ""}}
	for _, name := range Names() {
		segments, err := Segments(name, msgs, true)
		if err != nil {
			panic(fmt.Sprintf("chat: template %s refuses a plain conversation: %v", name, err))
		}
		for _, s := range segments {
			if s.Special && !seen[s.Text] {
				seen[s.Text] = true
				all = append(all, s.Text)
			}
		}
	}
	return all
}()
