package split

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// errSyntax reports an expression that this package does not support.
var errSyntax = errors.New("split: invalid expression")

// maxProgram bounds the number of instructions of an expression with unrolled repetitions.
const maxProgram = 1 << 14

type opcode uint8

const (
	opClass  opcode = iota // consume a character of set and continue at the next instruction
	opAssert               // continue if the next character is in set, or at the end if end is set
	opFork                 // continue at x, and with lower preference at y
	opJump                 // continue at x
	opMatch
)

type inst struct {
	op   opcode
	set  set
	end  bool
	x, y int
}

// compiler emits instructions while it reads an expression. It reads a repeated fragment again
// from its source.
type compiler struct {
	src  string
	pos  int
	prog []inst
}

// parse translates an expression into instructions. Execution begins at index 0.
func parse(expr string) ([]inst, error) {
	c := &compiler{src: expr}
	if err := c.alternatives(); err != nil {
		return nil, err
	}
	if c.pos < len(c.src) {
		return nil, c.errorf("unexpected %q", c.src[c.pos])
	}
	if err := c.emit(inst{op: opMatch}); err != nil {
		return nil, err
	}
	return c.prog, nil
}

func (c *compiler) errorf(format string, args ...any) error {
	return fmt.Errorf("%w: %.80q at byte %d: %s", errSyntax, c.src, c.pos, fmt.Sprintf(format, args...))
}

func (c *compiler) emit(in inst) error {
	if len(c.prog) >= maxProgram {
		return c.errorf("more than %d instructions", maxProgram)
	}
	c.prog = append(c.prog, in)
	return nil
}

func (c *compiler) peek() byte {
	if c.pos < len(c.src) {
		return c.src[c.pos]
	}
	return 0
}

func (c *compiler) eat(prefix string) bool {
	if strings.HasPrefix(c.src[c.pos:], prefix) {
		c.pos += len(prefix)
		return true
	}
	return false
}

// insert makes room for an instruction at index i, and adjusts the jumps to later
// instructions.
func (c *compiler) insert(i int, in inst) error {
	if err := c.emit(inst{}); err != nil {
		return err
	}
	copy(c.prog[i+1:], c.prog[i:])
	for j := i + 1; j < len(c.prog); j++ {
		if c.prog[j].op == opFork || c.prog[j].op == opJump {
			if c.prog[j].x >= i {
				c.prog[j].x++
			}
			if c.prog[j].y >= i {
				c.prog[j].y++
			}
		}
	}
	c.prog[i] = in
	return nil
}

func (c *compiler) alternatives() error {
	start := len(c.prog)
	var jumps []int
	for {
		if err := c.sequence(); err != nil {
			return err
		}
		if c.peek() != '|' || c.pos >= len(c.src) {
			break
		}
		c.pos++
		if err := c.insert(start, inst{op: opFork, x: start + 1}); err != nil {
			return err
		}
		jumps = append(jumps, len(c.prog))
		if err := c.emit(inst{op: opJump}); err != nil {
			return err
		}
		c.prog[start].y = len(c.prog)
		start = len(c.prog)
	}
	for _, j := range jumps {
		c.prog[j].x = len(c.prog)
	}
	return nil
}

func (c *compiler) sequence() error {
	for c.pos < len(c.src) && c.peek() != '|' && c.peek() != ')' {
		if err := c.repeated(); err != nil {
			return err
		}
	}
	return nil
}

// repeated reads an atom and its quantifier.
func (c *compiler) repeated() error {
	from, at := c.pos, len(c.prog)
	if err := c.atom(); err != nil {
		return err
	}
	switch {
	case c.eat("*"):
		if err := c.insert(at, inst{op: opFork, x: at + 1}); err != nil {
			return err
		}
		if err := c.emit(inst{op: opJump, x: at}); err != nil {
			return err
		}
		c.prog[at].y = len(c.prog)
	case c.eat("+"):
		return c.emit(inst{op: opFork, x: at, y: len(c.prog) + 1})
	case c.eat("?"):
		return c.optional(at)
	case c.peek() == '{' && c.pos < len(c.src):
		return c.counted(from)
	}
	return nil
}

// optional makes the instructions from index at on optional. Executing them is preferred.
func (c *compiler) optional(at int) error {
	if err := c.insert(at, inst{op: opFork, x: at + 1}); err != nil {
		return err
	}
	c.prog[at].y = len(c.prog)
	return nil
}

