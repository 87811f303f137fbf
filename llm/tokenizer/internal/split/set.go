package split

import (
	"cmp"
	"slices"
	"sync"
	"unicode"
)

// span is an interval of code points, including both ends.
type span struct{ lo, hi rune }

// set is a set of code points, as ascending spans that neither overlap nor are adjacent.
type set []span

// union returns the set of the code points of spans, which may have any order.
func union(spans ...span) set {
	s := slices.Clone(spans)
	slices.SortFunc(s, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	out := set{}
	for _, r := range s {
		if n := len(out); n > 0 && r.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, r.hi)
			continue
		}
		out = append(out, r)
	}
	return out
}

// not returns the code points outside of s. Surrogates count: they occur in
// text that is not quite UTF-8.
func (s set) not() set {
	out := set{}
	next := rune(0)
	for _, r := range s {
		if next < r.lo {
			out = append(out, span{next, r.lo - 1})
		}
		next = r.hi + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, span{next, unicode.MaxRune})
	}
	return out
}

func (s set) has(r rune) bool {
	i, found := slices.BinarySearchFunc(s, r, func(a span, r rune) int { return cmp.Compare(a.lo, r) })
	return found || i > 0 && r <= s[i-1].hi
}

func fromTable(t *unicode.RangeTable) []span {
	var spans []span
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			spans = append(spans, span{lo, hi})
			return
		}
		for r := lo; r <= hi; r += stride {
			spans = append(spans, span{r, r})
		}
	}
	for _, r := range t.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range t.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return spans
}

// Code points that Unicode 15.1 assigned, for releases of Go with older tables.
var (
	letters151 = span{0x2EBF0, 0x2EE5D} // CJK extension I
	symbols151 = []span{{0x2FFC, 0x2FFF}, {0x31EF, 0x31EF}}
)

var digits = set{{'0', '9'}}

var spaces = sync.OnceValue(func() set { return union(fromTable(unicode.White_Space)...) })

// categories holds the classes that \p names.
var categories = sync.OnceValue(func() map[string]set {
	return map[string]set{
		"L": union(append(fromTable(unicode.L), letters151)...),
		"M": union(fromTable(unicode.M)...),
		"N": union(fromTable(unicode.N)...),
		"P": union(fromTable(unicode.P)...),
		"S": union(append(fromTable(unicode.S), symbols151...)...),
	}
})
