package gguf_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/tests/ggufbuild"
)

// part builds part no of count as llama.cpp's gguf-split does: the first part has the
// metadata, and every part has the split keys. Each part has two tensors. total is the
// value of the key for the number of tensors.
func part(no, count, total int) *ggufbuild.Builder {
	b := &ggufbuild.Builder{}
	if no == 0 {
		b.SetString("general.architecture", "llama")
		b.SetUint32("llama.block_count", 5)
	}
	b.SetUint16("split.no", uint16(no))
	b.SetUint16("split.count", uint16(count))
	b.SetInt32("split.tensors.count", int32(total))
	for i := range 2 {
		b.AddTensor(fmt.Sprintf("t%d", 2*no+i), dtype.I8, []int{3}, []byte{byte(no), byte(i), 7})
	}
	return b
}

func splitParts(count int) [][]byte {
	parts := make([][]byte, count)
	for i := range parts {
		parts[i] = part(i, count, 2*count).Bytes()
	}
	return parts
}

// writeParts writes the images as the parts of one file. It skips empty images.
func writeParts(t *testing.T, images ...[]byte) (prefix string) {
	t.Helper()
	prefix = filepath.Join(t.TempDir(), "tiny")
	for i, image := range images {
		if len(image) == 0 {
			continue
		}
		if err := os.WriteFile(gguf.SplitPath(prefix, i, len(images)), image, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return prefix
}

// whole returns the model of part in one file.
func whole(count int) []byte {
	var b ggufbuild.Builder
	b.SetString("general.architecture", "llama")
	b.SetUint32("llama.block_count", 5)
	for no := range count {
		for i := range 2 {
			b.AddTensor(fmt.Sprintf("t%d", 2*no+i), dtype.I8, []int{3}, []byte{byte(no), byte(i), 7})
		}
	}
	return b.Bytes()
}

// The path of any part opens the whole model. Its buffers outlive the File, and Write
// writes the model as one file.
func TestOpenSplit(t *testing.T) {
	parts := splitParts(3)
	parts[2] = parts[2][:len(parts[2])-29] // the padding may be missing
	prefix := writeParts(t, parts...)
	for no := range 3 {
		f, err := gguf.Open(gguf.SplitPath(prefix, no, 3))
		if err != nil {
			t.Fatal(err)
		}
		if arch, err := f.String("general.architecture"); err != nil || arch != "llama" || f.Parts() != 3 {
			t.Errorf("architecture %q, %v, of %d parts", arch, err, f.Parts())
		}
		var out bytes.Buffer
		if err := gguf.Write(&out, f); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), whole(3)) {
			t.Errorf("written as\n%q, want\n%q", out.Bytes(), whole(3))
		}
		tensors := f.Tensors()
		if len(tensors) != 6 {
			t.Fatalf("%d tensors, want 6", len(tensors))
		}
		for i, ti := range tensors {
			want := []byte{byte(i / 2), byte(i % 2), 7}
			if ti.Name != fmt.Sprintf("t%d", i) || ti.Part != i/2 || !bytes.Equal(f.Data(ti), want) {
				t.Errorf("tensor %d is %v with bytes %v, want %v", i, ti, f.Data(ti), want)
			}
			ti.Part = (ti.Part + 1) % 3
			if f.Data(ti) != nil {
				t.Errorf("tensor %d has bytes in part %d", i, ti.Part)
			}
		}
		buf, err := f.Buffer(tensors[5])
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if got := host(t, buf); !bytes.Equal(got, []byte{2, 1, 7}) {
			t.Errorf("after Close the buffer holds %v", got)
		}
		buf.Release()
	}
}

func TestParseSplit(t *testing.T) {
	f, err := gguf.ParseSplit(splitParts(2)...)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(f.Tensors()); n != 4 || f.Parts() != 2 {
		t.Errorf("%d tensors in %d parts, want 4 in 2", n, f.Parts())
	}
	if f, err = gguf.ParseSplit(sample()); err != nil || f.Parts() != 1 {
		t.Errorf("a file that is not split: %v", err)
	}
	// Parse of one part has only the tensors of that part.
	if f, err = gguf.Parse(splitParts(2)[1]); err != nil || len(f.Tensors()) != 2 {
		t.Errorf("a part alone: %v", err)
	}
	if _, err = gguf.ParseSplit(); !errors.Is(err, gguf.ErrMalformed) {
		t.Errorf("no parts: %v, want ErrMalformed", err)
	}
}

