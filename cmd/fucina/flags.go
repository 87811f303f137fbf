package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// usageError is an error in the command line.
type usageError struct{ msg string }

func (e usageError) Error() string { return e.msg }

func usagef(format string, args ...any) error {
	return usageError{fmt.Sprintf(format, args...)}
}

// flags is the flag set of a subcommand.
type flags struct {
	*flag.FlagSet
	synopsis string            // the part of the usage line after [FLAGS]
	note     string            // the last paragraph of the help
	main     map[string]string // the main name of each alias
	ignored  []string          // parts of the command line that are ignored and are not inert flags

	// For completion: an operand may be a file, one of these words, or either.
	operandFiles bool
	operandWords []string
}

func newFlags(name, synopsis string) *flags {
	return &flags{FlagSet: flag.NewFlagSet(name, flag.ContinueOnError), synopsis: synopsis, main: make(map[string]string)}
}

// alias gives the flag called name further names, which the help shows beside it.
func (f *flags) alias(name string, others ...string) {
	fl := f.Lookup(name)
	for _, other := range others {
		f.Var(fl.Value, other, fl.Usage)
		f.main[other] = name
	}
}

// columns returns words as indented lines, each line with a newline in front.
func columns(words []string) string {
	const width = 80
	var b strings.Builder
	line := width
	for _, w := range words {
		if line += 1 + len(w); line > width {
			b.WriteString("\n ")
			line = 2 + len(w)
		}
		b.WriteString(" " + w)
	}
	return b.String()
}

// given reports whether the command line has the flag called name, by any of its names.
func (f *flags) given(name string) bool {
	given := false
	f.Visit(func(fl *flag.Flag) { given = given || fl.Name == name || f.main[fl.Name] == name })
	return given
}

// parse reads args, which are flags and operands in any order. It fails unless there is the
// given number of operands, which Args then returns.
func (f *flags) parse(t *tool, args []string, operands int) error {
	if err := f.parseSome(t, args, operands); err != nil {
		return err
	}
	if f.NArg() < operands {
		return usagef("%s: too few operands, want %s; see fucina %s -h", f.Name(), f.synopsis, f.Name())
	}
	return nil
}

// parseSome is like parse, but operands may be missing.
func (f *flags) parseSome(t *tool, args []string, operands int) error {
	if t.described != nil {
		t.described(f)
		return flag.ErrHelp
	}
	rest, err := f.read(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		if werr := f.help(t.stdout, t.summary); werr != nil {
			return werr
		}
		return err
	case err != nil:
		return err
	case len(rest) > operands:
		return usagef("%s: unexpected operand %q; see fucina %s -h", f.Name(), rest[operands], f.Name())
	}
	return f.Parse(append([]string{"--"}, rest...))
}

// read sets the flags of args, which may come before, between and after operands, and
// returns the operands. All arguments after "--" are operands.
func (f *flags) read(args []string) (operands []string, err error) {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			return append(operands, args...), nil
		case len(arg) < 2 || arg[0] != '-':
			operands = append(operands, arg)
		default:
			if args, err = f.readFlag(arg, args); err != nil {
				return nil, err
			}
		}
	}
	return operands, nil
}

// optional is the value of a flag that may be given alone or followed by one of a few words.
type optional interface{ optional() []string }

// readFlag sets the flag arg, whose value may be the first of args, and returns the
// rest of args.
func (f *flags) readFlag(arg string, args []string) ([]string, error) {
	dash := arg[:1]
	if strings.HasPrefix(arg, "--") {
		dash = arg[:2]
	}
	name, value, given := strings.Cut(arg[len(dash):], "=")
	fl := f.Lookup(name)
	if fl == nil && dash == "--" { // llama.cpp also accepts --ctx_size
		fl = f.Lookup(strings.ReplaceAll(name, "_", "-"))
	}
	if fl == nil {
		return args, f.unknown(dash, name)
	}
	if !given {
		words, mayHave := fl.Value.(optional)
		switch {
		case mayHave && len(args) > 0 && slices.Contains(words.optional(), args[0]),
			!standsAlone(fl.Value) && len(args) > 0:
			value, args = args[0], args[1:]
		case standsAlone(fl.Value):
			value = "true"
		default:
			return args, usagef("%s: flag needs an argument: %s; see fucina %s -h", f.Name(), arg, f.Name())
		}
	}
	if err := f.Set(fl.Name, value); err != nil {
		if standsAlone(fl.Value) {
			err = errors.New("want true or false")
		}
		return args, usagef("%s: invalid value %q for flag -%s: %v", f.Name(), value, fl.Name, err)
	}
	return args, nil
}

