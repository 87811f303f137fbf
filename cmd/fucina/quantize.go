package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/fucina-go/fucina/llm/quantize"
)

// quantization is the result of the quantize command, as -o json prints it.
type quantization struct {
	Input    jsonText          `json:"input"`  // base name
	Output   jsonText          `json:"output"` // base name
	Type     string            `json:"type"`
	Pure     bool              `json:"pure"`
	Tensors  []quantizedTensor `json:"tensors"` // in the order of the output
	Elements int64             `json:"elements"`
	BytesIn  int64             `json:"bytes_in"` // of tensors, without padding
	BytesOut int64             `json:"bytes_out"`
	// BitsPerWeight is BytesOut over Elements.
	BitsPerWeight float64 `json:"bits_per_weight"`
}

type quantizedTensor struct {
	Name     jsonText `json:"name"`
	Shape    []int    `json:"shape"` // outermost first
	From     string   `json:"from"`
	To       string   `json:"to"`
	BytesIn  int64    `json:"bytes_in"`
	BytesOut int64    `json:"bytes_out"`
	// Fallback says that the length of the rows does not fit the format that the type gives
	// the tensor.
	Fallback bool `json:"fallback"`
}

// quantize is the quantize command.
func (t *tool) quantize(ctx context.Context, args []string) error {
	fs := newFlags("quantize", "IN.gguf OUT.gguf TYPE")
	var types []string
	for _, typ := range quantize.FileTypes() {
		types = append(types, typ.String())
	}
	fs.note = "TYPE is one of the following, in upper or lower case:" + columns(types)
	pure := fs.Bool("pure", false, "give every matrix the same format instead of a mixture")
	imatrix := fs.String("imatrix", "", "`file` with importance data of llama.cpp, in GGUF or the older format")
	requantize := fs.Bool("allow-requantize", false, "accept matrices that are already quantized, which loses more precision")
	fs.operandFiles, fs.operandWords = true, types
	threads := fs.size("t", 0, 0, maxThreads, "`threads` to encode with; 0 and -1 mean one per processor, which is the default")
	fs.alias("t", "threads")
	verbose := fs.Bool("v", false, "print a line for each tensor on standard error; a terminal gets them anyway")
	out := fs.format()
	if err := fs.parse(t, args, 3); err != nil {
		return err
	}
	typ, err := quantize.ParseFileType(fs.Arg(2))
	if err != nil {
		return usagef("%v%s", err, didYouMean(fs.Arg(2), types))
	}
	opt := quantize.Options{
		Type:            typ,
		Pure:            *pure,
		AllowRequantize: *requantize,
		Threads:         max(*threads, 0),
	}
	if *imatrix != "" {
		if opt.Importance, err = quantize.ReadImportance(*imatrix); err != nil {
			return err
		}
	}
	if t.tty || *verbose {
		opt.Progress = func(i, n int, c quantize.Choice) { t.tellTensor(i, n, c, opt.Importance != nil) }
	}
	list, err := quantize.File(ctx, fs.Arg(0), fs.Arg(1), opt)
	if err != nil {
		return err
	}
	r := summarize(list)
	r.Input, r.Output = jsonText(filepath.Base(fs.Arg(0))), jsonText(filepath.Base(fs.Arg(1)))
	r.Type, r.Pure = typ.String(), *pure
	if *out == jsonl {
		return t.writeJSON(r)
	}
	return r.print(t)
}

// tellTensor prints a line about the next tensor. calibrated says that there is importance
// data.
func (t *tool) tellTensor(i, n int, c quantize.Choice, calibrated bool) {
	from, to := c.Tensor.DType.String(), "kept"
	if c.Converts() {
		to = fmt.Sprintf("-> %s, %d bytes", c.To, c.Size)
		if c.Fallback {
			to += " (rows do not fit the type)"
		}
		if calibrated && !c.Weighted {
			to += " (no importance data)"
		}
	}
	fmt.Fprintf(t.stderr, "[%*d/%d] %s %v %s, %d bytes %s\n", len(fmt.Sprint(n)), i+1, n,
		visible(c.Tensor.Name), c.Tensor.Shape, from, c.Tensor.Size, to)
}

func summarize(list []quantize.Choice) *quantization {
	r := &quantization{Tensors: []quantizedTensor{}}
	for _, c := range list {
		r.Elements += c.Tensor.Elements()
		r.BytesIn += c.Tensor.Size
		r.BytesOut += c.Size
		r.Tensors = append(r.Tensors, quantizedTensor{
			Name: jsonText(c.Tensor.Name), Shape: c.Tensor.Shape,
			From: c.Tensor.DType.String(), To: c.To.String(),
			BytesIn: c.Tensor.Size, BytesOut: c.Size, Fallback: c.Fallback,
		})
	}
	if r.Elements > 0 {
		r.BitsPerWeight = 8 * float64(r.BytesOut) / float64(r.Elements)
	}
	return r
}

// print writes r as text.
func (r *quantization) print(t *tool) error {
	converted, fallbacks := 0, 0
	for _, q := range r.Tensors {
		if q.From != q.To {
			converted++
		}
		if q.Fallback {
			fallbacks++
		}
	}
	note := ""
	if fallbacks > 0 {
		note = fmt.Sprintf("; %d have rows that do not fit the type and use another format", fallbacks)
	}
	_, err := fmt.Fprintf(t.stdout, "%s: %s, %d of %d tensors converted, %d -> %d bytes, %.2f bits per weight%s\n",
		visible(string(r.Output)), r.Type, converted, len(r.Tensors), r.BytesIn, r.BytesOut, r.BitsPerWeight, note)
	return err
}
