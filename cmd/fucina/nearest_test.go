package main

import "testing"

func TestDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"run", "run", 0},
		{"rnu", "run", 1},
		{"tepm", "temp", 1},
		{"bench", "bnech", 1},
		{"inspct", "inspect", 1},
		{"ca", "abc", 3}, // no byte is edited twice
		{"kitten", "sitting", 3},
		{"abcd", "badc", 2},
	} {
		if got := distance(tc.a, tc.b); got != tc.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
		if got := distance(tc.b, tc.a); got != tc.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tc.b, tc.a, got, tc.want)
		}
	}
}

// nearest returns the nearest name within a third of the word's length.
func TestNearest(t *testing.T) {
	names := []string{"run", "inspect", "quantize", "tokenize", "top-p", "top-k", "m", "Q4_K_M", "text", "json"}
	for word, want := range map[string]string{
		"":          "",
		"x":         "",
		"rnu":       "run",
		"urn":       "run",
		"r":         "",
		"walk":      "",
		"quantise":  "quantize",
		"toeknise":  "tokenize",
		"xxxxnize":  "",
		"top-q":     "top-p",
		"q4_k_m":    "Q4_K_M",
		"q4_km":     "Q4_K_M",
		"jsonl":     "json",
		"inspector": "inspect",
		"M":         "m",
	} {
		if got := nearest(word, names); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
