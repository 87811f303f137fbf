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

// Metadata keys that describe the result, and the constant values among them.
const (
	versionKey  = "general.quantization_version"
	fileTypeKey = "general.file_type"

	quantizationVersion = 2 // GGML_QNT_VERSION
)

// Options are the options of Plan, Write and File.
type Options struct {
	Type FileType // the recipe; the zero value is F32, as in files
	// Pure gives every matrix the format of Type, unless the rows do not fit it.
	Pure bool
	// AllowRequantize permits matrices that are already in a block format. Their loss of
	// precision adds to that of the new format.
	AllowRequantize bool
	// Importance weighs the errors of encoders. nil means no importance data.
	Importance *Importance
	// Threads is the number of goroutines that encode; 0 means one per processor. Each
	// needs at most 9/8 MiB, or more if rows have over 2^15 elements.
	Threads int
	// Progress, if set, is called before each of n tensors is written, with its index
	// from 0, on the goroutine of the caller.
	Progress func(i, n int, c Choice)
}

// File quantizes the model at in to the file at out. in is one file, or any part of a
// split model. [gguf.WriteFile] writes the result: out always holds either the old file or the
// complete new file, and after an error no temporary file is left. As in llama.cpp's tool, out
// must not be the input or a part of it, under any name: see [ErrOutput]. File returns the
// choice for each tensor.
//
// File checks ctx every few milliseconds while it encodes, decodes, checks and writes, and
// fails with ctx's error when ctx is done. It does not interrupt the system's final write to
// the disk.
func File(ctx context.Context, in, out string, opt Options) (_ []Choice, err error) {
	f, err := gguf.Open(in)
	if err != nil {
		return nil, fmt.Errorf("quantize: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if f.OpenedFrom(out) {
		return nil, fmt.Errorf("%w: %s is the input or a part of it", ErrOutput, out)
	}
	// If the plan fails, nothing is created in the directory of out.
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

// Write quantizes f, as [File] does, and declares and writes the result with w. It does not
// close w. Its errors are those of [Plan], of ctx and of w, and
//
//   - [ErrTensor] for values that a format cannot hold, and for values of any tensor that are
//     not finite;
//   - [gguf.ErrFileChanged] if the size of f's file changes during the call;
//   - [gguf.ErrWrite] if tensors that are copied and tensors that are converted have different
//     formats of GGUF's type 42.
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
			// The encoder's error already names the tensor.
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

// setMetadata copies f's metadata and adds the keys that describe the result, in llama.cpp's
// order: keys that are set again move to the end.
func setMetadata(w *gguf.Writer, f *gguf.File, opt *Options) error {
	err := w.SetAll(&f.Metadata)
	if err == nil {
		err = w.RemoveSplit() // the result is one file
	}
	// After an error, which may be a final error of w, no key is set.
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

// override returns the part of a string that llama.cpp stores. Its tool passes these keys as
// llama_model_kv_override, which holds 127 bytes and ends strings with a NUL. As there, the
// cut may be within a character.
func override(s string) string {
	s, _, _ = strings.Cut(s, "\x00")
	return s[:min(len(s), 127)]
}