// Parts that do not belong together are refused, in memory and on disk, with an error that
// names the wrong part.
func TestSplitErrors(t *testing.T) {
	good := splitParts(3)
	edit := func(no int, change func(b *ggufbuild.Builder)) [][]byte {
		parts := splitParts(3)
		b := part(no, 3, 6)
		change(b)
		parts[no] = b.Bytes()
		return parts
	}
	replace := func(no int, image []byte) [][]byte {
		parts := splitParts(3)
		parts[no] = image
		return parts
	}
	var bare ggufbuild.Builder
	bare.AddTensor("t2", dtype.I8, []int{3}, make([]byte, 3))
	noNumber := ggufbuild.Builder{}
	noNumber.SetUint16("split.count", 3)
	wrongType := ggufbuild.Builder{}
	wrongType.SetString("split.count", "3")
	negative := ggufbuild.Builder{}
	negative.SetInt32("split.count", -3)
	huge := ggufbuild.Builder{}
	huge.SetUint64("split.count", 1<<40)
	for _, tt := range []struct {
		name  string
		parts [][]byte
		want  string
	}{
		{"parts swapped", [][]byte{good[0], good[2], good[1]}, `"split.no" is 2, want 1`},
		{"a part twice", [][]byte{good[0], good[1], good[1]}, `"split.no" is 1, want 2`},
		{"first part not first", [][]byte{good[1], good[0], good[2]}, `"split.no" is 1, want 0`},
		{"other count", replace(1, part(1, 4, 6).Bytes()), `"split.count" is 4, want 3`},
		{"not split", replace(1, bare.Bytes()), `"split.count" is 1, want 3`},
		{"no number", replace(1, noNumber.Bytes()), `"split.no" is 0, want 1`},
		{"count of wrong type", replace(1, wrongType.Bytes()), "want integer"},
		{"negative count", replace(1, negative.Bytes()), "is -3"},
		{"huge count", replace(1, huge.Bytes()), "want 0 to 65535"},
		{"other total", replace(1, part(1, 3, 7).Bytes()), `"split.tensors.count" is 7, and 6 in the first part`},
		{"total of too few", [][]byte{part(0, 3, 5).Bytes(), part(1, 3, 5).Bytes(), part(2, 3, 5).Bytes()}, "hold 6 tensors"},
		{"total of too many", [][]byte{part(0, 3, 7).Bytes(), part(1, 3, 7).Bytes(), part(2, 3, 7).Bytes()}, "hold 6 tensors"},
		{"tensor repeated", edit(2, func(b *ggufbuild.Builder) { b.AddTensor("t1", dtype.I8, []int{1}, []byte{0}) }), `"t1" is in part 1 too`},
		{"of another model", edit(1, func(b *ggufbuild.Builder) { b.SetString("general.architecture", "qwen2") }), `"qwen2", and "llama" in the first part`},
		{"damaged", replace(2, good[2][:100]), "split.tensors.count"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := gguf.ParseSplit(tt.parts...)
			if !isReadError(err) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ParseSplit: %v, want %q", err, tt.want)
			}
			prefix := writeParts(t, tt.parts...)
			_, err = gguf.Open(gguf.SplitPath(prefix, 0, 3))
			if !isReadError(err) || !strings.Contains(err.Error(), "-of-00003.gguf: ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("Open: %v, want an error with the part's name", err)
			}
		})
	}
}

