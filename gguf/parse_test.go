package gguf_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/tests/ggufbuild"
)

const malformedDir = "testdata/malformed"

// stricter lists the files that ggml accepts and this package refuses, with
// the reason that the error must give.
var stricter = map[string]string{
	"bad_ne_overflow3.gguf": "larger than",
	"bad_bool_2.gguf":       "bool of 2",
}

// Parse accepts and refuses the same files as ggml, except that it refuses the stricter
// ones.
func TestVerdicts(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(malformedDir, "verdicts.json"))
	if err != nil {
		t.Fatal(err)
	}
	var verdicts []struct {
		File    string
		Size    int
		Verdict string `json:"llama_cpp"`
	}
	if err := json.Unmarshal(raw, &verdicts); err != nil {
		t.Fatal(err)
	}
	for _, v := range verdicts {
		t.Run(v.File, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(malformedDir, v.File))
			if err != nil {
				t.Fatal(err)
			}
			if len(data) != v.Size {
				t.Fatalf("file has %d bytes, want %d", len(data), v.Size)
			}
			f, err := gguf.Parse(data)
			reason, refuse := stricter[v.File]
			if v.Verdict == "accept" && !refuse {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				checkFile(t, f, data)
				return
			}
			if err == nil {
				t.Fatal("accepted")
			}
			if !isReadError(err) {
				t.Errorf("error wraps no sentinel: %v", err)
			}
			if !strings.Contains(err.Error(), reason) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want one line with %q", err, reason)
			}
		})
	}
}

func isReadError(err error) bool {
	return errors.Is(err, gguf.ErrNotGGUF) || errors.Is(err, gguf.ErrVersion) || errors.Is(err, gguf.ErrMalformed)
}

// checkFile checks that the tensors lie within the image and do not overlap, and that the
// metadata decodes.
func checkFile(t *testing.T, f *gguf.File, image []byte) {
	t.Helper()
	var end int64
	for _, ti := range f.Tensors() {
		if ti.Offset < end || ti.Size < 0 || ti.Offset+ti.Size > int64(len(image)) {
			t.Fatalf("tensor %q lies at [%d, +%d), previous end %d, file size %d", ti.Name, ti.Offset, ti.Size, end, len(image))
		}
		end = ti.Offset + ti.Size
		elements := 1
		for _, d := range ti.Shape {
			elements *= d
		}
		if got := int64(elements/ti.DType.BlockSize()) * int64(ti.DType.Size()); got != ti.Size {
			t.Fatalf("tensor %q: %d elements of %s take %d bytes, Size is %d", ti.Name, elements, ti.DType, got, ti.Size)
		}
		if ti.Size == 0 {
			if _, err := f.Buffer(ti); !errors.Is(err, gguf.ErrEmptyTensor) {
				t.Fatalf("Buffer of the empty tensor %q: %v", ti.Name, err)
			}
		}
		if data := f.Data(ti); int64(len(data)) != ti.Size || ti.Size > 0 && &data[0] != &image[ti.Offset] {
			t.Fatalf("tensor %q: Data is not the image's bytes", ti.Name)
		}
		if got, ok := f.Tensor(ti.Name); !ok || !reflect.DeepEqual(got, ti) {
			t.Fatalf("Tensor(%q) = %v, %v, want %v", ti.Name, got, ok, ti)
		}
	}
	for _, k := range f.Keys() {
		v, ok := f.Value(k)
		if !ok {
			t.Fatalf("Value(%q) is absent", k)
		}
		_, _ = v.Interface(), v.String()
	}
}

