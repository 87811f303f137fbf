package gguf_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/tests/ggufbuild"
)

// sameModel checks that got has the metadata, tensors and bytes of want. The version and
// the offsets may differ.
func sameModel(t *testing.T, got, want *gguf.File) {
	t.Helper()
	if !slices.Equal(got.Keys(), want.Keys()) {
		t.Fatalf("keys %q, want %q", got.Keys(), want.Keys())
	}
	for key, v := range want.All() {
		if g, _ := got.Value(key); g != v {
			t.Fatalf("key %q is %v, want %v", key, g, v)
		}
	}
	a, b := got.Tensors(), want.Tensors()
	if len(a) != len(b) {
		t.Fatalf("%d tensors, want %d", len(a), len(b))
	}
	for i := range a {
		if a[i].Name != b[i].Name || a[i].DType != b[i].DType || !slices.Equal(a[i].Shape, b[i].Shape) {
			t.Fatalf("tensor %d is %v, want %v", i, a[i], b[i])
		}
		if !bytes.Equal(got.Data(a[i]), want.Data(b[i])) {
			t.Fatalf("tensor %q has other bytes", a[i].Name)
		}
	}
}

// Write reproduces a file of version 3 byte for byte: unusual but valid files, files
// without padding at the end, and files of llama.cpp.
func TestWriteIdentical(t *testing.T) {
	images := allFiles(t)
	images["sample"] = sample()
	images["align 1"], images["align 64"] = countedTensors(1).Bytes(), countedTensors(64).Bytes()
	images["no padding at the end"] = sample()[:len(sample())-10]
	var vocab ggufbuild.Builder
	vocab.SetString("general.architecture", "llama")
	images["no tensors, padded"] = append(vocab.Bytes(), make([]byte, 32-len(vocab.Bytes())%32)...)
	paths, err := filepath.Glob(malformedDir + "/ok_*.gguf")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		if name := filepath.Base(p); name == "ok_n_dims_0.gguf" {
			images[name] = data[:128] // without the bytes after the only tensor's padding
		} else {
			images[name] = data
		}
	}
	for name, image := range images {
		f, err := gguf.Parse(image)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var out bytes.Buffer
		if err := gguf.Write(&out, f); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !bytes.Equal(out.Bytes(), image) {
			t.Errorf("%s: %d bytes were written that differ from the %d of the file", name, out.Len(), len(image))
		}
	}
}

// Write does not keep version 2, bytes of padding, and bytes after the end, as documented.
// It keeps everything else.
func TestWriteNormalises(t *testing.T) {
	b := countedTensors(64)
	want := b.Bytes()
	b.Version = 2
	spoilt := append(b.Bytes(), "appendix"...)
	// The first tensor has 3 bytes of 64.
	f, err := gguf.Parse(spoilt)
	if err != nil {
		t.Fatal(err)
	}
	ti, _ := f.Tensor("bytes")
	spoilt[ti.Offset+ti.Size] = 0xff
	var out bytes.Buffer
	if err := gguf.Write(&out, f); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("wrote\n%q, want\n%q", out.Bytes(), want)
	}
}

