package sample

import "fmt"

// StopMatcher ends a stream of text at the first of some stop strings. It holds
// back text that may be the beginning of one, so that no part of a stop string is
// ever given out, and gives it out as soon as it is none.
//
// The stream ends with the stop string that is complete first; of several that are
// complete at the same byte, the longest is cut off. How the text is cut into
// pieces makes no difference. If stop strings and pieces are whole UTF-8
// characters, so is all text that is given out.
type StopMatcher struct {
	stops []stopString
	// held is the longest end of the text so far that begins a stop string.
	held    string
	stopped string
}

// stopString is the automaton of Knuth, Morris and Pratt for one string.
type stopString struct {
	text string
	// fail[n] is the length of the longest proper prefix of text[:n] that is also
	// its suffix.
	fail []int
	n    int // bytes of text that the stream ends with
}

// NewStopMatcher returns a matcher for stops; none of them may be empty (ErrParams).
// Without stops it holds nothing back.
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

// Next takes the next piece of text. It returns the text that can be given out now
// and whether a stop string has ended the stream; after that it returns no text.
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

// Flush returns the text that is held back, once the stream has ended otherwise.
func (m *StopMatcher) Flush() string {
	held := m.held
	m.held = ""
	for j := range m.stops {
		m.stops[j].n = 0
	}
	return held
}

// Stopped returns the stop string that ended the stream, empty if none did.
func (m *StopMatcher) Stopped() string { return m.stopped }

// Reset makes m ready for another stream.
func (m *StopMatcher) Reset() {
	m.Flush()
	m.stopped = ""
}
