package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// usageError is a fault of the command line.
type usageError struct{ msg string }

func (e usageError) Error() string { return e.msg }

func usagef(format string, args ...any) error {
	return usageError{fmt.Sprintf(format, args...)}
}

// flags is the flag set of a subcommand.
type flags struct {
	*flag.FlagSet
	synopsis string            // what the usage line shows after [FLAGS]
	note     string            // what the help ends with
	main     map[string]string // from further names of flags to those that they stand for
}

func newFlags(name, synopsis string) *flags {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	return &flags{FlagSet: fs, synopsis: synopsis, main: make(map[string]string)}
}

// alias gives the flag name further names, which the help shows beside it.
func (f *flags) alias(name string, others ...string) {
	fl := f.Lookup(name)
	for _, other := range others {
		f.Var(fl.Value, other, fl.Usage)
		f.main[other] = name
	}
}

// columns returns words as lines of a note.
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

// given reports whether the command line has the flag name, by whichever name.
func (f *flags) given(name string) bool {
	given := false
	f.Visit(func(fl *flag.Flag) { given = given || fl.Name == name || f.main[fl.Name] == name })
	return given
}

// parse reads args, flags and operands in any order, and wants the given number
// of operands, which Args then returns.
func (f *flags) parse(t *tool, args []string, operands int) error {
	if err := f.parseSome(t, args, operands); err != nil {
		return err
	}
	if f.NArg() < operands {
		return usagef("%s: too few operands, want %s; see fucina %s -h", f.Name(), f.synopsis, f.Name())
	}
	return nil
}

// parseSome is parse where operands may be missing.
func (f *flags) parseSome(t *tool, args []string, operands int) error {
	var rest []string
	for {
		switch err := f.Parse(args); {
		case errors.Is(err, flag.ErrHelp):
			if werr := f.help(t.stdout, t.summary); werr != nil {
				return werr
			}
			return err
		case err != nil:
			return usagef("%s: %v; see fucina %s -h", f.Name(), err, f.Name())
		}
		if f.NArg() == 0 {
			break
		}
		// All that follows "--" are operands.
		if i := len(args) - f.NArg(); i > 0 && args[i-1] == "--" {
			rest = append(rest, f.Args()...)
			break
		}
		rest = append(rest, f.Arg(0))
		args = f.Args()[1:]
	}
	if len(rest) > operands {
		return usagef("%s: unexpected operand %q; see fucina %s -h", f.Name(), rest[operands], f.Name())
	}
	return f.Parse(append([]string{"--"}, rest...))
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
		if _, ok := f.main[fl.Name]; !ok {
			names := fl.Name + others[fl.Name]
			shown.Var(fl.Value, names, fl.Usage)
			shown.Lookup(names).DefValue = fl.DefValue
		}
	})
	shown.PrintDefaults()
	if f.note != "" {
		fmt.Fprintf(&b, "\n%s\n", f.note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// intValue is an integer flag that only takes values of a range.
type intValue struct {
	p        *int
	min, max int
}

func (v intValue) String() string {
	if v.p == nil || *v.p < v.min {
		return "" // no default worth showing
	}
	return strconv.Itoa(*v.p)
}

func (v intValue) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < v.min || n > v.max {
		return fmt.Errorf("want an integer from %d to %d", v.min, v.max)
	}
	*v.p = n
	return nil
}

// intRange defines an integer flag that takes values from low to high. A default
// below low says that the flag was not given.
func (f *flags) intRange(name string, def, low, high int, usage string) *int {
	p := new(int)
	*p = def
	f.Var(intValue{p, low, high}, name, usage)
	return p
}

// temperature is a finite number.
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

// format is how results are written.
type format string

const (
	text  format = "text"
	jsonl format = "json"
)

func (v *format) String() string { return string(*v) }

func (v *format) Set(s string) error {
	switch format(s) {
	case text, jsonl:
		*v = format(s)
		return nil
	}
	return errors.New("want text or json")
}

func (f *flags) format() *format {
	v := text
	f.Var(&v, "o", "`format` of the result: text or json")
	return &v
}
