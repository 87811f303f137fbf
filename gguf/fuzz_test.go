package gguf_test

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/gguf"
)

// seedImages returns well-formed and malformed images.
func seedImages(t testing.TB) [][]byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(malformedDir, "*.gguf"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no seed files: %v", err)
	}
	images := [][]byte{sample(), countedTensors(1).Bytes(), countedTensors(64).Bytes()}
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, data)
	}
	return images
}

// For any bytes, Parse returns a file whose tensors lie within the bytes and do not overlap,
// or a one-line error of the package. It allocates at most a small multiple of the input's
// size.
func FuzzParse(f *testing.F) {
	for _, data := range seedImages(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		file, err := gguf.Parse(data)
		runtime.ReadMemStats(&after)
		// The constant allows for allocations of the fuzzer's other goroutines.
		if got := after.TotalAlloc - before.TotalAlloc; got > uint64(32*len(data))+8<<20 {
			t.Errorf("%d bytes made Parse allocate %d", len(data), got)
		}
		if err != nil {
			if !isReadError(err) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q", err)
			}
			return
		}
		checkFile(t, file, data)
	})
}

// Every file that Parse accepts can be written. The written file has the same metadata,
// tensors and bytes, and writing it again does not change it.
func FuzzWrite(f *testing.F) {
	for _, data := range seedImages(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := gguf.Parse(data)
		if err != nil {
			return
		}
		if file.Alignment() > 1<<16 {
			return // gigabytes of padding between the tensors of a short file
		}
		var out bytes.Buffer
		if err := gguf.Write(&out, file); err != nil {
			t.Fatalf("write: %v", err)
		}
		again, err := gguf.Parse(out.Bytes())
		if err != nil {
			t.Fatalf("parse of what was written: %v", err)
		}
		sameModel(t, again, file)
		var twice bytes.Buffer
		if err := gguf.Write(&twice, again); err != nil || !bytes.Equal(twice.Bytes(), out.Bytes()) {
			t.Fatalf("second writing differs, error %v", err)
		}
	})
}

// For any two parts, ParseSplit returns a file whose tensors lie within their parts, or an
// error of the package.
func FuzzParseSplit(f *testing.F) {
	parts := splitParts(3)
	f.Add(parts[0], parts[1], parts[2])
	f.Add(parts[1], parts[0], parts[2])
	one := sample()
	f.Add(one, one, one)
	long := make([][]byte, 2)
	for no := range long {
		b := part(no, 2, 4)
		b.SetString(strings.Repeat("\x1b", 1000), strings.Repeat("\x1b", 1000+no))
		long[no] = b.Bytes()
	}
	f.Add(long[0], long[1], one)
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		for _, parts := range [][][]byte{{a}, {a, b}, {a, b, c}} {
			file, err := gguf.ParseSplit(parts...)
			if err != nil {
				// An error quotes at most three strings of a part.
				if !isReadError(err) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 1500 {
					t.Errorf("error %q", err)
				}
				continue
			}
			if file.Parts() != len(parts) {
				t.Fatalf("%d parts of %d", file.Parts(), len(parts))
			}
			for _, ti := range file.Tensors() {
				data := file.Data(ti)
				if int64(len(data)) != ti.Size || ti.Size > 0 && &data[0] != &parts[ti.Part][ti.Offset] {
					t.Fatalf("tensor %q: Data is not the bytes of its part", ti.Name)
				}
			}
		}
	})
}
