package gguf_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/gguf"
)

// Whatever the bytes, Parse returns a file whose tensors lie apart and within
// them, or a one-line error of the package; and it allocates at most a small
// multiple of their number.
func FuzzParse(f *testing.F) {
	paths, err := filepath.Glob(filepath.Join(malformedDir, "*.gguf"))
	if err != nil || len(paths) == 0 {
		f.Fatalf("no seed files: %v", err)
	}
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add(sample())
	for _, align := range []uint32{1, 64} {
		f.Add(countedTensors(align).Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		file, err := gguf.Parse(data)
		runtime.ReadMemStats(&after)
		// Other goroutines of the fuzzer allocate too: the constant is theirs.
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
