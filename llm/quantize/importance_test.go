package quantize_test

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/llm/quantize"
	"github.com/fucina-go/fucina/tests/ggufbuild"
)

func floatBytes(v ...float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// importanceGGUF returns importance data as GGUF, with the given metadata and the tensors that
// add adds.
func importanceGGUF(add func(b *ggufbuild.Builder)) []byte {
	var b ggufbuild.Builder
	b.SetString("general.type", "imatrix")
	b.SetStrings("imatrix.datasets", []string{"one", "two"})
	b.SetUint32("imatrix.chunk_count", 7)
	b.SetUint32("imatrix.chunk_size", 512)
	add(&b)
	return b.Bytes()
}

// addEntry adds an entry whose sums have as many equal parts as parts, with a count for each.
func addEntry(b *ggufbuild.Builder, name string, sums, counts []float32) {
	b.AddTensor(name+".in_sum2", dtype.F32, []int{len(counts), len(sums) / len(counts)}, floatBytes(sums...))
	b.AddTensor(name+".counts", dtype.F32, []int{len(counts), 1}, floatBytes(counts...))
}

func TestImportanceGGUF(t *testing.T) {
	image := importanceGGUF(func(b *ggufbuild.Builder) {
		addEntry(b, "a.weight", []float32{2, 4, 6, 8}, []float32{2})
		// The second expert has no inputs. Counts are rounded.
		addEntry(b, "b.weight", []float32{3, 6, 5, 5, 8, 0}, []float32{3, 0, 3.75})
		b.AddTensor("unrelated", dtype.F32, []int{1}, floatBytes(1))
	})
	m, err := quantize.ParseImportance(image)
	if err != nil {
		t.Fatal(err)
	}
	if m.Len() != 2 || m.Chunks() != 7 || !slices.Equal(m.Datasets(), []string{"one", "two"}) || m.File() != "" {
		t.Errorf("%d entries, %d chunks, datasets %q, file %q", m.Len(), m.Chunks(), m.Datasets(), m.File())
	}
	for name, want := range map[string][]float32{"a.weight": {1, 2, 3, 4}, "b.weight": {1, 2, 1, 1, 2, 0}, "c.weight": nil} {
		if got := m.Entry(name); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestImportanceLegacy(t *testing.T) {
	b := &legacyBuilder{}
	b.entry("a.weight", 2, []float32{2, 4})
	b.entry("b.weight", 0, []float32{5, 6, 7})
	image := b.finish(2, 9, "text.txt")
	path := filepath.Join(t.TempDir(), "imatrix.dat")
	if err := os.WriteFile(path, image, 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := quantize.ReadImportance(path)
	if err != nil {
		t.Fatal(err)
	}
	if m.Len() != 2 || m.Chunks() != 9 || !slices.Equal(m.Datasets(), []string{"text.txt"}) || m.File() != path {
		t.Errorf("%d entries, %d chunks, datasets %q, file %q", m.Len(), m.Chunks(), m.Datasets(), m.File())
	}
	if a, b := m.Entry("a.weight"), m.Entry("b.weight"); !slices.Equal(a, []float32{1, 2}) || !slices.Equal(b, []float32{5, 6, 7}) {
		t.Errorf("%v, %v", a, b)
	}
	// The oldest files end after the entries.
	tail := 8 + len("text.txt")
	if m, err = quantize.ParseImportance(image[:len(image)-tail]); err != nil || m.Len() != 2 || m.Chunks() != 0 {
		t.Errorf("without the end: %v", err)
	}
	if m, err = quantize.ParseImportance(image[:len(image)-tail+4]); err != nil || m.Chunks() != 9 || m.Datasets() != nil {
		t.Errorf("with chunks only: %v", err)
	}
	for n := range image {
		if n == len(image)-tail || n == len(image)-tail+4 {
			continue
		}
		if _, err := quantize.ParseImportance(image[:n]); !errors.Is(err, quantize.ErrImportance) {
			t.Errorf("cut to %d bytes: %v, want an error", n, err)
		}
	}
}

func TestImportanceErrors(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	legacy := func(entries int32, fill func(b *legacyBuilder)) []byte {
		b := &legacyBuilder{}
		fill(b)
		return b.finish(entries, 1, "x")
	}
	one := func(name string, sums, counts []float32) []byte {
		return importanceGGUF(func(b *ggufbuild.Builder) { addEntry(b, name, sums, counts) })
	}
	for _, tc := range []struct {
		name, says string
		image      []byte
	}{
		{"empty", "takes 4 bytes", nil},
		{"no entries", "no entries", legacy(0, func(*legacyBuilder) {})},
		{"negative entries", "counts -1", legacy(-1, func(*legacyBuilder) {})},
		{"many entries", "counts 2147483647", legacy(math.MaxInt32, func(*legacyBuilder) {})},
		{"long name", "counts 2147483647", legacy(1, func(b *legacyBuilder) { b.int32(math.MaxInt32); b.int32(0); b.int32(0) })},
		{"negative name", "counts -5", legacy(1, func(b *legacyBuilder) { b.int32(-5); b.int32(0); b.int32(0) })},
		{"many sums", "counts 1073741824", legacy(1, func(b *legacyBuilder) { b.int32(0); b.int32(1); b.int32(1 << 30) })},
		{"no sums", "0 sums", legacy(1, func(b *legacyBuilder) { b.entry("a", 1, nil) })},
		{"twice", `two entries are called "a"`, legacy(2, func(b *legacyBuilder) { b.entry("a", 1, []float32{1}); b.entry("a", 1, []float32{1}) })},
		{"twice behind NUL", `two entries are called "a"`, legacy(2, func(b *legacyBuilder) { b.entry("a", 1, []float32{1}); b.entry("a\x00b", 1, []float32{1}) })},
		{"NaN", "sum 1", legacy(1, func(b *legacyBuilder) { b.entry("a", 1, []float32{1, nan}) })},
		{"infinity", "sum 0", legacy(1, func(b *legacyBuilder) { b.entry("a", 1, []float32{inf}) })},
		{"negative sum", "sum 0", legacy(1, func(b *legacyBuilder) { b.entry("a", 1, []float32{-1}) })},

		{"broken GGUF", "gguf", []byte("GGUF\x03")},
		{"a model", "general.type", func() []byte {
			var b ggufbuild.Builder
			b.SetString("general.type", "model")
			return b.Bytes()
		}()},
		{"no metadata", "imatrix.datasets", func() []byte {
			var b ggufbuild.Builder
			addEntry(&b, "a", []float32{1}, []float32{1})
			return b.Bytes()
		}()},
		{"GGUF without entries", "no entries", importanceGGUF(func(*ggufbuild.Builder) {})},
		{"no counts", "a.counts", importanceGGUF(func(b *ggufbuild.Builder) {
			b.AddTensor("a.in_sum2", dtype.F32, []int{1}, floatBytes(1))
		})},
		{"no sums in GGUF", "a.in_sum2", importanceGGUF(func(b *ggufbuild.Builder) {
			b.AddTensor("a.counts", dtype.F32, []int{1}, floatBytes(1))
		})},
		{"f16 sums", "is f16", importanceGGUF(func(b *ggufbuild.Builder) {
			b.AddTensor("a.in_sum2", dtype.F16, []int{1}, []byte{0, 0})
			b.AddTensor("a.counts", dtype.F32, []int{1}, floatBytes(1))
		})},
		{"uneven parts", "3 sums and 2 counts", importanceGGUF(func(b *ggufbuild.Builder) {
			b.AddTensor("a.in_sum2", dtype.F32, []int{3}, floatBytes(1, 2, 3))
			b.AddTensor("a.counts", dtype.F32, []int{2}, floatBytes(1, 1))
		})},
		{"empty sums", "0 sums", importanceGGUF(func(b *ggufbuild.Builder) {
			b.AddTensor("a.in_sum2", dtype.F32, []int{0}, nil)
			b.AddTensor("a.counts", dtype.F32, []int{1}, floatBytes(1))
		})},
		{"NaN sum in GGUF", "sum 1", one("a", []float32{1, nan}, []float32{1})},
		{"NaN count", "count 0", one("a", []float32{1, 1}, []float32{nan})},
		{"negative count", "count 0", one("a", []float32{1, 1}, []float32{-1})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := quantize.ParseImportance(tc.image)
			if !errors.Is(err, quantize.ErrImportance) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want one that says %q", err, tc.says)
			}
		})
	}
	// A path that is not a regular file, and a large file that does not begin like
	// importance data, are not read. Errors name the path once.
	dir := t.TempDir()
	sparse := filepath.Join(dir, "sparse")
	if err := os.WriteFile(sparse, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(sparse, 1<<40); err != nil {
		t.Logf("no large file here: %v", err)
		sparse = dir
	}
	short := filepath.Join(dir, "short.gguf")
	if err := os.WriteFile(short, []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, sparse, short} {
		if _, err := quantize.ReadImportance(path); !errors.Is(err, quantize.ErrImportance) || strings.Count(err.Error(), path) != 1 {
			t.Errorf("%s: %v, want ErrImportance", path, err)
		}
	}
	if _, err := quantize.ReadImportance(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want no such file", err)
	}
}

// Importance data that is accepted has only numbers that the encoders accept, and not more
// numbers than the file can hold.
func FuzzImportance(f *testing.F) {
	b := &legacyBuilder{}
	b.entry("a.weight", 2, []float32{2, 4})
	f.Add(b.finish(1, 9, "text"))
	f.Add(importanceGGUF(func(b *ggufbuild.Builder) { addEntry(b, "a.weight", []float32{2, 4}, []float32{2}) }))
	model := parse(f, oneMatrix("a.weight", dtype.F32, []int{2, 32}, matrix(2, 32, nil)))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := quantize.ParseImportance(data)
		if err != nil {
			if !errors.Is(err, quantize.ErrImportance) {
				t.Errorf("%v wraps no error of the package", err)
			}
			return
		}
		weights := m.Entry("a.weight")
		if 4*len(weights) > len(data) {
			t.Errorf("%d weights from %d bytes", len(weights), len(data))
		}
		for i, w := range weights {
			if !(w >= 0 && w <= math.MaxFloat32) {
				t.Errorf("weight %d is %v", i, w)
			}
		}
		if _, err := quantize.Plan(model, quantize.Options{Type: quantize.Q4_0, Importance: m}); err != nil && !errors.Is(err, quantize.ErrImportance) {
			t.Error(err)
		}
	})
}