// standsAlone reports whether v is the value of a flag that needs no value after it.
func standsAlone(v flag.Value) bool {
	b, ok := v.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// unknown returns the error of a flag that does not exist, or flag.ErrHelp for -h and -help.
func (f *flags) unknown(dash, name string) error {
	if name == "h" || name == "help" {
		return flag.ErrHelp
	}
	var names []string
	f.VisitAll(func(fl *flag.Flag) { names = append(names, fl.Name) })
	hint := "; see fucina " + f.Name() + " -h"
	if near := nearest(strings.ReplaceAll(name, "_", "-"), names); near != "" {
		hint = fmt.Sprintf("; did you mean %s%s?", dash, near)
	}
	return usagef("%s: unknown flag %s%s%s", f.Name(), dash, name, hint)
}

func (f *flags) help(w io.Writer, summary string) error {
	var b strings.Builder
	fmt.Fprintln(&b, strings.TrimRight("usage: fucina "+f.Name()+" [FLAGS] "+f.synopsis, " "))
	fmt.Fprintf(&b, "\n%s\n\n", summary)
	others := make(map[string]string)
	f.VisitAll(func(fl *flag.Flag) {
		if name, ok := f.main[fl.Name]; ok {
			others[name] += ", -" + fl.Name
		}
	})
	shown := flag.NewFlagSet(f.Name(), flag.ContinueOnError)
	shown.SetOutput(&b)
	f.VisitAll(func(fl *flag.Flag) {
		_, isInert := fl.Value.(*inert)
		if _, ok := f.main[fl.Name]; !ok && !isInert {
			names := fl.Name + others[fl.Name]
			shown.Var(fl.Value, names, fl.Usage)
			shown.Lookup(names).DefValue = fl.DefValue
		}
	})
	shown.PrintDefaults()
	b.WriteString(f.inertHelp())
	if f.note != "" {
		fmt.Fprintf(&b, "\n%s\n", f.note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// intValue is the value of an integer flag with a range. If back is set, -1 means def.
type intValue struct {
	p              *int
	def, low, high int
	back           bool
}

func (v intValue) String() string {
	if v.p == nil || *v.p == 0 || *v.p < v.low {
		return "" // the help shows no default
	}
	return strconv.Itoa(*v.p)
}

func (v intValue) Set(s string) error {
	n, err := strconv.Atoi(s)
	switch {
	case err == nil && v.back && n == -1:
		*v.p = v.def
	case err != nil || n < v.low || n > v.high:
		or := ""
		if v.back {
			or = ", or -1 for the default"
		}
		return fmt.Errorf("want an integer from %d to %d%s", v.low, v.high, or)
	default:
		*v.p = n
	}
	return nil
}

func (f *flags) int(v intValue, name, usage string) *int {
	v.p = new(int)
	*v.p = v.def
	f.Var(v, name, usage)
	return v.p
}

// intRange defines an integer flag that takes values from low to high.
func (f *flags) intRange(name string, def, low, high int, usage string) *int {
	return f.int(intValue{def: def, low: low, high: high}, name, usage)
}

// size defines a flag for a count or a size, which takes values from low to high, and -1 for
// the default. The help does not show a default below low.
func (f *flags) size(name string, def, low, high int, usage string) *int {
	return f.int(intValue{def: def, low: low, high: high, back: true}, name, usage)
}

// byteSize is a flag for a number of bytes; 0 is the default, and so is -1 on the command
// line. Else the number is at least low, which is a multiple of 1 MiB.
type byteSize struct{ n, low int64 }

func (v *byteSize) String() string { return "" }

// Set reads digits with at most one of the units K, M, G and T, which count in 1024.
func (v *byteSize) Set(s string) error {
	const units = "KMGT"
	digits, unit := s, int64(1)
	if last := len(s) - 1; last > 0 {
		if i := strings.IndexByte(units, strings.ToUpper(s)[last]); i >= 0 {
			digits, unit = s[:last], 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case err == nil && n == -1 && unit == 1:
		v.n = 0
	case err != nil || n < 0 || n > math.MaxInt64/unit || n > 0 && n*unit < v.low:
		return fmt.Errorf("want at least %dM, in bytes or in K, M, G or T such as 8G, or 0 or -1 for the default", v.low>>20)
	default:
		v.n = n * unit
	}
	return nil
}

// negation is the value of a flag that turns another flag off.
type negation struct{ p *bool }

func (v negation) String() string { return "" }

func (v negation) IsBoolFlag() bool { return true }

func (v negation) Set(s string) error {
	off, err := strconv.ParseBool(s)
	if err == nil {
		*v.p = !off
	}
	return err
}

// not defines a flag that turns p off.
func (f *flags) not(p *bool, name, usage string) { f.Var(negation{p}, name, usage) }

// listed is the value of a flag that is one of a few words, which completion offers.
type listed interface{ words() []string }

// oneOf returns nil if s is one of words, and otherwise an error that lists words.
func oneOf(s string, words []string) error {
	if slices.Contains(words, s) {
		return nil
	}
	last := len(words) - 1
	return errors.New("want " + strings.Join(words[:last], ", ") + " or " + words[last] + didYouMean(s, words))
}

// temperature is the value of a flag that takes a finite number.
type temperature float32

func (v *temperature) String() string { return strconv.FormatFloat(float64(*v), 'g', -1, 32) }

func (v *temperature) Set(s string) error {
	x, err := strconv.ParseFloat(s, 32)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return errors.New("want a finite number")
	}
	*v = temperature(x)
	return nil
}

// format is the format of results.
type format string

const (
	text  format = "text"
	jsonl format = "json"
)

func (v *format) String() string { return string(*v) }

func (v *format) words() []string { return []string{string(text), string(jsonl)} }

func (v *format) Set(s string) error {
	if err := oneOf(s, v.words()); err != nil {
		return err
	}
	*v = format(s)
	return nil
}

func (f *flags) format() *format {
	v := text
	f.Var(&v, "o", "`format` of the result: text or json")
	return &v
}
