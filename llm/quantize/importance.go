package quantize

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/quant"
)

// Importance holds, for matrices of a model, the mean square of each input over a text. It is
// the weight of an error in a column of the matrix. An Importance is immutable.
type Importance struct {
	file     string   // the path that the data was read from, or ""
	datasets []string // the names of the texts that the data was computed on
	chunks   int      // the number of chunks of these texts, or 0 if it is unknown
	// entries holds the weights by the name of the matrix: one for each column. The
	// weights of a stack are those of one expert after another.
	entries map[string][]float32
}

// ReadImportance reads the file at path in one of the two formats of llama.cpp, GGUF or the
// older format ("imatrix.dat"). Errors in the content wrap [ErrImportance].
func ReadImportance(path string) (*Importance, error) {
	bad := func(err error) (*Importance, error) { return nil, fmt.Errorf("%s: %w", path, err) }
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("quantize: %w", err) // like the errors below, err names the path
	}
	if !info.Mode().IsRegular() {
		return bad(fmt.Errorf("%w: not a regular file", ErrImportance))
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("quantize: %w", err)
	}
	defer file.Close()
	head := make([]byte, min(info.Size(), legacyHead))
	if _, err := io.ReadFull(file, head); err != nil {
		return nil, fmt.Errorf("quantize: %s: %w", path, err)
	}
	var m *Importance
	if isGGUF(head) {
		f, err := gguf.Open(path)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrImportance, err)
		}
		defer f.Close()
		m, err = newImportance(func(m *Importance) error { return m.parseGGUF(f) })
		if err != nil {
			return bad(err)
		}
	} else {
		if size := info.Size(); size > largeImportance && !plausibleLegacy(head) {
			return bad(fmt.Errorf("%w: a file of %d bytes that begins like neither format", ErrImportance, size))
		}
		rest, err := io.ReadAll(file)
		if err != nil {
			return nil, fmt.Errorf("quantize: %w", err)
		}
		if m, err = ParseImportance(append(head, rest...)); err != nil {
			return bad(err)
		}
	}
	m.file = path
	return m, nil
}

const (
	// largeImportance is the size from which on the beginning of a file is checked before
	// the file is read, because the path may be that of a model.
	largeImportance = 64 << 20
	// legacyHead is the number of bytes that plausibleLegacy needs.
	legacyHead = 8
)

func isGGUF(data []byte) bool { return bytes.HasPrefix(data, []byte("GGUF")) }

// plausibleLegacy reports whether head may be the beginning of a file in the older format: the
// number of entries and the length of a name.
func plausibleLegacy(head []byte) bool {
	entries, name := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[4:])
	return entries > 0 && entries < 1<<20 && name > 0 && name < 1<<10
}

// ParseImportance reads the content of a file that ReadImportance reads. The result does not
// alias data.
func ParseImportance(data []byte) (*Importance, error) {
	if !isGGUF(data) {
		return newImportance(func(m *Importance) error { return m.parseLegacy(data) })
	}
	f, err := gguf.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrImportance, err)
	}
	defer f.Close()
	return newImportance(func(m *Importance) error { return m.parseGGUF(f) })
}

func newImportance(parse func(*Importance) error) (*Importance, error) {
	m := &Importance{entries: make(map[string][]float32)}
	if err := parse(m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrImportance, err)
	}
	if len(m.entries) == 0 {
		return nil, fmt.Errorf("%w: the file has no entries", ErrImportance)
	}
	return m, nil
}

// Len returns the number of matrices that m has weights for.
func (m *Importance) Len() int { return len(m.entries) }

// of returns the weights for t, or nil if there are none. m may be nil.
func (m *Importance) of(t gguf.TensorInfo) ([]float32, error) {
	if m == nil {
		return nil, nil
	}
	weights := m.entries[t.Name]
	if weights == nil {
		return nil, nil
	}
	want := t.Shape[len(t.Shape)-1]
	if len(t.Shape) > 2 {
		want *= t.Shape[len(t.Shape)-3]
	}
	switch {
	case len(weights) == want:
		return weights, nil
	case isEmbedding(t.Name):
		// An embedding has no weights of its own, because its rows are not multiplied. The
		// entry with its name belongs to its use as the output matrix.
		return nil, nil
	}
	return nil, fmt.Errorf("%w: %d weights for %s, want %d", ErrImportance, len(weights), quoted(t), want)
}

// add adds the entry name. sums holds sums of squares, and counts the number of inputs for each
// of the equal parts of sums. The weights of a part without inputs are those that dead returns
// for its sums.
func (m *Importance) add(name string, sums []float32, counts []float32, dead func(sum float32) float32) error {
	if _, dup := m.entries[name]; dup {
		return fmt.Errorf("two entries are called %s", quote(name))
	}
	if len(sums) == 0 || len(counts) == 0 || len(sums)%len(counts) != 0 {
		return fmt.Errorf("entry %s has %d sums and %d counts", quote(name), len(sums), len(counts))
	}
	n := len(sums) / len(counts)
	weights := make([]float32, len(sums))
	for i, sum := range sums {
		if !(sum >= 0 && sum <= math.MaxFloat32) {
			return fmt.Errorf("sum %d of entry %s is %v, want a finite number of at least 0", i, quote(name), sum)
		}
		if c := counts[i/n]; c > 0 {
			weights[i] = sum / c
		} else {
			weights[i] = dead(sum)
		}
	}
	m.entries[name] = weights
	return nil
}

