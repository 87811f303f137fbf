package main

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// jsonText is a text whose JSON form preserves its bytes. The strings of JSON are Unicode, so
// a text that is not valid UTF-8 becomes an array of numbers, one for each byte. The server of
// llama.cpp encodes the pieces of tokens in the same way.
type jsonText string

func (s jsonText) MarshalJSON() ([]byte, error) {
	if !utf8.ValidString(string(s)) {
		b := []byte{'['}
		for i := range len(s) {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendUint(b, uint64(s[i]), 10)
		}
		return append(b, ']'), nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(string(s))
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), err
}

// bytesNote is part of the help of commands that print texts as JSON.
const bytesNote = "In JSON, a text that is not valid UTF-8 is an array of its bytes instead of a string."