func TestHeaderErrors(t *testing.T) {
	header := func(version uint32, tensors, pairs uint64) []byte {
		b := []byte("GGUF")
		b = binary.LittleEndian.AppendUint32(b, version)
		b = binary.LittleEndian.AppendUint64(b, tensors)
		return binary.LittleEndian.AppendUint64(b, pairs)
	}
	for _, tt := range []struct {
		name string
		data []byte
		is   error
		want string
	}{
		{"empty", nil, gguf.ErrNotGGUF, "magic"},
		{"other magic", []byte("GGML\x03\x00\x00\x00"), gguf.ErrNotGGUF, `found "GGML"`},
		{"magic only", []byte("GGUF"), gguf.ErrMalformed, "version"},
		{"version 0", header(0, 0, 0), gguf.ErrVersion, "0, want 2 or 3"},
		{"version 1", header(1, 0, 0), gguf.ErrVersion, "1, want 2 or 3"},
		{"version 4", header(4, 0, 0), gguf.ErrVersion, "4, want 2 or 3"},
		{"big-endian", header(0x03000000, 0, 0), gguf.ErrVersion, "big-endian"},
		{"one tensor", header(3, 1, 0), gguf.ErrMalformed, "1 tensors"},
		{"2^63 tensors", header(3, 1<<63, 0), gguf.ErrMalformed, "tensors"},
		{"2^61 pairs", header(3, 0, 1<<61), gguf.ErrMalformed, "pairs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := gguf.Parse(tt.data)
			if !errors.Is(err, tt.is) || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("error %v, want %v with %q", err, tt.is, tt.want)
			}
		})
	}
	for _, version := range []uint32{2, 3} {
		f, err := gguf.Parse(header(version, 0, 0))
		if err != nil || f.Version() != int(version) {
			t.Errorf("version %d: %v, %v", version, f, err)
		}
	}
}

// The alignments 0, 1, 13 and 2^31, and an alignment of another type, are accepted or
// refused as the format says.
func TestAlignment(t *testing.T) {
	data := make([]byte, 16)
	for _, tt := range []struct {
		name  string
		build func(b *ggufbuild.Builder)
		want  int64
		err   string
	}{
		{"default", func(*ggufbuild.Builder) {}, 32, ""},
		{"1", func(b *ggufbuild.Builder) { b.Alignment = 1 }, 1, ""},
		{"2", func(b *ggufbuild.Builder) { b.Alignment = 2 }, 2, ""},
		{"4096", func(b *ggufbuild.Builder) { b.Alignment = 4096 }, 4096, ""},
		{"0", func(b *ggufbuild.Builder) { b.SetUint32("general.alignment", 0) }, 0, "is 0, want a power of two"},
		{"13", func(b *ggufbuild.Builder) { b.SetUint32("general.alignment", 13) }, 0, "is 13, want a power of two"},
		{"2^31", func(b *ggufbuild.Builder) { b.SetUint32("general.alignment", 1<<31) }, 0, "the data section begins at byte 2147483648"},
		{"u64", func(b *ggufbuild.Builder) { b.SetUint64("general.alignment", 32) }, 0, "is u64, want u32"},
		{"str", func(b *ggufbuild.Builder) { b.SetString("general.alignment", "32") }, 0, "is str, want u32"},
		{"array", func(b *ggufbuild.Builder) { b.SetUint32s("general.alignment", []uint32{32}) }, 0, "is arr of u32, want u32"},
		{"empty array", func(b *ggufbuild.Builder) { b.SetUint32s("general.alignment", nil) }, 0, "is arr of u32, want u32"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b ggufbuild.Builder
			tt.build(&b)
			b.AddTensor("a", dtype.I8, []int{3}, data[:3])
			b.AddTensor("b", dtype.F32, []int{4}, data)
			image := b.Bytes()
			f, err := gguf.Parse(image)
			if tt.err != "" {
				if !errors.Is(err, gguf.ErrMalformed) || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if f.Alignment() != tt.want {
				t.Errorf("Alignment() = %d, want %d", f.Alignment(), tt.want)
			}
			checkFile(t, f, image)
		})
	}
	var b ggufbuild.Builder
	b.SetUint32("general.alignment", 1<<31)
	if f, err := gguf.Parse(b.Bytes()); err != nil || f.Alignment() != 1<<31 {
		t.Errorf("alignment 2^31 without tensors: %v", err)
	}
}

// rawTensor is a tensor description as stored in a file.
type rawTensor struct {
	name   string
	dims   []uint64 // innermost first
	id     uint32
	offset uint64
}

