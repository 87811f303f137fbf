package main

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// jsonText is a text in JSON that keeps its bytes. JSON's strings are Unicode: a text
// that is no UTF-8 is written as the array of its bytes, each a number, as llama.cpp's
// server writes the pieces of tokens.
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

// bytesNote ends the help of commands with JSON of texts.
const bytesNote = "In JSON, a text that is no valid UTF-8 is the array of its bytes instead of a string."
