package quantize

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/fucina-go/fucina/gguf"
)

// Metadata keys that describe the result, and their values that do not depend on it.
const (
	versionKey  = "general.quantization_version"
	fileTypeKey = "general.file_type"

	quantizationVersion = 2 // GGML_QNT_VERSION
)

// Options say how to quantize.
type Options struct {
	Type FileType // to be set: the zero value is F32, as in files
	// Pure gives every matrix the one format of Type, save where rows do not fit
	// it.
	Pure bool
	// AllowRequantize permits matrices that are in a block format already, and whose
	// loss adds to that of the new one.
	AllowRequantize bool
	// Importance weighs errors; nil is none.
	Importance *Importance
	// Threads is how many rows are encoded at once; 0 is one per processor. Each
	// takes 9/8 MiB at most, more only for rows of over 2^15 elements.
	Threads int
	// Progress, if set, is called before each of n tensors is written, with its
	// number from 0, on the goroutine that called.
	Progress func(i, n int, c Choice)
}

// File quantizes the model at in, one file or the parts of a split one, to the file
// at out. [gguf.WriteFile] writes the result: out holds the old file or the whole new one,
// and after an error no temporary file is left. As with llama.cpp's tool, out must not be
// the input, under this or another name, nor a part of it: see [ErrOutput]. File returns
// what was done to each tensor.
//
// File looks at ctx every few milliseconds while it encodes, decodes, checks and writes,
// also within a row, and ends with ctx's error when ctx is done. It does not interrupt
// the system's final write to the disk.
func File(ctx context.Context, in, out string, opt Options) (_ []Choice, err error) {
	f, err := gguf.Open(in)
	if err != nil {
		return nil, fmt.Errorf("quantize: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if f.OpenedFrom(out) {
		return nil, fmt.Errorf("%w: %s is the input or a part of it", ErrOutput, out)
	}
	// A plan that fails must not touch the directory of out.
	list, err := Plan(f, opt)
	if err != nil {
		return nil, err
	}
	err = gguf.WriteFile(out, func(w *gguf.Writer) error { return write(ctx, w, f, list, &opt) })
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Write declares and writes f, quantized, with w, which it does not close. See [File].
// Errors are those of [Plan], ctx's, those of w, and
//
//   - [ErrTensor] for values that a format cannot hold, and for those of any tensor that
//     are not finite;
//   - [gguf.ErrFileChanged] if the size of f's file changes meanwhile;
//   - [gguf.ErrWrite] if tensors that are copied and tensors that are converted are in
//     different formats of GGUF's type 42.
func Write(ctx context.Context, w *gguf.Writer, f *gguf.File, opt Options) error {
	list, err := Plan(f, opt)
	if err != nil {
		return err
	}
	return write(ctx, w, f, list, &opt)
}

func write(ctx context.Context, w *gguf.Writer, f *gguf.File, list []Choice, opt *Options) error {
	if err := setMetadata(w, f, opt); err != nil {
		return err
	}
	for _, c := range list {
		t := c.Tensor
		t.DType = c.To
		if err := w.AddTensor(t); err != nil {
			return err
		}
	}
	threads := opt.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	e := &encoder{ctx: ctx, threads: threads}
	for i, c := range list {
		if opt.Progress != nil {
			opt.Progress(i, len(list), c)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		var weights []float32
		if c.Converts() {
			var err error
			if weights, err = opt.Importance.of(c.Tensor); err != nil {
				return err
			}
		}
		err := f.View(c.Tensor, func(data []byte) error {
			if err := e.start(c, data, weights); err != nil {
				return err
			}
			// The encoder's error names the tensor by itself.
			if err := w.CopyTensor(c.Tensor.Name, e); err != nil {
				return cmp.Or(e.err, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		f.DropPages(c.Tensor)
	}
	return ctx.Err()
}

// setMetadata copies f's metadata and says what was done, in llama.cpp's order: keys
// that are set anew go to the end.
func setMetadata(w *gguf.Writer, f *gguf.File, opt *Options) error {
	err := w.SetAll(&f.Metadata)
	if err == nil {
		err = w.RemoveSplit() // the result is one file
	}
	// After an error, which may be the output's and final, nothing is put.
	put := func(key string, v gguf.Value) {
		if err == nil {
			err = w.Remove(key)
		}
		if err == nil {
			err = w.Set(key, v)
		}
	}
	put(versionKey, gguf.NewValue(uint32(quantizationVersion)))
	put(fileTypeKey, gguf.NewValue(uint32(opt.Type)))
	if m := opt.Importance; m != nil {
		if m.file != "" {
			put("quantize.imatrix.file", gguf.NewValue(override(m.file)))
		}
		if len(m.datasets) > 0 {
			put("quantize.imatrix.dataset", gguf.NewValue(override(m.datasets[0])))
		}
		put("quantize.imatrix.entries_count", gguf.NewValue(uint32(m.Len())))
		if m.chunks > 0 {
			put("quantize.imatrix.chunks_count", gguf.NewValue(uint32(m.chunks)))
		}
	}
	return err
}

// override returns what llama.cpp stores of a string: its tool passes these keys as
// llama_model_kv_override, which has room for 127 bytes and ends strings with a NUL.
// A character may be cut in the middle there, and so it is here.
func override(s string) string {
	s, _, _ = strings.Cut(s, "\x00")
	return s[:min(len(s), 127)]
}
