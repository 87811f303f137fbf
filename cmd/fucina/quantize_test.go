package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm/quantize"
	"github.com/fucina-go/fucina/tests/countdown"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// only fails the test unless a directory holds exactly the files of these names.
func only(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if fmt.Sprint(got) != fmt.Sprint(names) {
		t.Errorf("%s holds %q, want %q", dir, got, names)
	}
}

// wideModel writes a model whose rows consist of whole blocks in every format.
func wideModel(t *testing.T) string {
	t.Helper()
	path := tinyllama.New(tinyllama.Options{Layers: 1, Embedding: 256, FeedForward: 256}).File(t, "wide.gguf")
	return path
}

// importanceData writes importance data for matrices of 256 columns, in the older format of
// llama.cpp.
func importanceData(t *testing.T, names ...string) string {
	t.Helper()
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(names)))
	for _, name := range names {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(name)))
		b = append(b, name...)
		b = binary.LittleEndian.AppendUint32(b, 1)
		b = binary.LittleEndian.AppendUint32(b, 256)
		for i := range 256 {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(1+i%9)))
		}
	}
	b = binary.LittleEndian.AppendUint32(b, 5)
	b = binary.LittleEndian.AppendUint32(b, 4)
	b = append(b, "text"...)
	path := filepath.Join(t.TempDir(), "imatrix.dat")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// quantize writes the same file as the library, and that model runs.
func TestQuantize(t *testing.T) {
	in, dir := wideModel(t), t.TempDir()
	out := filepath.Join(dir, "out.gguf")
	text := invoke(t, "quantize", in, out, "q4_k_m", "-t", "2").ok(t)
	if !strings.HasPrefix(text, "out.gguf: Q4_K_M, 9 of 12 tensors converted, ") || !strings.HasSuffix(text, " bits per weight\n") {
		t.Errorf("prints %q", text)
	}
	only(t, dir, "out.gguf")

	var want bytes.Buffer
	f, err := gguf.Open(in)
	if err != nil {
		t.Fatal(err)
	}
	w := gguf.NewWriter(&want)
	if err := quantize.Write(t.Context(), w, f, quantize.Options{Type: quantize.Q4_K_M}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out)
	if err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("the file differs from the library's, or %v", err)
	}
	invoke(t, "run", "-m", out, "-p", "the", "-n", "2", "--temp", "0").ok(t)

	// -pure gives all matrices one format, and JSON lists every tensor.
	line := invoke(t, "quantize", "--pure", "-o", "json", in, out, "Q8_0").ok(t)
	var object map[string]any
	decodeStrict(t, line, &object)
	keys(t, object, "input", "output", "type", "pure", "tensors", "elements", "bytes_in", "bytes_out", "bits_per_weight")
	var r quantization
	decodeStrict(t, line, &r)
	if r.Input != "wide.gguf" || r.Output != "out.gguf" || r.Type != "Q8_0" || !r.Pure || r.BytesIn != 4*r.Elements {
		t.Errorf("%+v", r)
	}
	for _, q := range r.Tensors {
		want := "q8_0"
		if len(q.Shape) == 1 {
			want = "f32"
		}
		if q.From != "f32" || q.To != want || q.Fallback {
			t.Errorf("%+v, want %s", q, want)
		}
	}
	var i inspection
	decodeStrict(t, invoke(t, "inspect", "-o", "json", out).ok(t), &i)
	if i.Bytes != r.BytesOut || i.Types[0].DType != "q8_0" {
		t.Errorf("inspect says %d bytes, %+v; quantize %d", i.Bytes, i.Types, r.BytesOut)
	}
}

// quantize reports rows that do not fit the type, and with -v each tensor.
func TestQuantizeFallback(t *testing.T) {
	r := invoke(t, "quantize", "-v", tinyModel(t), filepath.Join(t.TempDir(), "out.gguf"), "Q4_K_S")
	if r.code != exitOK || !strings.Contains(r.stdout, "15 have rows that do not fit") {
		t.Errorf("exit %d, stdout %q", r.code, r.stdout)
	}
	for _, want := range []string{
		"[ 1/21] output.weight [", "[ 2/21] output_norm.weight [64] f32, 256 bytes kept\n",
		"blk.1.ffn_up.weight [160 64] f32, 40960 bytes -> q5_0, 7040 bytes (rows do not fit the type)\n",
	} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("stderr has no %q:\n%s", want, r.stderr)
		}
	}
}

