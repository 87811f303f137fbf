// Package split cuts text into pieces with the regular expressions that
// byte-level BPE vocabularies were trained behind. Those look one character
// ahead, as in \s+(?!\S), which package regexp does not offer, and they meet
// texts of any length, which rules out backtracking.
//
// # Syntax
//
//	x|y  xy  (x)  (?:x)  x*  x+  x?  x{n}  x{n,m}
//	[abc]  [^a-z\p{L}]  \s  \S  \d  \r  \n  \t  and a backslash before punctuation
//	\p{L}  \p{M}  \p{N}  \p{P}  \p{S}
//	(?=c)  (?!c)  $      the next character is, or is not, in the class c; the end
//
// Alternatives are tried in order and repetitions are greedy, as a backtracking
// matcher does it: the match is the one that comes first, not the longest.
// Outside of a class, '.' and '^' are not provided. An expression must not match
// the empty text.
//
// Classes are those of Unicode 15.1; \s is its White_Space.
//
// # Method
//
// Compile builds a deterministic automaton over classes of characters. Its
// states are ordered lists of threads, as in RE2, so the first match in the
// order of alternatives is known; a state moves, and tells whether a match ends
// in front of a character, by that character. (R. Cox, "Regular expression
// matching in the wild", 2010.) Where a scan runs far past the end of its match,
// the positions and states that led nowhere are remembered, and no later scan
// follows them again. (T. Reps, "Maximal-munch tokenization in linear time",
// TOPLAS 20(2), 1998.) Splitting n bytes takes O(n) time for a given pattern,
// whatever the text.
package split
