// Package untrusted renders strings from files for error messages.
package untrusted

import "strconv"

// limit is the most bytes of a string that an error shows.
const limit = 80

// Quote returns s escaped, so that it stays on one line and cannot drive a terminal, and
// of bounded length.
func Quote(s string) string {
	if len(s) > limit {
		return strconv.Quote(s[:limit]) + "..."
	}
	return strconv.Quote(s)
}

// Name returns s as it is, or as [Quote] returns it if that differs in more than the
// quotes.
func Name(s string) string {
	if q := Quote(s); q != `"`+s+`"` {
		return q
	}
	return s
}