func TestOpenSplitErrors(t *testing.T) {
	good := splitParts(3)
	for missing := range 3 {
		parts := splitParts(3)
		parts[missing] = nil
		prefix := writeParts(t, parts...)
		given := gguf.SplitPath(prefix, (missing+1)%3, 3)
		want := filepath.Base(gguf.SplitPath(prefix, missing, 3))
		if _, err := gguf.Open(given); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), want) {
			t.Errorf("part %d is missing: %v, want ErrNotExist with %s", missing+1, err, want)
		}
	}
	for _, name := range []string{"tiny.gguf", "tiny-00002-of-00003.gguf", "-00001-of-00003.gguf", "tiny-1-of-3.gguf"} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, good[0], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := gguf.Open(path); !errors.Is(err, gguf.ErrMalformed) || !strings.Contains(err.Error(), "NAME-00001-of-00003.gguf") {
			t.Errorf("part 1 called %s: %v, want ErrMalformed with the name it should have", name, err)
		}
	}
}

// If a part is refused, every part that was opened is closed again. On Windows an open file
// could not be removed; on other systems the test counts the mappings.
func TestOpenSplitClosesParts(t *testing.T) {
	maps := func() int {
		b, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Skip("mappings cannot be counted here")
		}
		return strings.Count(string(b), "-of-0000")
	}
	good := splitParts(3)
	for no := range 3 {
		for bad := range 3 {
			parts := splitParts(3)
			parts[bad] = good[(bad+1)%3]
			if _, err := gguf.Open(gguf.SplitPath(writeParts(t, parts...), no, 3)); err == nil {
				t.Error("bad parts were accepted")
			}
			if n := maps(); n != 0 {
				t.Fatalf("given part %d, part %d bad: %d mappings left", no+1, bad+1, n)
			}
		}
	}
	f, err := gguf.Open(gguf.SplitPath(writeParts(t, good...), 1, 3))
	if err != nil {
		t.Fatal(err)
	}
	if n := maps(); n != 3 {
		t.Errorf("%d mappings of an open file of 3 parts", n)
	}
	if err := f.Close(); err != nil || maps() != 0 {
		t.Errorf("%v, %d mappings after Close", err, maps())
	}
}

// split writes f as count parts, as llama.cpp's gguf-split does: the first part has the
// metadata, and every part has the split keys.
func split(t *testing.T, f *gguf.File, count int) [][]byte {
	t.Helper()
	tensors := f.Tensors()
	parts := make([][]byte, count)
	for no := range count {
		var out bytes.Buffer
		w := gguf.NewWriter(&out)
		var err error
		if no == 0 {
			err = w.SetAll(&f.Metadata)
		}
		err = errors.Join(err,
			w.Set("split.no", gguf.NewValue(uint16(no))),
			w.Set("split.count", gguf.NewValue(uint16(count))),
			w.Set("split.tensors.count", gguf.NewValue(int32(len(tensors)))))
		own := tensors[no*len(tensors)/count : (no+1)*len(tensors)/count]
		for _, ti := range own {
			err = errors.Join(err, w.AddTensor(ti))
		}
		for _, ti := range own {
			err = errors.Join(err, w.WriteTensor(ti.Name, f.Data(ti)))
		}
		if err = errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		parts[no] = out.Bytes()
	}
	return parts
}

// A file that is split and then written as one file has the same bytes, even if only the
// first part has the model's alignment or some parts have no tensors.
func TestSplitAndMerge(t *testing.T) {
	images := allFiles(t)
	images["align 1"] = countedTensors(1).Bytes()
	images["align 64"] = countedTensors(64).Bytes()
	for name, image := range images {
		f, err := gguf.Parse(image)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, count := range []int{2, 3, 7} {
			merged, err := gguf.ParseSplit(split(t, f, count)...)
			if err != nil {
				t.Fatalf("%s in %d parts: %v", name, count, err)
			}
			var out bytes.Buffer
			if err := gguf.Write(&out, merged); err != nil {
				t.Fatalf("%s in %d parts: %v", name, count, err)
			}
			want := image
			if len(f.Tensors()) == 0 { // gguf-split writes the padding, other writers may not
				want = append(slices.Clone(image), make([]byte, max(0, out.Len()-len(image)))...)
			}
			if !bytes.Equal(out.Bytes(), want) {
				t.Errorf("%s in %d parts: %d bytes that differ from the %d of the file", name, count, out.Len(), len(want))
			}
		}
	}
}