func TestQuantizeImportance(t *testing.T) {
	in, dir := wideModel(t), t.TempDir()
	out := filepath.Join(dir, "out.gguf")
	invoke(t, "quantize", in, out, "IQ2_XXS").failed(t, exitError, "needs importance data, and none was given")
	some := importanceData(t, "blk.0.attn_q.weight")
	invoke(t, "quantize", "--imatrix", some, in, out, "IQ2_XXS").failed(t, exitError, `no data for "blk.0.attn_k.weight"`)
	invoke(t, "quantize", "--imatrix", in, in, out, "Q4_0").failed(t, exitError, "importance data")
	invoke(t, "quantize", "--imatrix", filepath.Join(dir, "none"), in, out, "Q4_0").failed(t, exitError, "none")
	only(t, dir)

	r := invoke(t, "quantize", "-v", "--imatrix", some, in, out, "Q4_0")
	if r.code != exitOK {
		t.Errorf("exit %d", r.code)
	}
	for line := range strings.Lines(r.stderr) {
		lacks := strings.Contains(line, " -> ") && !strings.Contains(line, "blk.0.attn_q.weight")
		if strings.HasSuffix(line, " (no importance data)\n") != lacks {
			t.Errorf("-v tells %q", line)
		}
	}
	f, err := gguf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	// As in llama.cpp, the metadata keeps 127 bytes of the path.
	if file, err := f.String("quantize.imatrix.file"); err != nil || file != some[:min(len(some), 127)] {
		t.Errorf("quantize.imatrix.file is %q, %v", file, err)
	}
	if n, err := f.Int("quantize.imatrix.chunks_count"); err != nil || n != 5 {
		t.Errorf("quantize.imatrix.chunks_count is %d, %v", n, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// After an error or an interrupt there is no output file, and an older output file is
// unchanged.
func TestQuantizeFailures(t *testing.T) {
	in, dir := tinyModel(t), t.TempDir()
	out := filepath.Join(dir, "out.gguf")
	invoke(t, "quantize", filepath.Join(dir, "absent"), out, "Q8_0").failed(t, exitError, "absent")
	invoke(t, "quantize", in, dir, "Q8_0").failed(t, exitError, "regular file")
	lost := filepath.Join(dir, "no", "out.gguf")
	invoke(t, "quantize", in, lost, "Q8_0").failed(t, exitError, "open "+lost+": ")
	invoke(t, "quantize", in, out, "NVFP4", "--pure").failed(t, exitError, "rows of 160")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := invokeContext(t, ctx, "quantize", in, out, "Q8_0"); r.code != exitInterrupted || r.stdout != "" || r.stderr != "" {
		t.Errorf("interrupted: %+v", r)
	}
	only(t, dir)
	looks := 1
	for ; ; looks *= 2 {
		r := invokeContext(t, countdown.After(looks), "quantize", in, out, "Q8_0")
		if r.code == exitOK {
			break
		}
		if r.code != exitInterrupted || r.stdout != "" || r.stderr != "" {
			t.Errorf("interrupted at look %d: %+v", looks, r)
		}
		only(t, dir)
	}
	if looks < 64 {
		t.Errorf("fewer than %d looks at the context", looks)
	}

	invoke(t, "quantize", in, out, "Q8_0").ok(t)
	old, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	quantized := filepath.Join(t.TempDir(), "in.gguf")
	if err := os.WriteFile(quantized, old, 0o600); err != nil {
		t.Fatal(err)
	}
	invoke(t, "quantize", quantized, out, "Q4_0").failed(t, exitError, "quantized already")
	// A file is not quantized onto itself, because the lost precision cannot be restored.
	invoke(t, "quantize", "--allow-requantize", out, filepath.Join(dir, ".", "out.gguf"), "Q4_0").failed(t, exitError, "out.gguf is the input")
	if r := invokeContext(t, ctx, "quantize", in, out, "Q4_0"); r.code != exitInterrupted {
		t.Errorf("interrupted: %+v", r)
	}
	only(t, dir, "out.gguf")
	if now, err := os.ReadFile(out); err != nil || !bytes.Equal(now, old) {
		t.Errorf("the old file changed, or %v", err)
	}
	invoke(t, "quantize", "--allow-requantize", quantized, out, "Q4_0").ok(t)
	only(t, dir, "out.gguf")
}
