// Package split cuts text into pieces with the regular expressions that byte-level BPE
// vocabularies were trained with. These expressions look one character ahead, as in
// \s+(?!\S), which package regexp does not support. Texts have any length, so a
// backtracking matcher is too slow.
//
// # Syntax
//
//	x|y  xy  (x)  (?:x)  x*  x+  x?  x{n}  x{n,m}
//	[abc]  [^a-z\p{L}]  \s  \S  \d  \r  \n  \t  and a backslash before punctuation
//	\p{L}  \p{M}  \p{N}  \p{P}  \p{S}
//	(?=c)  (?!c)  $      the next character is, or is not, in the class c; the end
//
// Alternatives are tried in order and repetitions are greedy, as in a backtracking matcher:
// the result is the first match, not the longest. Outside of a class, '.' and '^' are not
// supported. An expression must not match the empty text.
//
// Classes are those of Unicode 15.1, and \s is White_Space.
//
// # Method
//
// Compile builds a deterministic automaton over classes of characters. As in RE2, its states
// are ordered lists of threads, so that the automaton finds the first match in the order of
// the alternatives. The transition of a state on a character also says whether a match ends
// in front of that character. (R. Cox, "Regular expression matching in the wild", 2010.) If
// a scan runs far past the end of its match, the matcher remembers the positions and states
// that led to no match, and no later scan follows them again. (T. Reps, "Maximal-munch
// tokenization in linear time", TOPLAS 20(2), 1998.) For a given pattern, splitting n bytes
// takes O(n) time for any text.
package split
