package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/fucina-go/fucina/gguf"
)

// inspection describes a GGUF file, as inspect -o json prints it.
type inspection struct {
	File      jsonText     `json:"file"` // base name
	Version   int          `json:"version"`
	Alignment int64        `json:"alignment"` // bytes
	Metadata  []metadatum  `json:"metadata"`  // in file order
	Tensors   []tensorInfo `json:"tensors"`   // in file order
	Types     []typeTotal  `json:"types"`     // largest first
	Elements  int64        `json:"elements"`
	Bytes     int64        `json:"bytes"` // of tensors, without padding
	Provider  string       `json:"provider"`
	Placement []placement  `json:"placement"` // where operations with the matrices run
}

type metadatum struct {
	Key  jsonText `json:"key"`
	Type string   `json:"type"` // as in ggml, such as "u32"; "arr[str]" for an array
	// Length is the number of elements of an array; Value holds the first of them.
	// Infinities and NaN are strings, because JSON has no numbers for them.
	Length *int `json:"length,omitempty"`
	Value  any  `json:"value"`

	text string // Value as text
}

type tensorInfo struct {
	Name   jsonText `json:"name"`
	DType  string   `json:"dtype"`
	Shape  []int    `json:"shape"`  // outermost first
	Offset int64    `json:"offset"` // bytes from the start of the file
	Size   int64    `json:"size"`   // bytes
}

type typeTotal struct {
	DType    string `json:"dtype"`
	Tensors  int    `json:"tensors"`
	Elements int64  `json:"elements"`
	Bytes    int64  `json:"bytes"`
}

// The parts of metadata that are shown. The limit on runes also keeps one long key from
// widening a column of many rows.
const (
	shownElements = 8
	shownRunes    = 72
)

// inspect is the inspect command.
func (t *tool) inspect(_ context.Context, args []string) (err error) {
	fs := newFlags("inspect", "FILE")
	path := fs.String("m", "", "`file` to show, in place of the operand")
	fs.alias("m", "model")
	var device providerName
	fs.provider(&device, "to plan for")
	out := fs.format()
	fs.note = fmt.Sprintf("Shapes are outermost first, in the reverse of ggml's order. Of each array in the metadata,\nthe first %d values are shown.\n"+bytesNote, shownElements)
	fs.operandFiles = true
	if err := fs.parseSome(t, args, 1); err != nil {
		return err
	}
	switch {
	case fs.NArg() == 0 && *path == "":
		return usagef("inspect: no file: want FILE or -m FILE; see fucina inspect -h")
	case fs.NArg() > 0 && *path != "":
		return usagef("inspect: two files: give FILE or -m FILE")
	case *path == "":
		*path = fs.Arg(0)
	}
	f, err := gguf.Open(*path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	p, err := openPlanner(string(device))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	r := describe(f)
	r.File = jsonText(filepath.Base(*path))
	r.Provider, r.Placement = p.name(), p.place(f)
	if *out == jsonl {
		return t.writeJSON(r)
	}
	w := bufio.NewWriter(t.stdout)
	r.print(w)
	return w.Flush()
}

func describe(f *gguf.File) *inspection {
	r := &inspection{
		Version:   f.Version(),
		Alignment: f.Alignment(),
		Metadata:  []metadatum{},
		Tensors:   []tensorInfo{},
		Types:     []typeTotal{},
	}
	for _, key := range f.Keys() {
		v, _ := f.Value(key)
		r.Metadata = append(r.Metadata, describeValue(key, v))
	}
	types := make(map[string]*typeTotal)
	for _, info := range f.Tensors() {
		name := info.DType.String()
		r.Tensors = append(r.Tensors, tensorInfo{jsonText(info.Name), name, info.Shape, info.Offset, info.Size})
		total := types[name]
		if total == nil {
			total = &typeTotal{DType: name}
			types[name] = total
		}
		elements := info.Elements()
		total.Tensors++
		total.Elements += elements
		total.Bytes += info.Size
		r.Elements += elements
		r.Bytes += info.Size
	}
	for _, total := range types {
		r.Types = append(r.Types, *total)
	}
	slices.SortFunc(r.Types, func(a, b typeTotal) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.DType, b.DType))
	})
	return r
}

func describeValue(key string, v gguf.Value) metadatum {
	m := metadatum{Key: jsonText(key), Type: v.Type().String(), text: v.String()}
	if v.Type() != gguf.TypeArray {
		m.Value = jsonValue(v.Interface())
		return m
	}
	n := v.Len()
	m.Type, m.Length = fmt.Sprintf("arr[%s]", v.Elem()), &n
	elements := reflect.ValueOf(v.Interface())
	shown := make([]any, min(n, shownElements))
	for i := range shown {
		shown[i] = jsonValue(elements.Index(i).Interface())
	}
	m.Value = shown
	return m
}

// jsonValue returns v as a value that JSON can represent.
func jsonValue(v any) any {
	x := 0.0
	switch v := v.(type) {
	case float32:
		x = float64(v)
	case float64:
		x = v
	case string:
		return jsonText(v)
	}
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return fmt.Sprint(x)
	}
	return v
}

// print writes r as text. Flush of the buffered writer out reports the errors.
func (r *inspection) print(out io.Writer) {
	fmt.Fprintf(out, "%s: GGUF version %d, alignment %d\n", visible(string(r.File)), r.Version, r.Alignment)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nmetadata: %d\n", len(r.Metadata))
	for _, m := range r.Metadata {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", shorten(visible(string(m.Key))), m.Type, shorten(visible(m.text)))
	}
	w.Flush()
	fmt.Fprintf(w, "\ntensors: %d\n", len(r.Tensors))
	if len(r.Tensors) > 0 {
		fmt.Fprint(w, "  name\tdtype\tshape\tbytes\toffset\n")
	}
	for _, info := range r.Tensors {
		fmt.Fprintf(w, "  %s\t%s\t%v\t%d\t%d\n", visible(string(info.Name)), info.DType, info.Shape, info.Size, info.Offset)
	}
	w.Flush()
	fmt.Fprintf(w, "\nelements: %d in %d bytes\n", r.Elements, r.Bytes)
	for _, total := range r.Types {
		fmt.Fprintf(w, "  %s\t%d tensors\t%d elements\t%d bytes\n", total.DType, total.Tensors, total.Elements, total.Bytes)
	}
	printPlacement(w, r.Provider, r.Placement)
	w.Flush()
}

func shorten(s string) string {
	if utf8.RuneCountInString(s) <= shownRunes {
		return s
	}
	return string([]rune(s)[:shownRunes-3]) + "..."
}
