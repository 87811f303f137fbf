package main

import (
	"fmt"
	"strings"
)

// didYouMean returns what an error adds about a word that is not one of names: the name
// that was probably meant, or nothing if none is near.
func didYouMean(word string, names []string) string {
	if name := nearest(word, names); name != "" {
		return fmt.Sprintf("; did you mean %q?", name)
	}
	return ""
}

// nearest returns the first of the names that take the fewest edits of word, in any
// case, or "" if all take more than about a third of its length.
func nearest(word string, names []string) string {
	best, least := "", (len(word)+1)/3
	for _, name := range names {
		d := distance(strings.ToLower(word), strings.ToLower(name))
		if d < least || d == least && best == "" {
			best, least = name, d
		}
	}
	return best
}

// distance returns the fewest bytes to insert, delete, replace, or swap with their
// neighbour that make b of a, where no byte is edited twice. (F. Damerau, "A technique
// for computer detection and correction of spelling errors", CACM 7(3), 1964.)
func distance(a, b string) int {
	// Row i holds the distances of a[:i] to all b[:j].
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
