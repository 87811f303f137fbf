package split

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unicode"
	"unicode/utf8"
)

// Pattern is a compiled expression. It is immutable and safe for concurrent use.
type Pattern struct {
	// ascii and bounds give the class of a character. bounds holds the first character
	// of each range of characters with one class, in order, and classes that class.
	ascii   [utf8.RuneSelf]uint8
	bounds  []rune
	classes []uint8
	// moves holds, for each state and class, twice the next state, plus one if a match
	// ends in front of the character. The class after the last one represents the end
	// of the text.
	moves []uint32
	width int // the number of classes, including the end of the text
}

const (
	dead  = 0
	start = 1

	maxStates  = 1 << 13
	maxClasses = 255
)

// Compile compiles an expression. It fails if the expression has a syntax that the package
// comment does not describe, matches the empty text, or needs too many states.
func Compile(expr string) (*Pattern, error) {
	prog, err := parse(expr)
	if err != nil {
		return nil, err
	}
	p := &Pattern{}
	members, err := p.classify(prog)
	if err != nil {
		return nil, fmt.Errorf("%w: %.80q: %w", errSyntax, expr, err)
	}
	if err := p.determinize(prog, members); err != nil {
		return nil, fmt.Errorf("%w: %.80q: %w", errSyntax, expr, err)
	}
	return p, nil
}

// classify finds the classes of characters that no set of the program distinguishes, and
// returns one member of each class.
func (p *Pattern) classify(prog []inst) (members []rune, err error) {
	starts := []rune{0}
	for _, in := range prog {
		for _, r := range in.set {
			starts = append(starts, r.lo)
			if r.hi < unicode.MaxRune {
				starts = append(starts, r.hi+1)
			}
		}
	}
	slices.Sort(starts)
	starts = slices.Compact(starts)
	class := make(map[string]uint8)
	var key []byte
	for _, r := range starts {
		key = key[:0]
		for _, in := range prog {
			if in.op == opClass || in.op == opAssert {
				b := byte(0)
				if in.set.has(r) {
					b = 1
				}
				key = append(key, b)
			}
		}
		c, known := class[string(key)]
		if !known {
			if len(class) == maxClasses {
				return nil, fmt.Errorf("more than %d classes of characters", maxClasses)
			}
			c = uint8(len(class))
			class[string(key)] = c
			members = append(members, r)
		}
		if n := len(p.classes); n == 0 || p.classes[n-1] != c {
			p.bounds = append(p.bounds, r)
			p.classes = append(p.classes, c)
		}
	}
	p.width = len(members) + 1
	for r := range p.ascii {
		p.ascii[r] = p.search(rune(r))
	}
	return members, nil
}

func (p *Pattern) search(r rune) uint8 {
	i, found := slices.BinarySearch(p.bounds, r)
	if !found {
		i--
	}
	return p.classes[i]
}

// threads collects the positions in a program in the order of preference. Its list is a state
// of the automaton.
type threads struct {
	prog    []inst
	seen    []int // for each instruction, the last step that reached it
	step    int
	next    []int
	matched bool
}

// follow runs the thread at pc in front of r, or in front of the end of the text, until it
// consumes r, fails or matches. Threads after a match have no effect.
func (t *threads) follow(pc int, r rune, end bool) {
	if t.matched || t.seen[pc] == t.step {
		return
	}
	t.seen[pc] = t.step
	switch in := t.prog[pc]; in.op {
	case opJump:
		t.follow(in.x, r, end)
	case opFork:
		t.follow(in.x, r, end)
		t.follow(in.y, r, end)
	case opAssert:
		if end && in.end || !end && in.set.has(r) {
			t.follow(pc+1, r, end)
		}
	case opClass:
		if !end && in.set.has(r) {
			t.next = append(t.next, pc+1)
		}
	case opMatch:
		t.matched = true
	}
}

// determinize builds the deterministic automaton breadth first.
func (p *Pattern) determinize(prog []inst, members []rune) error {
	index := map[string]uint32{"": dead}
	lists := [][]int{nil}
	var key []byte
	intern := func(list []int) uint32 {
		key = key[:0]
		for _, pc := range list {
			key = binary.AppendUvarint(key, uint64(pc))
		}
		s, known := index[string(key)]
		if !known {
			s = uint32(len(lists))
			index[string(key)] = s
			lists = append(lists, slices.Clone(list))
		}
		return s
	}
	intern([]int{0})
	t := threads{prog: prog, seen: make([]int, len(prog))}
	for s := 0; s < len(lists); s++ {
		if len(lists) > maxStates {
			return fmt.Errorf("more than %d states", maxStates)
		}
		for c := range p.width {
			end := c == len(members)
			var r rune
			if !end {
				r = members[c]
			}
			t.step++
			t.next, t.matched = t.next[:0], false
			for _, pc := range lists[s] {
				t.follow(pc, r, end)
			}
			move := intern(t.next) << 1
			if t.matched {
				if s == start {
					return fmt.Errorf("matches the empty text")
				}
				move |= 1
			}
			p.moves = append(p.moves, move)
		}
	}
	return nil
}

// Split calls yield with the pieces of text in order: the matches, and the text between them.
// The concatenation of the pieces is text.
func (p *Pattern) Split(text string, yield func(piece string)) {
	var m matcher
	from := 0 // the start of the text without a match
	for pos := 0; pos < len(text); {
		end := m.match(p, text, pos)
		if end < 0 {
			_, size := decode(text, pos)
			pos += size
			continue
		}
		if from < pos {
			yield(text[from:pos])
		}
		yield(text[pos:end])
		pos, from = end, end
	}
	if from < len(text) {
		yield(text[from:])
	}
}

// patience is the number of bytes that a scan runs past the end of its match before it
// records its positions.
const patience = 32

// matcher holds the results of earlier scans of one text.
type matcher struct {
	// futile holds positions, and the states in which no match was found from there on.
	// All positions are before end.
	futile map[place]struct{}
	end    int
}

type place struct {
	pos   int
	state uint32
}

// match returns the end of the match at pos, or -1.
func (m *matcher) match(p *Pattern, text string, pos int) int {
	if m.futile != nil && pos >= m.end {
		m.futile = nil
	}
	state, end, note := uint32(start), -1, pos+patience
	for i := pos; ; {
		if i == len(text) {
			if p.moves[int(state)*p.width+p.width-1]&1 != 0 {
				end = i
			}
			return end
		}
		var class uint8
		size := 1
		if b := text[i]; b < utf8.RuneSelf {
			class = p.ascii[b]
		} else {
			var r rune
			r, size = decode(text, i)
			class = p.search(r)
		}
		move := p.moves[int(state)*p.width+int(class)]
		if move&1 != 0 {
			end, note = i, i+patience
		}
		if state = move >> 1; state == dead {
			return end
		}
		if i += size; i > note {
			at := place{i, state}
			if _, ok := m.futile[at]; ok {
				return end
			}
			if m.futile == nil {
				m.futile = make(map[place]struct{})
			}
			m.futile[at] = struct{}{}
			m.end = max(m.end, i+1)
		}
	}
}

// decode returns the character at i and its length. An encoded surrogate is a character; any
// other invalid byte is U+FFFD.
func decode(text string, i int) (rune, int) {
	r, size := utf8.DecodeRuneInString(text[i:])
	if r == utf8.RuneError && size == 1 && len(text)-i >= 3 &&
		text[i] == 0xED && text[i+1]>>5 == 0xA0>>5 && text[i+2]>>6 == 0x80>>6 {
		return 0xD000 | rune(text[i+1]&0x3F)<<6 | rune(text[i+2]&0x3F), 3
	}
	return r, size
}