func (m *Importance) parseGGUF(f *gguf.File) error {
	const sumSuffix, countSuffix = ".in_sum2", ".counts"
	kind, err := f.StringOr("general.type", "imatrix")
	if err != nil {
		return err
	}
	if kind != "imatrix" {
		return fmt.Errorf("general.type is %s, want \"imatrix\"", quote(kind))
	}
	if m.datasets, err = f.Strings("imatrix.datasets"); err != nil {
		return err
	}
	chunks, err := f.Uint("imatrix.chunk_count")
	if err != nil {
		return err
	}
	if chunks > math.MaxInt32 {
		return fmt.Errorf("imatrix.chunk_count is %d, want at most %d", chunks, math.MaxInt32)
	}
	m.chunks = int(chunks)
	if _, err := f.Uint("imatrix.chunk_size"); err != nil {
		return err
	}
	floats := func(name string) ([]float32, error) {
		t, ok := f.Tensor(name)
		if !ok {
			return nil, fmt.Errorf("no tensor %s", quote(name))
		}
		if t.DType != dtype.F32 {
			return nil, fmt.Errorf("tensor %s is %s, want f32", quote(name), t.DType)
		}
		var values []float32
		err := f.View(t, func(data []byte) (err error) {
			values, err = decodeFloats(data)
			return err
		})
		return values, err
	}
	for _, t := range f.Tensors() {
		name, isSum := strings.CutSuffix(t.Name, sumSuffix)
		if !isSum {
			if name, isCount := strings.CutSuffix(t.Name, countSuffix); isCount {
				if _, ok := f.Tensor(name + sumSuffix); !ok {
					return fmt.Errorf("no tensor %s", quote(name+sumSuffix))
				}
			}
			continue
		}
		sums, err := floats(t.Name)
		if err != nil {
			return err
		}
		counts, err := floats(name + countSuffix)
		if err != nil {
			return err
		}
		for i, c := range counts {
			if !(c >= 0 && c <= math.MaxFloat32) {
				return fmt.Errorf("count %d of entry %s is %v, want a finite number of at least 0", i, quote(name), c)
			}
			counts[i] = float32(math.Round(float64(c)))
		}
		// An expert without inputs is as important as the others.
		if err := m.add(name, sums, counts, func(float32) float32 { return 1 }); err != nil {
			return err
		}
	}
	return nil
}

func decodeFloats(b []byte) ([]float32, error) {
	values := make([]float32, len(b)/4)
	err := quant.DecodeRow(values, dtype.F32, b)
	return values, err
}

// parseLegacy reads the older format: the number of entries, the entries, and in most files the
// number of chunks and the name of the text. An entry is a name, a count and sums. All numbers
// are 32-bit and little-endian, and strings and arrays have their length in front.
func (m *Importance) parseLegacy(data []byte) error {
	r := legacyReader{data: data}
	entries := r.length("number of entries", 12)
	for i := 0; i < entries && r.err == nil; i++ {
		what := fmt.Sprintf("entry %d", i)
		name := string(r.bytes(what, r.length(what, 1)))
		count := r.int32(what)
		n := r.length(what, 4)
		packed := r.bytes(what, 4*n)
		if r.err != nil {
			break
		}
		sums, err := decodeFloats(packed)
		if err != nil {
			return err
		}
		name, _, _ = strings.Cut(name, "\x00")
		err = m.add(name, sums, []float32{float32(count)}, func(sum float32) float32 { return sum })
		if err != nil {
			return err
		}
	}
	if r.err != nil || len(r.data) == r.off {
		return r.err
	}
	m.chunks = max(0, int(r.int32("number of chunks")))
	if r.err == nil && len(r.data) > r.off {
		if text := r.bytes("dataset", r.length("dataset", 1)); len(text) > 0 {
			m.datasets = []string{string(text)}
		}
	}
	return r.err
}

// legacyReader reads numbers and bytes, and keeps the first error.
type legacyReader struct {
	data []byte
	off  int
	err  error
}

func (r *legacyReader) bytes(what string, n int) []byte {
	if r.err == nil && n > len(r.data)-r.off {
		r.err = fmt.Errorf("%s at byte %d takes %d bytes, the file has %d left", what, r.off, n, len(r.data)-r.off)
	}
	if r.err != nil {
		return nil
	}
	b := r.data[r.off : r.off+n]
	r.off += n
	return b
}

func (r *legacyReader) int32(what string) int32 {
	b := r.bytes(what, 4)
	if r.err != nil {
		return 0
	}
	return int32(binary.LittleEndian.Uint32(b))
}

// length reads a number of elements that have at least size bytes each. The size of the file
// bounds it.
func (r *legacyReader) length(what string, size int) int {
	start := r.off
	n := r.int32(what)
	if r.err == nil && (n < 0 || int(n) > (len(r.data)-r.off)/size) {
		r.err = fmt.Errorf("%s at byte %d counts %d, the file has %d bytes left", what, start, n, len(r.data)-r.off)
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}
