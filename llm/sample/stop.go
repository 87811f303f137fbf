package sample

import "fmt"

// StopMatcher ends a stream of text at the first stop string. It holds back text that may be
// the beginning of a stop string, so that it never returns a part of one. It returns that
// text as soon as it is not the beginning of a stop string.
//
// The stream ends at the stop string that is complete first. If several stop strings are
// complete at the same byte, the longest one is removed. The result does not depend on how
// the text is cut into pieces. If stop strings and pieces consist of whole UTF-8 characters,
// so do the results.
type StopMatcher struct {
	stops []stopString
	// held is the longest suffix of the text so far that is a prefix of a stop string.
	held    string
	stopped string
}

// stopString is the automaton of Knuth, Morris and Pratt for one string.
type stopString struct {
	text string
	// fail[n] is the length of the longest proper prefix of text[:n] that is also
	// its suffix.
	fail []int
	n    int // the length of the prefix of text that the stream ends with
}

// NewStopMatcher returns a matcher for stops. It fails with ErrParams if one of them is empty.
// Without stops, the matcher holds nothing back.
func NewStopMatcher(stops ...string) (*StopMatcher, error) {
	m := &StopMatcher{}
	for i, s := range stops {
		if s == "" {
			return nil, fmt.Errorf("%w: stop string %d is empty", ErrParams, i)
		}
		fail := make([]int, len(s)+1)
		for n := 2; n <= len(s); n++ {
			k := fail[n-1]
			for k > 0 && s[k] != s[n-1] {
				k = fail[k]
			}
			if s[k] == s[n-1] {
				k++
			}
			fail[n] = k
		}
		m.stops = append(m.stops, stopString{text: s, fail: fail})
	}
	return m, nil
}

// Next takes the next piece of text. It returns the text that is certainly not a part of a
// stop string, and whether a stop string has ended the stream. After the end of the stream it
// returns no text.
func (m *StopMatcher) Next(text string) (out string, stopped bool) {
	if m.stopped != "" {
		return "", true
	}
	all := m.held + text
	for i := len(m.held); i < len(all); i++ {
		for j := range m.stops {
			s := &m.stops[j]
			for s.n > 0 && s.text[s.n] != all[i] {
				s.n = s.fail[s.n]
			}
			if s.text[s.n] == all[i] {
				s.n++
			}
			if s.n == len(s.text) && len(s.text) > len(m.stopped) {
				m.stopped = s.text
			}
		}
		if m.stopped != "" {
			m.held = ""
			return all[:i+1-len(m.stopped)], true
		}
	}
	hold := 0
	for _, s := range m.stops {
		hold = max(hold, s.n)
	}
	m.held = all[len(all)-hold:]
	return all[:len(all)-hold], false
}

// Flush returns the text that is held back. Call it when the stream ends without a stop string.
func (m *StopMatcher) Flush() string {
	held := m.held
	m.held = ""
	for j := range m.stops {
		m.stops[j].n = 0
	}
	return held
}

// Stopped returns the stop string that ended the stream, or "" if none did.
func (m *StopMatcher) Stopped() string { return m.stopped }

// Reset prepares m for another stream.
func (m *StopMatcher) Reset() {
	m.Flush()
	m.stopped = ""
}