// Every part has its own alignment. File.Alignment is that of the first part.
func TestSplitAlignments(t *testing.T) {
	parts := make([][]byte, 3)
	for no, align := range []uint32{64, 0, 1} {
		b := part(no, 3, 6)
		b.Alignment = align // 0 is none
		parts[no] = b.Bytes()
	}
	f, err := gguf.ParseSplit(parts...)
	if err != nil {
		t.Fatal(err)
	}
	check := func(f *gguf.File) {
		t.Helper()
		if f.Alignment() != 64 {
			t.Errorf("alignment %d, want 64", f.Alignment())
		}
		for i, ti := range f.Tensors() {
			if want := []byte{byte(i / 2), byte(i % 2), 7}; !bytes.Equal(f.Data(ti), want) {
				t.Errorf("tensor %d has bytes %v, want %v", i, f.Data(ti), want)
			}
		}
	}
	check(f)
	var out bytes.Buffer
	if err := gguf.Write(&out, f); err != nil {
		t.Fatal(err)
	}
	if f, err = gguf.Parse(out.Bytes()); err != nil {
		t.Fatal(err)
	}
	check(f)
}

// Parts are found by their names, which may be links to files elsewhere, as in a cache. An
// error about a path that is not a file names the path.
func TestOpenSplitLinks(t *testing.T) {
	store := writeParts(t, splitParts(3)...)
	prefix := filepath.Join(t.TempDir(), "linked")
	for no := range 3 {
		symlink(t, gguf.SplitPath(store, no, 3), gguf.SplitPath(prefix, no, 3))
	}
	f, err := gguf.Open(gguf.SplitPath(prefix, 2, 3))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Tensors()) != 6 {
		t.Errorf("%d tensors, want 6", len(f.Tensors()))
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}

	second := gguf.SplitPath(prefix, 1, 3)
	replace := func(make func() error) {
		t.Helper()
		if err := errors.Join(os.Remove(second), make()); err != nil {
			t.Fatal(err)
		}
		_, err := gguf.Open(gguf.SplitPath(prefix, 0, 3))
		if err == nil || !strings.Contains(err.Error(), filepath.Base(second)) {
			t.Errorf("%v, want an error with the part's name", err)
		}
	}
	replace(func() error { return os.Mkdir(second, 0o777) })
	replace(func() error { return os.Symlink(second, second) })
	replace(func() error { return os.Symlink(gguf.SplitPath(store, 2, 3), second) })
	replace(func() error { return os.WriteFile(second, nil, 0o666) })
}

// OpenedFrom is true for any name of the files that a File was opened from, and false for
// other files.
func TestOpenedFrom(t *testing.T) {
	prefix := writeParts(t, splitParts(3)...)
	dir := filepath.Dir(prefix)
	other := filepath.Join(dir, "other.gguf")
	if err := os.WriteFile(other, sample(), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(gguf.SplitPath(prefix, 1, 3))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	t.Chdir(dir)
	for no := range 3 {
		path := gguf.SplitPath(prefix, no, 3)
		if !f.OpenedFrom(path) || !f.OpenedFrom(filepath.Base(path)) {
			t.Errorf("part %d is unknown", no)
		}
	}
	for _, path := range []string{other, filepath.Join(dir, "absent"), dir, ""} {
		if f.OpenedFrom(path) {
			t.Errorf("%q is taken for a part", path)
		}
	}
	parsed, err := gguf.Parse(sample())
	if err != nil {
		t.Fatal(err)
	}
	if parsed.OpenedFrom(other) {
		t.Error("an image in memory is taken for a file")
	}
	if err := os.Link(gguf.SplitPath(prefix, 1, 3), filepath.Join(dir, "hard.gguf")); err == nil && !f.OpenedFrom("hard.gguf") {
		t.Error("a further name of a part is unknown")
	}
	symlink(t, gguf.SplitPath(prefix, 2, 3), filepath.Join(dir, "soft.gguf"))
	if !f.OpenedFrom("soft.gguf") {
		t.Error("a link to a part is unknown")
	}
}
