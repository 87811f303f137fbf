package main

import (
	"fmt"
	"strings"
)

// didYouMean returns a hint for an error about a word that is not one of names. The hint has
// the nearest name; it is empty if no name is near.
func didYouMean(word string, names []string) string {
	if name := nearest(word, names); name != "" {
		return fmt.Sprintf("; did you mean %q?", name)
	}
	return ""
}

// nearest returns the first of the names with the smallest distance from word, regardless of
// case. It returns "" if every distance is above about a third of the length of word.
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

// distance returns the smallest number of edits that turn a into b. An edit inserts, deletes
// or replaces a byte, or swaps two adjacent bytes, and no byte is edited twice. (F. Damerau,
// "A technique for computer detection and correction of spelling errors", CACM 7(3), 1964.)
func distance(a, b string) int {
	// Row i holds the distance from a[:i] to b[:j] for each j.
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