// counted reads {n} or {n,m} after an atom that begins at position from and was read once. It
// reads the atom again for each further repetition.
func (c *compiler) counted(from int) error {
	atomEnd := c.pos
	body, rest, ok := strings.Cut(c.src[c.pos+1:], "}")
	low, high, two := strings.Cut(body, ",")
	lo, err := strconv.Atoi(low)
	hi := lo
	if err == nil && two {
		hi, err = strconv.Atoi(high)
	}
	if !ok || err != nil || lo < 1 || hi < lo {
		return c.errorf("repetition %.20q, want {n} or {n,m} with 1 <= n <= m", c.src[c.pos:])
	}
	end := len(c.src) - len(rest)
	whole := c.src
	c.src = whole[:atomEnd] // the atom includes its own quantifiers
	again := func() error {
		c.pos = from
		return c.atom()
	}
	for range lo - 1 {
		if err := again(); err != nil {
			return err
		}
	}
	// x{1,3} is x(x(x)?)?
	var starts []int
	for range hi - lo {
		starts = append(starts, len(c.prog))
		if err := c.emit(inst{op: opFork, x: len(c.prog) + 1}); err != nil {
			return err
		}
		if err := again(); err != nil {
			return err
		}
	}
	for _, s := range starts {
		c.prog[s].y = len(c.prog)
	}
	c.src, c.pos = whole, end
	return nil
}

func (c *compiler) atom() error {
	switch {
	case c.eat("(?="), c.eat("(?!"):
		negative := c.src[c.pos-1] == '!'
		s, err := c.class()
		if err != nil {
			return err
		}
		if !c.eat(")") {
			return c.errorf("lookahead over more than one class")
		}
		if negative {
			return c.emit(inst{op: opAssert, set: s.not(), end: true})
		}
		return c.emit(inst{op: opAssert, set: s})
	case c.eat("(?:"), c.eat("("):
		if err := c.alternatives(); err != nil {
			return err
		}
		if !c.eat(")") {
			return c.errorf("missing )")
		}
		return nil
	case c.eat("$"):
		return c.emit(inst{op: opAssert, end: true})
	}
	s, err := c.class()
	if err != nil {
		return err
	}
	return c.emit(inst{op: opClass, set: s})
}

// class reads one character, escape or bracketed class.
func (c *compiler) class() (set, error) {
	if c.pos >= len(c.src) {
		return nil, c.errorf("unexpected end")
	}
	if c.eat("[") {
		return c.bracket()
	}
	if strings.IndexByte("^.*+?{}()|]", c.peek()) >= 0 {
		return nil, c.errorf("unexpected %q", c.peek())
	}
	s, _, err := c.element()
	return s, err
}

func (c *compiler) bracket() (set, error) {
	negative := c.eat("^")
	var spans []span
	for !c.eat("]") {
		s, single, err := c.element()
		if err != nil {
			return nil, err
		}
		if single && c.peek() == '-' && !strings.HasPrefix(c.src[c.pos:], "-]") {
			c.pos++
			to, single, err := c.element()
			if err != nil {
				return nil, err
			}
			if !single || to[0].lo < s[0].lo {
				return nil, c.errorf("invalid range")
			}
			s = set{{s[0].lo, to[0].lo}}
		}
		spans = append(spans, s...)
	}
	if s := union(spans...); !negative {
		return s, nil
	} else {
		return s.not(), nil
	}
}

// element reads a character or an escape. single says that the result is one character.
func (c *compiler) element() (s set, single bool, err error) {
	r, size := utf8.DecodeRuneInString(c.src[c.pos:])
	if size == 0 || r == utf8.RuneError {
		return nil, false, c.errorf("want a character")
	}
	c.pos += size
	if r != '\\' {
		return set{{r, r}}, true, nil
	}
	if c.pos >= len(c.src) {
		return nil, false, c.errorf("unexpected end")
	}
	b := c.src[c.pos]
	c.pos++
	switch b {
	case 's':
		return spaces(), false, nil
	case 'S':
		return spaces().not(), false, nil
	case 'd':
		return digits, false, nil
	case 'r':
		return set{{'\r', '\r'}}, true, nil
	case 'n':
		return set{{'\n', '\n'}}, true, nil
	case 't':
		return set{{'\t', '\t'}}, true, nil
	case 'p':
		name, _, ok := strings.Cut(c.src[c.pos:], "}")
		if s, known := categories()[strings.TrimPrefix(name, "{")]; ok && known && name[0] == '{' {
			c.pos += len(name) + 1
			return s, false, nil
		}
		return nil, false, c.errorf("unknown class \\p%.10s", c.src[c.pos:])
	}
	if r := rune(b); r < utf8.RuneSelf && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
		return set{{r, r}}, true, nil
	}
	return nil, false, c.errorf("unknown escape \\%c", b)
}