// rawFile returns an image with these descriptions, unchecked, and a data
// section of n bytes.
func rawFile(n int, tensors ...rawTensor) []byte {
	b := []byte("GGUF\x03\x00\x00\x00")
	b = binary.LittleEndian.AppendUint64(b, uint64(len(tensors)))
	b = binary.LittleEndian.AppendUint64(b, 0)
	for _, t := range tensors {
		b = binary.LittleEndian.AppendUint64(b, uint64(len(t.name)))
		b = append(b, t.name...)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(t.dims)))
		for _, d := range t.dims {
			b = binary.LittleEndian.AppendUint64(b, d)
		}
		b = binary.LittleEndian.AppendUint32(b, t.id)
		b = binary.LittleEndian.AppendUint64(b, t.offset)
	}
	b = append(b, make([]byte, (32-len(b)%32)%32)...)
	return append(b, make([]byte, n)...)
}

// Products of dims that wrap around, too many dims, tensors past the end of the file,
// repeated names and overlap are refused. Missing padding after the last tensor is
// accepted.
func TestTensorChecks(t *testing.T) {
	const f32, f16, q8_0, i8 = 0, 1, 8, 24
	one := func(n int, dims ...uint64) []byte { return rawFile(n, rawTensor{"w", dims, f32, 0}) }
	for _, tt := range []struct {
		name string
		data []byte
		err  string // empty: accepted
	}{
		{"one", one(128, 32), ""},
		{"no dims", one(4), ""},
		{"four dims", one(96, 1, 2, 3, 4), ""},
		{"five dims", one(96, 1, 2, 3, 4, 1), "has 5 dims"},
		{"[2^32, 2^32]", one(128, 1<<32, 1<<32), "larger than"},
		{"[2^64-1, 2]", one(128, math.MaxUint64, 2), "dim of 18446744073709551615"},
		{"[2^63-1, 1]", one(128, math.MaxInt64), "larger than"},
		{"[2^62, 4]", one(128, 1<<62, 4), "larger than"},
		{"[2^61, 1]: bytes wrap to 2^63", one(128, 1<<61), "larger than"},
		{"[2^21]*3", one(128, 1<<21, 1<<21, 1<<21), "larger than"},
		{"2^40 elements", one(128, 1<<20, 1<<20), "data section has 128"},
		{"dim 0 first", one(128, 0, 4), ""},
		{"dim 0 last", one(128, 4, 0), ""},
		{"dim 0 hides overflow", one(128, 1<<62, 1<<62, 0), "larger than"},
		{"one byte short", one(127, 32), "takes 128 bytes at offset 0, the data section has 127"},
		{"no data", one(0, 32), "the data section has 0"},
		{"bytes after the last", one(500, 32), ""},
		{"last unpadded", rawFile(3, rawTensor{"w", []uint64{3}, i8, 0}), ""},
		{"block row", rawFile(34, rawTensor{"w", []uint64{32}, q8_0, 0}), ""},
		{"half a block", rawFile(34, rawTensor{"w", []uint64{16, 2}, q8_0, 0}), "rows of 16 elements"},
		{"removed type", rawFile(34, rawTensor{"w", []uint64{32}, 4, 0}), "type 4"},
		{"type 43", rawFile(34, rawTensor{"w", []uint64{32}, 43, 0}), "type 43"},
		{"first not at 0", rawFile(256, rawTensor{"w", []uint64{32}, f32, 32}), "offset 32, want 0"},
		{"offset 2^64-32", rawFile(256, rawTensor{"w", []uint64{32}, f32, math.MaxUint64 - 31}), "offset 18446744073709551584"},
		{"two", rawFile(160, rawTensor{"a", []uint64{3}, f32, 0}, rawTensor{"b", []uint64{32}, f32, 32}), ""},
		{"unaligned", rawFile(160, rawTensor{"a", []uint64{3}, f32, 0}, rawTensor{"b", []uint64{32}, f32, 12}), "offset 12, want 32"},
		{"overlap", rawFile(256, rawTensor{"a", []uint64{32}, f32, 0}, rawTensor{"b", []uint64{32}, f32, 64}), "offset 64, want 128"},
		{"same bytes", rawFile(256, rawTensor{"a", []uint64{32}, f32, 0}, rawTensor{"b", []uint64{32}, f32, 0}), "offset 0, want 128"},
		{"gap", rawFile(512, rawTensor{"a", []uint64{3}, f32, 0}, rawTensor{"b", []uint64{32}, f32, 64}), "offset 64, want 32"},
		{"second past the end", rawFile(12, rawTensor{"a", []uint64{3}, f32, 0}, rawTensor{"b", []uint64{1}, f32, 32}), "takes 4 bytes at offset 32"},
		{"one name twice", rawFile(64, rawTensor{"a", []uint64{3}, f32, 0}, rawTensor{"a", []uint64{3}, f16, 32}), `repeats the name "a"`},
		{"name of 63", rawFile(4, rawTensor{strings.Repeat("n", 63), nil, f32, 0}), ""},
		{"name of 64", rawFile(4, rawTensor{strings.Repeat("n", 64), nil, f32, 0}), "has 64 bytes"},
		{"NUL in a name", rawFile(4, rawTensor{"a\x00b", nil, f32, 0}), "NUL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := gguf.Parse(tt.data)
			if tt.err == "" {
				if err != nil {
					t.Fatal(err)
				}
				checkFile(t, f, tt.data)
				return
			}
			if !errors.Is(err, gguf.ErrMalformed) || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

func TestTensorInfo(t *testing.T) {
	var b ggufbuild.Builder
	b.SetString("general.architecture", "test")
	b.AddTensor("matrix", dtype.Q8_0, []int{3, 64}, bytes.Repeat([]byte{1}, 3*68))
	b.AddTensor("vector", dtype.F32, []int{5}, bytes.Repeat([]byte{2}, 20))
	b.AddTensor("cube", dtype.F16, []int{2, 3, 4}, bytes.Repeat([]byte{3}, 48))
	b.AddTensor("scalar", dtype.I64, nil, bytes.Repeat([]byte{4}, 8))
	image := b.Bytes()
	f, err := gguf.Parse(image)
	if err != nil {
		t.Fatal(err)
	}
	checkFile(t, f, image)
	start := f.Tensors()[0].Offset
	want := []gguf.TensorInfo{
		{Name: "matrix", DType: dtype.Q8_0, Shape: []int{3, 64}, Offset: start, Size: 204},
		{Name: "vector", DType: dtype.F32, Shape: []int{5}, Offset: start + 224, Size: 20},
		{Name: "cube", DType: dtype.F16, Shape: []int{2, 3, 4}, Offset: start + 256, Size: 48},
		{Name: "scalar", DType: dtype.I64, Shape: []int{1}, Offset: start + 320, Size: 8},
	}
	same := func(a, b gguf.TensorInfo) bool {
		return a.Name == b.Name && a.DType == b.DType && slices.Equal(a.Shape, b.Shape) && a.Offset == b.Offset && a.Size == b.Size
	}
	if got := f.Tensors(); !slices.EqualFunc(got, want, same) {
		t.Errorf("tensors\n%+v, want\n%+v", got, want)
	}
	for i, ti := range want {
		if d := f.Data(ti); d[0] != byte(i+1) || d[len(d)-1] != byte(i+1) || cap(d) != len(d) {
			t.Errorf("%s: data %v, cap %d", ti.Name, d, cap(d))
		}
	}
	if _, ok := f.Tensor("absent"); ok {
		t.Error("Tensor found an absent name")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if f.Data(want[0]) != nil {
		t.Error("Data after Close is not nil")
	}
	if s, err := f.String("general.architecture"); s != "test" || err != nil {
		t.Errorf("metadata after Close: %q, %v", s, err)
	}
}

// Every format that a file can contain is read back as that format.
func TestFormats(t *testing.T) {
	var b ggufbuild.Builder
	want := map[string]dtype.DType{}
	for _, d := range dtype.All() {
		if d.GGUF() == dtype.NoGGUF || d == dtype.Q2_0 {
			continue
		}
		want[d.String()] = d
		b.AddTensor(d.String(), d, []int{2, d.BlockSize()}, make([]byte, 2*d.Size()))
	}
	image := b.Bytes()
	f, err := gguf.Parse(image)
	if err != nil {
		t.Fatal(err)
	}
	checkFile(t, f, image)
	for name, d := range want {
		if ti, ok := f.Tensor(name); !ok || ti.DType != d {
			t.Errorf("tensor %s has type %s", name, ti.DType)
		}
	}
}

// Type 42 is q2_0 (128 elements in 34 bytes) or q2_0_g64 (64 elements in 18 bytes). The
// extents of all tensors of the file decide which.
func TestType42(t *testing.T) {
	const n = 128 * 32 // large enough that padding cannot hide the difference
	type spec struct {
		shape []int
		size  int
	}
	g64 := func(shape ...int) spec { return spec{shape, product(shape) / 64 * 18} }
	q2 := func(shape ...int) spec { return spec{shape, product(shape) / 128 * 34} }
	for _, tt := range []struct {
		name  string
		specs []spec
		trim  int // bytes cut from the end
		tail  int // bytes added at the end
		after bool
		want  dtype.DType
		err   string
	}{
		{name: "g64", specs: []spec{g64(n), g64(n)}, want: dtype.Q2_0_G64},
		{name: "q2", specs: []spec{q2(n), q2(n)}, want: dtype.Q2_0},
		{name: "q2 then f32", specs: []spec{q2(n)}, after: true, want: dtype.Q2_0},
		{name: "g64 then f32", specs: []spec{g64(n)}, after: true, want: dtype.Q2_0_G64},
		{name: "last decides: g64", specs: []spec{g64(n)}, want: dtype.Q2_0_G64},
		{name: "last decides: q2", specs: []spec{q2(n)}, want: dtype.Q2_0},
		{name: "last decides: q2 unpadded", specs: []spec{q2(n + 128)}, trim: 30, want: dtype.Q2_0},
		{name: "small ones follow a large q2", specs: []spec{q2(128), q2(n), q2(128)}, want: dtype.Q2_0},
		{name: "small ones follow a large g64", specs: []spec{g64(128), g64(n), g64(128)}, want: dtype.Q2_0_G64},
		{name: "both fit", specs: []spec{q2(128), q2(128)}, want: dtype.Q2_0_G64},
		{name: "rows of 64", specs: []spec{g64(3, 64)}, want: dtype.Q2_0_G64},
		{name: "bytes after the last", specs: []spec{g64(n)}, tail: 1000, want: dtype.Q2_0_G64},
		{name: "mixed", specs: []spec{q2(n), g64(n)}, after: true, err: "fits neither"},
		{name: "neither", specs: []spec{{[]int{n}, 2000}}, after: true, err: "fits neither"},
		{name: "too short", specs: []spec{{[]int{n}, 1000}}, err: "fits neither"},
		{name: "rows of 32", specs: []spec{{[]int{32}, 18}}, err: "rows of 32"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b ggufbuild.Builder
			for i, s := range tt.specs {
				b.AddTensor(fmt.Sprint("w", i), dtype.Q2_0, s.shape, make([]byte, s.size))
			}
			if tt.after {
				b.AddTensor("f", dtype.F32, []int{8}, make([]byte, 32))
			}
			image := b.Bytes()
			image = append(image[:len(image)-tt.trim], make([]byte, tt.tail)...)
			f, err := gguf.Parse(image)
			if tt.err != "" {
				if !errors.Is(err, gguf.ErrMalformed) || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			checkFile(t, f, image)
			for i, s := range tt.specs {
				ti, _ := f.Tensor(fmt.Sprint("w", i))
				if ti.DType != tt.want || !reflect.DeepEqual(ti.Shape, s.shape) {
					t.Errorf("tensor %s is %s %v, want %s %v", ti.Name, ti.DType, ti.Shape, tt.want, s.shape)
				}
			}
		})
	}
}

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// A small file with huge lengths or counts makes the parser allocate at most a small
// multiple of the file's size.
func TestHugeCountsAllocateLittle(t *testing.T) {
	u32, u64 := binary.LittleEndian.AppendUint32, binary.LittleEndian.AppendUint64
	pair := func(typ ...uint32) []byte {
		b := []byte("GGUF\x03\x00\x00\x00")
		b = u64(u64(b, 0), 1)
		b = append(u64(b, 1), 'k')
		for _, t := range typ {
			b = u32(b, t)
		}
		return b
	}
	var inputs [][]byte
	for _, n := range []uint64{1 << 20, 1 << 31, 1<<32 + 1, 1 << 61, 1<<61 + 1, 1 << 63, math.MaxUint64 - 7, math.MaxUint64} {
		header := []byte("GGUF\x03\x00\x00\x00")
		inputs = append(inputs,
			u64(u64(header, n), 0), // tensors
			u64(u64(header, 0), n), // pairs
			append(u64(u64(u64(header, 0), 1), n), "key\x00value"...), // key length, 36 bytes
			append(u64(u64(u64(header, 1), 0), n), "name0123456789"...),
			u64(pair(8), n), // string length
		)
		for elem := uint32(0); elem < 13; elem++ {
			inputs = append(inputs, append(u64(pair(9, elem), n), 1, 0, 0, 0, 0, 0, 0, 0))
		}
	}
	for _, in := range inputs {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f, err := gguf.Parse(in)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("accepted %q: %v", in, f.Keys())
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 16<<10 {
			t.Errorf("parsing the %d bytes %q allocated %d bytes", len(in), in, got)
		}
	}
}

// A tensor count that the whole file could hold, but not the part after the metadata, is
// refused before anything is allocated for it.
func TestTensorCountAfterMetadata(t *testing.T) {
	var b ggufbuild.Builder
	b.SetString("padding", strings.Repeat("x", 24_000))
	image := b.Bytes()
	binary.LittleEndian.PutUint64(image[8:], 1000)
	_, err := gguf.Parse(image)
	if !errors.Is(err, gguf.ErrMalformed) || !strings.Contains(err.Error(), "1000 tensors are described at byte") {
		t.Errorf("error %v", err)
	}
}

// Every truncation of a valid file is refused without a panic, unless only the padding
// after the last tensor is missing.
func TestTruncation(t *testing.T) {
	image := sample()
	f, err := gguf.Parse(image)
	if err != nil {
		t.Fatal(err)
	}
	last := f.Tensors()[len(f.Tensors())-1]
	for n := range image {
		_, err := gguf.Parse(image[:n])
		if whole := int64(n) >= last.Offset+last.Size; whole != (err == nil) {
			t.Errorf("%d of %d bytes: error %v", n, len(image), err)
		}
	}
}

// sample is an image with a value of every type and a few tensors.
func sample() []byte {
	var b ggufbuild.Builder
	b.SetUint8("u8", math.MaxUint8)
	b.SetInt8("i8", math.MinInt8)
	b.SetUint16("u16", math.MaxUint16)
	b.SetInt16("i16", math.MinInt16)
	b.SetUint32("u32", math.MaxUint32)
	b.SetInt32("i32", math.MinInt32)
	b.SetUint64("u64", math.MaxUint64)
	b.SetInt64("i64", math.MinInt64)
	b.SetFloat32("f32", 1.5)
	b.SetFloat64("f64", math.Pi)
	b.SetBool("true", true)
	b.SetBool("false", false)
	b.SetString("str", "forge\n")
	b.SetString("str.empty", "")
	b.SetStrings("strs", []string{"a", "", "\xff\x00"})
	b.SetStrings("strs.empty", nil)
	b.SetInt32s("i32s", []int32{-1, 0, 1})
	b.SetUint32s("u32s", []uint32{0, math.MaxUint32})
	b.SetUint64s("u64s", []uint64{1, math.MaxUint64})
	b.SetFloat32s("f32s", []float32{1, 2, 3, 4, 5, 6, 7.25})
	b.SetFloat64s("f64s", []float64{math.Inf(1)})
	b.SetBools("bools", []bool{true, false})
	b.AddTensor("a", dtype.F32, []int{2, 3}, make([]byte, 24))
	b.AddTensor("b", dtype.Q4_K, []int{256}, make([]byte, 144))
	b.AddTensor("c", dtype.F16, []int{3}, make([]byte, 6))
	return b.Bytes()
}

func TestElements(t *testing.T) {
	for _, tt := range []struct {
		shape []int
		want  int64
	}{{[]int{1}, 1}, {[]int{7}, 7}, {[]int{2, 3, 4, 5}, 120}, {[]int{3, 0, 2}, 0}} {
		if got := (gguf.TensorInfo{Shape: tt.shape}).Elements(); got != tt.want {
			t.Errorf("%v: %d elements, want %d", tt.shape, got, tt.want)
		}
	}
}