// A Writer writes the same bytes as the independent builder, for every type of value.
func TestWriter(t *testing.T) {
	var out bytes.Buffer
	w := gguf.NewWriter(&out)
	set := func(key string, v gguf.Value) {
		t.Helper()
		if err := w.Set(key, v); err != nil {
			t.Fatal(err)
		}
	}
	set("u8", gguf.NewValue[uint8](math.MaxUint8))
	set("i8", gguf.NewValue[int8](math.MinInt8))
	set("u16", gguf.NewValue("to be replaced"))
	set("removed", gguf.NewValue(true))
	set("i16", gguf.NewValue[int16](math.MinInt16))
	set("u32", gguf.NewValue[uint32](math.MaxUint32))
	set("i32", gguf.NewValue[int32](math.MinInt32))
	set("u64", gguf.NewValue[uint64](math.MaxUint64))
	set("i64", gguf.NewValue[int64](math.MinInt64))
	set("f32", gguf.NewValue[float32](1.5))
	set("f64", gguf.NewValue(math.Pi))
	set("true", gguf.NewValue(true))
	set("false", gguf.NewValue(false))
	set("str", gguf.NewValue("forge\n"))
	set("str.empty", gguf.NewValue(""))
	set("strs", gguf.NewArray([]string{"a", "", "\xff\x00"}))
	set("strs.empty", gguf.NewArray[string](nil))
	set("i32s", gguf.NewArray([]int32{-1, 0, 1}))
	set("u32s", gguf.NewArray([]uint32{0, math.MaxUint32}))
	set("u64s", gguf.NewArray([]uint64{1, math.MaxUint64}))
	set("f32s", gguf.NewArray([]float32{1, 2, 3, 4, 5, 6, 7.25}))
	set("f64s", gguf.NewArray([]float64{math.Inf(1)}))
	set("bools", gguf.NewArray([]bool{true, false}))
	set("u16", gguf.NewValue[uint16](math.MaxUint16)) // replaces the earlier value in its place
	if err := w.Remove("removed"); err != nil {
		t.Fatal(err)
	}
	if err := w.Remove("absent"); err != nil {
		t.Fatal(err)
	}
	for _, ti := range []gguf.TensorInfo{
		{Name: "a", DType: dtype.F32, Shape: []int{2, 3}, Offset: 77, Size: 78},
		{Name: "b", DType: dtype.Q4_K, Shape: []int{256}},
		{Name: "c", DType: dtype.F16, Shape: []int{3}},
	} {
		if err := w.AddTensor(ti); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.WriteTensor("a", make([]byte, 24)); err != nil {
		t.Fatal(err)
	}
	more := strings.NewReader(strings.Repeat("\x00", 150))
	if err := w.CopyTensor("b", iotest.OneByteReader(more)); err != nil || more.Len() != 6 {
		t.Fatalf("error %v, the reader has %d bytes left, want 6", err, more.Len())
	}
	if err := w.CopyTensor("c", more); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(out.Bytes(), sample()) {
		t.Errorf("wrote\n%q, want\n%q", out.Bytes(), sample())
	}
}

func TestWriterScalarTensor(t *testing.T) {
	var out bytes.Buffer
	w := gguf.NewWriter(&out)
	for _, err := range []error{
		w.AddTensor(gguf.TensorInfo{Name: "s", DType: dtype.F32}),
		w.AddTensor(gguf.TensorInfo{Name: "v", DType: dtype.F32, Shape: []int{1}}),
		w.AddTensor(gguf.TensorInfo{Name: "e", DType: dtype.F32, Shape: []int{3, 0}}),
		w.WriteTensor("s", make([]byte, 4)),
		w.WriteTensor("v", make([]byte, 4)),
		w.WriteTensor("e", nil),
		w.Close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var b ggufbuild.Builder
	b.AddTensor("s", dtype.F32, nil, make([]byte, 4))
	b.AddTensor("v", dtype.F32, []int{1}, make([]byte, 4))
	b.AddTensor("e", dtype.F32, []int{3, 0}, nil)
	if !bytes.Equal(out.Bytes(), b.Bytes()) {
		t.Errorf("wrote\n%q, want\n%q", out.Bytes(), b.Bytes())
	}
}

// Every misuse is refused with ErrWrite, and the Writer can be used afterwards.
func TestWriterMisuse(t *testing.T) {
	var out bytes.Buffer
	w := gguf.NewWriter(&out)
	long := strings.Repeat("k", math.MaxUint16+1)
	refused := func(want string, err error) {
		t.Helper()
		if !errors.Is(err, gguf.ErrWrite) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want ErrWrite with %q", err, want)
		}
	}
	accepted := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	one := gguf.NewValue[uint32](1)
	refused("empty key", w.Set("", one))
	refused("65536 bytes", w.Set(long, one))
	refused("NUL", w.Set("a\x00b", one))
	refused("zero Value", w.Set("a", gguf.Value{}))
	refused("want u32", w.Set("general.alignment", gguf.NewValue[uint64](32)))
	refused("power of two", w.Set("general.alignment", gguf.NewValue[uint32](13)))
	accepted(w.Set(long[1:], one))

	info := func(name string, d dtype.DType, shape ...int) gguf.TensorInfo {
		return gguf.TensorInfo{Name: name, DType: d, Shape: shape}
	}
	accepted(w.AddTensor(info("a", dtype.F32, 2)))
	accepted(w.AddTensor(info("b", dtype.I8, 3)))
	refused("declared before", w.AddTensor(info("a", dtype.F16, 2)))
	refused("64 bytes", w.AddTensor(info(long[:64], dtype.F32, 2)))
	refused("NUL", w.AddTensor(info("c\x00", dtype.F32, 2)))
	refused("5 dims", w.AddTensor(info("c", dtype.F32, 1, 1, 1, 1, 1)))
	refused("[-1]", w.AddTensor(info("c", dtype.F32, -1)))
	refused("multiple", w.AddTensor(info("c", dtype.Q4_K, 64)))
	refused("larger than", w.AddTensor(info("c", dtype.F32, math.MaxInt, math.MaxInt)))
	refused("no file holds", w.AddTensor(info("c", dtype.Invalid, 1)))

	refused("close before", w.Close())
	refused(`that of "a" is due`, w.WriteTensor("b", make([]byte, 3)))
	refused("takes 8 bytes, not 7", w.WriteTensor("a", make([]byte, 7)))
	if out.Len() > 0 {
		t.Errorf("%d bytes were written by calls that failed", out.Len())
	}
	accepted(w.WriteTensor("a", make([]byte, 8)))
	refused("after the header", w.Set("b", one))
	refused("after the header", w.Remove("b"))
	refused("after the header", w.AddTensor(info("c", dtype.F32, 2)))
	refused("close before", w.Close())
	accepted(w.WriteTensor("b", make([]byte, 3)))
	refused("after that of all", w.WriteTensor("c", nil))
	accepted(w.Close())
	refused("after Close", w.WriteTensor("c", nil))
	refused("after the header", w.Set("b", one))
	if _, err := gguf.Parse(out.Bytes()); err != nil {
		t.Error(err)
	}
}

func TestWriterTooLarge(t *testing.T) {
	w := gguf.NewWriter(io.Discard)
	for _, name := range []string{"a", "b"} {
		if err := w.AddTensor(gguf.TensorInfo{Name: name, DType: dtype.I8, Shape: []int{math.MaxInt/2 + 1}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.CopyTensor("a", strings.NewReader("")); !errors.Is(err, gguf.ErrWrite) || !strings.Contains(err.Error(), "exceed") {
		t.Errorf("error %v, want ErrWrite", err)
	}
}

// A file does not record which of the formats with id 42 it has, so the Writer refuses
// tensors that would be read as the other format.
func TestWriterType42(t *testing.T) {
	write := func(formats ...dtype.DType) error {
		var out bytes.Buffer
		w := gguf.NewWriter(&out)
		for i, d := range formats {
			ti := gguf.TensorInfo{Name: string(rune('a' + i)), DType: d, Shape: []int{8, 128}}
			if i > 0 {
				ti.Shape[0] = 1
			}
			if err := w.AddTensor(ti); err != nil {
				return err
			}
		}
		for i, d := range formats {
			n := 128 / d.BlockSize() * d.Size()
			if i == 0 {
				n *= 8
			}
			if err := w.WriteTensor(string(rune('a'+i)), make([]byte, n)); err != nil {
				return err
			}
		}
		f, err := gguf.Parse(out.Bytes())
		if err != nil {
			return err
		}
		for i, ti := range f.Tensors() {
			if ti.DType != formats[i] {
				t.Errorf("tensor %d is read as %s, want %s", i, ti.DType, formats[i])
			}
		}
		return nil
	}
	for _, formats := range [][]dtype.DType{
		{dtype.Q2_0_G64}, {dtype.Q2_0_G64, dtype.Q2_0_G64},
		// 272 bytes padded to 288 are 288 bytes of the other format.
		{dtype.Q2_0, dtype.F32},
	} {
		err := write(formats...)
		if want := formats[0] == dtype.Q2_0; want != errors.Is(err, gguf.ErrWrite) || !want && err != nil {
			t.Errorf("%v: %v", formats, err)
		}
	}
	if err := write(dtype.Q2_0_G64, dtype.Q2_0); !errors.Is(err, gguf.ErrWrite) {
		t.Errorf("both formats in one file: %v, want ErrWrite", err)
	}
	// These are large enough to tell the formats apart.
	var out bytes.Buffer
	w := gguf.NewWriter(&out)
	if err := w.AddTensor(gguf.TensorInfo{Name: "a", DType: dtype.Q2_0, Shape: []int{32, 128}}); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteTensor("a", make([]byte, 32*34)); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if ti, _ := f.Tensor("a"); ti.DType != dtype.Q2_0 {
		t.Errorf("read as %s", ti.DType)
	}
}

// failAfter is an io.Writer that fails after n bytes.
type failAfter struct{ n int }

var errFull = errors.New("disk full")

func (f *failAfter) Write(p []byte) (int, error) {
	n := min(len(p), f.n)
	f.n -= n
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

// An error of the output is returned by every later call, wherever it occurs.
func TestWriterOutputErrors(t *testing.T) {
	file, err := gguf.Parse(sample())
	if err != nil {
		t.Fatal(err)
	}
	size := len(sample())
	for n := range size {
		w := gguf.NewWriter(&failAfter{n})
		err := w.SetAll(&file.Metadata)
		for _, ti := range file.Tensors() {
			err = errors.Join(err, w.AddTensor(ti))
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, ti := range file.Tensors() {
			if i%2 == 0 {
				err = w.WriteTensor(ti.Name, file.Data(ti))
			} else {
				err = w.CopyTensor(ti.Name, bytes.NewReader(file.Data(ti)))
			}
			if err != nil {
				break
			}
		}
		if !errors.Is(err, errFull) || !errors.Is(w.Close(), errFull) || !errors.Is(w.WriteTensor("c", nil), errFull) {
			t.Fatalf("after %d of %d bytes: %v, then %v", n, size, err, w.Close())
		}
	}
}

func TestCopyTensorErrors(t *testing.T) {
	for _, tt := range []struct {
		r    io.Reader
		want error
	}{
		{strings.NewReader("12"), io.ErrUnexpectedEOF},
		{iotest.ErrReader(errFull), errFull},
	} {
		w := gguf.NewWriter(io.Discard)
		if err := w.AddTensor(gguf.TensorInfo{Name: "a", DType: dtype.I8, Shape: []int{3}}); err != nil {
			t.Fatal(err)
		}
		if err := w.CopyTensor("a", tt.r); !errors.Is(err, tt.want) || !strings.Contains(err.Error(), `"a"`) {
			t.Errorf("error %v, want %v", err, tt.want)
		}
		if err := w.Close(); !errors.Is(err, tt.want) {
			t.Errorf("close: %v, want %v", err, tt.want)
		}
	}
}

func TestRemoveSplit(t *testing.T) {
	var out bytes.Buffer
	w := gguf.NewWriter(&out)
	for _, key := range []string{"split.no", "a", "split.count", "split.tensors.count", "split"} {
		if err := w.Set(key, gguf.NewValue[uint16](1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.RemoveSplit(), w.RemoveSplit(), w.Close()); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "split"}; !slices.Equal(f.Keys(), want) {
		t.Errorf("keys %q, want %q", f.Keys(), want)
	}
	if err := w.RemoveSplit(); !errors.Is(err, gguf.ErrWrite) {
		t.Errorf("after the header: %v, want ErrWrite", err)
	}
}

func TestWriteOfClosedFile(t *testing.T) {
	f, err := gguf.Parse(sample())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := gguf.Write(io.Discard, f); !errors.Is(err, gguf.ErrClosed) {
		t.Errorf("error %v, want ErrClosed", err)
	}
}

// benchmarkImage returns a file with a vocabulary of 32000 tokens, 291 tensors like those
// of a llama model of 7 billion parameters, and 4 MiB of data.
func benchmarkImage() []byte {
	var b ggufbuild.Builder
	tokens := make([]string, 32000)
	for i := range tokens {
		tokens[i] = strings.Repeat("x", i%7)
	}
	b.SetStrings("tokenizer.ggml.tokens", tokens)
	b.SetFloat32s("tokenizer.ggml.scores", make([]float32, len(tokens)))
	b.AddTensor("w", dtype.F32, []int{1 << 20}, make([]byte, 4<<20))
	for i := range 290 {
		b.AddTensor(fmt.Sprintf("blk.%d.weight", i), dtype.F32, []int{8}, make([]byte, 32))
	}
	return b.Bytes()
}

// The bytes per second count the whole file, although Parse reads only the part before the
// data.
func BenchmarkParse(b *testing.B) {
	image := benchmarkImage()
	b.SetBytes(int64(len(image)))
	b.ReportAllocs()
	for b.Loop() {
		f, err := gguf.Parse(image)
		if err != nil {
			b.Fatal(err)
		}
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	image := benchmarkImage()
	f, err := gguf.Parse(image)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(image)))
	b.ReportAllocs()
	for b.Loop() {
		if err := gguf.Write(io.Discard, f); err != nil {
			b.Fatal(err)
		}
	}
}
