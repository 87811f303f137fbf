package chat

import (
	"fmt"
	"strings"

	"github.com/fucina-go/fucina/llm/tokenizer"
)

// Encode returns the token ids of a prompt. Markers that are tokens of the
// vocabulary become these; all else is plain text, in which no special token is
// recognised. addBOS puts the beginning-of-sequence token in front, if the
// vocabulary wants one there.
//
// For content without special tokens the ids are those of the whole text from
// [Format], encoded with special tokens recognised.
//
// Some vocabularies declare markers as user-defined tokens, which any text is
// searched for. Text that contains such a marker is refused, with ErrMessage.
// Errors of the tokenizer are returned as they are.
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
	// text is what follows last: the tokenizer sees it in one piece, as it would in
	// the whole prompt.
	text string
}

// marker returns the id of the token that text is, or None.
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
		return tokenizer.None, nil // a normal token, which text is not made of
	}
	return id, nil
}

// flush encodes the text that next, a marker or None, ends.
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
		return fmt.Errorf("%w: the text contains %s, which this vocabulary takes for a token in any text", ErrMessage, m)
	}
	e.ids, e.text = append(e.ids, ids...), ""
	return nil
}

// forged returns a marker in text that the vocabulary takes for a token in any text,
// or "".
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

// Strip returns text without the markers for which Encode would refuse it. A model may
// write one in its answer, which is a message of the next prompt.
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

// markers are those of all templates.
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
