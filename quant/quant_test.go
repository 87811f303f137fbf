package quant

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
)

//go:embed testdata
var testdata embed.FS

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := testdata.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func floats(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

// decodable lists the formats that DecodeRow decodes.
func decodable() []dtype.DType {
	return slices.DeleteFunc(dtype.All(), func(d dtype.DType) bool { return !d.SupportsToFloat() })
}

// compare fails for the first value whose bits differ. All NaNs are equal.
func compare(t *testing.T, d dtype.DType, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%v: %d values, want %d", d, len(got), len(want))
	}
	for i := range got {
		g, w := math.Float32bits(got[i]), math.Float32bits(want[i])
		if g != w && (got[i] == got[i] || want[i] == want[i]) {
			t.Fatalf("%v: element %d of block %d is %v (%08x), want %v (%08x)",
				d, i%d.BlockSize(), i/d.BlockSize(), got[i], g, want[i], w)
		}
	}
}

func decode(t *testing.T, d dtype.DType, src []byte) []float32 {
	t.Helper()
	dst := make([]float32, len(src)/d.Size()*d.BlockSize())
	if err := DecodeRow(dst, d, src); err != nil {
		t.Fatal(err)
	}
	return dst
}

// TestDecodeRandomBlocks compares the values of blocks of random bytes with ggml's. They
// exercise every bit of a block, and infinite, NaN and subnormal scales. Each row is decoded
// from four addresses, because blocks need no alignment.
func TestDecodeRandomBlocks(t *testing.T) {
	for _, d := range decodable() {
		if d.IsScalar() || d == dtype.Q2_0 || d == dtype.Q8_1 {
			continue // these have their own tests
		}
		src := readFile(t, d.String()+".rand.bin")
		want := floats(readFile(t, d.String()+".rand.f32"))
		for offset := range 4 {
			moved := append(make([]byte, offset, offset+len(src)), src...)
			compare(t, d, decode(t, d, moved[offset:]), want)
		}
	}
}

// TestDecodeEncoded compares the values of blocks that ggml encoded with ggml's.
func TestDecodeEncoded(t *testing.T) {
	for _, d := range decodable() {
		switch d {
		case dtype.Q2_0, dtype.F64, dtype.F8E4M3, dtype.F8E5M2, dtype.Q8_1:
			continue // ggml does not have or does not decode these
		}
		compare(t, d, decode(t, d, readFile(t, d.String()+".q.bin")), floats(readFile(t, d.String()+".dq.f32")))
	}
}

// Q8_1 decodes like the Q8_0 block of the same scale and codes. ggml encodes Q8_1 but does
// not decode it.
func TestDecodeQ8_1(t *testing.T) {
	compare(t, dtype.Q8_1, decode(t, dtype.Q8_1, readFile(t, "q8_1.q.bin")), floats(readFile(t, "q8_0.dq.f32")))
}

// TestDecodeQ2_0 builds each block from the codes of two Q2_0_G64 blocks with the scale of
// the first one, and expects the values of those two blocks.
func TestDecodeQ2_0(t *testing.T) {
	src := readFile(t, "q2_0_g64.rand.bin")
	for i := 0; i+36 <= len(src); i += 36 {
		first, second := src[i:i+18], slices.Clone(src[i+18:i+36])
		copy(second, first[:2])
		joined := slices.Concat(first, second[2:])
		want := decode(t, dtype.Q2_0_G64, slices.Concat(first, second))
		compare(t, dtype.Q2_0, decode(t, dtype.Q2_0, joined), want)
	}
}

// TestDecodeScalars compares f64 and the FP8 formats, which have no golden values here, with
// the casts of package dtype. It checks every FP8 code.
func TestDecodeScalars(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	wide := []byte{}
	for _, f := range []float64{0, 1, -1.5, 1e300, 1 + 0x1p-24, 1 + 0x1p-24 + 0x1p-50, 1e-320, math.Inf(-1), math.NaN()} {
		wide = binary.LittleEndian.AppendUint64(wide, math.Float64bits(f))
	}
	for d, src := range map[dtype.DType][]byte{dtype.F8E4M3: all, dtype.F8E5M2: all, dtype.F16: all, dtype.BF16: all, dtype.F32: all, dtype.F64: wide} {
		want := make([]byte, 4*(len(src)/d.Size()))
		if err := dtype.Convert(want, dtype.F32, src, d); err != nil {
			t.Fatal(err)
		}
		compare(t, d, decode(t, d, src), floats(want))
	}
}

// The E8M0 scale byte 0 is 2^-127, not 0, and 255 is a NaN, not a number. MXFP4 code 1 is
// half the scale, because the table has doubled levels.
func TestE8M0(t *testing.T) {
	for e := range 256 {
		block := make([]byte, 17)
		block[0] = byte(e)
		block[1] = 0xf2 // 1.0 first, -6.0 at 16
		got := decode(t, dtype.MXFP4, block)
		one, six := math.Ldexp(1, e-127), math.Ldexp(-6, e-127)
		if e == 255 {
			one, six = math.NaN(), math.NaN()
		}
		for _, c := range []struct {
			got  float32
			want float64
		}{{got[0], one}, {got[16], six}} {
			if w := float32(c.want); c.got != w && (w == w || c.got == c.got) {
				t.Errorf("scale byte %d: %v, want %v", e, c.got, w)
			}
		}
	}
}

// TestUE4M3 checks the value of every scale byte of NVFP4.
func TestUE4M3(t *testing.T) {
	for c := range 256 {
		block := make([]byte, 36)
		block[1], block[4+8+3] = byte(c), 0x0f // -6 as element 16+3
		exp, man := c>>3&15, c&7
		scale := math.Ldexp(1+float64(man)/8, exp-7)
		if exp == 0 {
			scale = math.Ldexp(float64(man), -9)
		}
		if c == 0x7f {
			scale = 0
		}
		if got := decode(t, dtype.NVFP4, block)[19]; float64(got) != -6*scale {
			t.Errorf("scale byte %#02x: %v, want %v", c, got, -6*scale)
		}
	}
}

// The grids have the hashes of the little-endian tables of ggml 0.23. A test with a tolerance
// would miss an entry that is wrong by a few percent.
func TestTables(t *testing.T) {
	for _, c := range []struct {
		name   string
		table  any
		sha256 string
	}{
		{"iq2xxs_grid", iq2xxsGrid, "05826b5d3e472a3a78f196be62ac78acf81df0f909626e12ab9fa2a5d490dd54"},
		{"iq2xs_grid", iq2xsGrid, "06e47aaca60b4dc1d9b5a3f34540437058a6b142b4d7a59d5ded769b4d1bf1de"},
		{"iq2s_grid", iq2sGrid, "e1aa1473412b0552c2174c30ef22ab4073f6a181b85a17056e8249bd2932fd88"},
		{"iq3xxs_grid", iq3xxsGrid, "46e35f5a997efdee6c99ce57854c8a0d4f0ff8ca57e5e8a60c0793ea580acf5d"},
		{"iq3s_grid", iq3sGrid, "bd1af4945a1717c65610b0284e4628b9a1ba3b306fae3a06f6e5f597356e349f"},
		{"iq1s_grid", iq1sGrid, "07540ffc1aeaf6ad4d97e96b0fcc765aae39671d4ae4a27bbd0e796fde167c6a"},
		{"kvalues_iq4nl", iq4nlLevels, "61aa47540aa024b5d6ddaa839b84ffe59f3d5a349af5c6c7ffcb5e0474b46163"},
		{"kvalues_fp4", fp4Levels, "adf76b672d47eb7fc0afd4db132d548d59d3190aa0ad118fdbf569d5fd478f97"},
		{"ksigns_iq2xs", evenSigns, "a76742a603f8beca5212ecce0f1f02f11a4887fd2f7c8b15aca0ea3eb3380c31"},
	} {
		var b bytes.Buffer
		if err := binary.Write(&b, binary.LittleEndian, c.table); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(b.Bytes())
		if got := hex.EncodeToString(sum[:]); got != c.sha256 {
			t.Errorf("%s has sha256 %s, want %s", c.name, got, c.sha256)
		}
	}
}

func TestDecodersAreComplete(t *testing.T) {
	for d := range dtype.Count + 2 {
		_, err := DecoderOf(d)
		if ok := err == nil; ok != d.SupportsToFloat() {
			t.Errorf("DecoderOf(%v): %v", d, err)
		}
		if err != nil && !errors.Is(err, dtype.ErrUnsupported) {
			t.Errorf("DecoderOf(%v): %v does not wrap ErrUnsupported", d, err)
		}
	}
}

func TestRowLengths(t *testing.T) {
	for _, d := range decodable() {
		n, size := d.BlockSize(), d.Size()
		if err := DecodeRow(nil, d, nil); err != nil {
			t.Errorf("%v: empty row: %v", d, err)
		}
		lengths := [][2]int{{n, size - 1}, {n, size + 1}, {n, 2 * size}, {2 * n, size}, {0, size}, {n, 0}}
		if n > 1 {
			lengths = append(lengths, [2]int{n - 1, size}, [2]int{n + 1, size}, [2]int{896 + 1, 896 / n * size})
		}
		if 896%n != 0 {
			// A row of 896 columns is not a whole number of blocks of 256.
			lengths = append(lengths, [2]int{896, (896 + n - 1) / n * size}, [2]int{896, 896 / n * size})
		}
		for _, l := range lengths {
			dst := slices.Repeat([]float32{42}, l[0])
			err := DecodeRow(dst, d, make([]byte, l[1]))
			if !errors.Is(err, ErrLength) || !strings.Contains(err.Error(), d.String()) {
				t.Errorf("%v: %d elements of %d bytes: %v", d, l[0], l[1], err)
			}
			if slices.ContainsFunc(dst, func(f float32) bool { return f != 42 }) {
				t.Errorf("%v: wrote to dst on an error", d)
			}
		}
	}
}

// encodable lists the formats that EncodeRow encodes.
func encodable() []dtype.DType {
	return slices.DeleteFunc(dtype.All(), func(d dtype.DType) bool {
		return !d.IsBlockQuantized() && d != dtype.F32 && d != dtype.F16 && d != dtype.BF16
	})
}

// encode encodes rows of rowLen.
func encode(t testing.TB, d dtype.DType, src []float32, rowLen int, importance []float32) []byte {
	t.Helper()
	dst := make([]byte, len(src)/d.BlockSize()*d.Size())
	if err := EncodeRows(dst, d, src, rowLen, importance); err != nil {
		t.Fatalf("%v: %v", d, err)
	}
	return dst
}

// TestEncodeGolden compares encoded bytes with ggml's. If ggml requires an importance vector,
// it was a vector of ones.
func TestEncodeGolden(t *testing.T) {
	src := floats(readFile(t, "input.f32"))
	for _, d := range encodable() {
		if d == dtype.Q2_0 {
			continue // ggml does not have these
		}
		var importance []float32
		if RequiresImportance(d) {
			importance = slices.Repeat([]float32{1}, len(src))
		}
		got, want := encode(t, d, src, len(src), importance), readFile(t, d.String()+".q.bin")
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%v: byte %d of block %d is %#02x, want %#02x", d, i%d.Size(), i/d.Size(), got[i], want[i])
				break
			}
		}
	}
}

// TestEncodeEdges encodes blocks of zeros, which must not get a NaN scale, and blocks whose
// scale is subnormal in f16 or even in f32.
func TestEncodeEdges(t *testing.T) {
	for _, d := range []dtype.DType{dtype.Q8_0, dtype.Q4_0} {
		for _, v := range []float32{0, float32(math.Copysign(0, -1)), 1e-45, -1e-40, 1e-38, 1e-6, -1, 65504, -5e5} {
			row := make([]float32, 32)
			row[3] = v
			row[20] = v / 2
			b := make([]byte, d.Size())
			if err := EncodeRow(b, d, row); err != nil {
				t.Errorf("%v of %v: %v", d, v, err)
			}
			for i, f := range decode(t, d, b) {
				// Allow half a code of the block's extreme and half an f16 step of the scale.
				if diff := math.Abs(float64(f - row[i])); !(diff <= math.Abs(float64(v))/15+127*0x1p-25) {
					t.Errorf("%v of a block with %v: element %d decodes to %v, was %v", d, v, i, f, row[i])
				}
			}
		}
		for _, v := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32} {
			row := make([]float32, 96)
			row[70] = v
			err := EncodeRow(make([]byte, 3*d.Size()), d, row)
			if !errors.Is(err, ErrRange) || !strings.Contains(err.Error(), "elements 64 to 95") {
				t.Errorf("%v of %v: %v", d, v, err)
			}
		}
	}
}

// TestEncodeCodes pins cases that the goldens do not have. Exact halves round away from
// zero. The first of two equal magnitudes sets the sign of a Q4_0 scale. The other cases are
// blocks whose scale becomes zero.
func TestEncodeCodes(t *testing.T) {
	block := func(values ...float32) []float32 { return append(values, make([]float32, 32-len(values))...) }
	for _, c := range []struct {
		name  string
		dtype dtype.DType
		in    []float32
		want  []byte // scale, then the first codes
	}{
		{"halves", dtype.Q8_0, block(127, 0.5, 1.5, 2.5, -0.5, -2.5), []byte{0, 0x3c, 127, 1, 2, 3, 0xff, 0xfd}},
		{"negative extreme", dtype.Q8_0, block(-127, 127), []byte{0, 0x3c, 0x81, 127}},
		{"zeros", dtype.Q8_0, block(), []byte{0, 0, 0, 0}},
		{"scale below f16", dtype.Q8_0, block(1e-9, -1e-9), []byte{0, 0, 127, 0x81}},
		{"scale without an inverse", dtype.Q8_0, block(1e-38, 0), []byte{0, 0, 0, 0}},
		{"first of two extremes", dtype.Q4_0, block(8, -8), []byte{0, 0xbc, 0x80, 0x8f}},
		{"first of two extremes", dtype.Q4_0, block(-8, 8), []byte{0, 0x3c, 0x80, 0x8f}},
		{"halves", dtype.Q4_0, block(-8, 0.5, -0.5, -1.5), []byte{0, 0x3c, 0x80, 0x89, 0x88, 0x87}},
		{"zeros", dtype.Q4_0, block(), []byte{0, 0x80, 0x88}},
		{"negative zeros", dtype.Q4_0, slices.Repeat([]float32{float32(math.Copysign(0, -1))}, 32), []byte{0, 0x80, 0x88}},
		{"scale without an inverse", dtype.Q4_0, block(-1e-39, 0), []byte{0, 0, 0}},
	} {
		got := make([]byte, c.dtype.Size())
		if err := EncodeRow(got, c.dtype, c.in); err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(got, c.want) {
			t.Errorf("%v, %s: % x, want % x", c.dtype, c.name, got[:len(c.want)], c.want)
		}
	}
}

func TestEncodeErrors(t *testing.T) {
	for _, d := range append(dtype.All(), dtype.Invalid, dtype.Count) {
		n, size := d.BlockSize(), d.Size()
		importance := slices.Repeat([]float32{1}, 2*n)
		if !slices.Contains(encodable(), d) {
			if err := EncodeRow(make([]byte, size), d, make([]float32, n)); !errors.Is(err, dtype.ErrUnsupported) {
				t.Errorf("%v: %v", d, err)
			}
			continue
		}
		for _, c := range []struct {
			name       string
			bytes      int
			rowLen     int
			importance []float32
			want       error
		}{
			{"a byte too many", 2*size + 1, 2 * n, importance, ErrLength},
			{"no rows", 2 * size, 0, importance[:0], ErrLength},
			{"negative rows", 2 * size, -n, nil, ErrLength},
			{"rows longer than the whole", 2 * size, 4 * n, append(importance, importance...), ErrLength},
			{"weights too few", 2 * size, 2 * n, importance[:n], ErrImportance},
			{"no weights in a vector", 2 * size, 2 * n, []float32{}, ErrImportance},
			{"negative weight", 2 * size, n, append(slices.Repeat([]float32{1}, n-1), -1), ErrImportance},
			{"NaN weight", 2 * size, n, append(slices.Repeat([]float32{1}, n-1), float32(math.NaN())), ErrImportance},
			{"infinite weight", 2 * size, n, append(slices.Repeat([]float32{1}, n-1), float32(math.Inf(1))), ErrImportance},
			{"rows of one block", 2 * size, n, importance[:n], nil},
			{"one row", 2 * size, 2 * n, importance, nil},
		} {
			err := EncodeRows(make([]byte, c.bytes), d, make([]float32, 2*n), c.rowLen, c.importance)
			if !errors.Is(err, c.want) {
				t.Errorf("%v, %s: %v, want %v", d, c.name, err, c.want)
			}
		}
		// A row of 896 columns is not a whole number of blocks of 256.
		if 896%n != 0 {
			if err := EncodeRow(make([]byte, 896/n*size), d, make([]float32, 896)); !errors.Is(err, ErrLength) {
				t.Errorf("%v of 896 columns: %v", d, err)
			}
		}
		if err := EncodeRow(make([]byte, size), d, make([]float32, n)); RequiresImportance(d) != errors.Is(err, ErrImportance) {
			t.Errorf("%v without an importance vector: %v", d, err)
		}
		if err := EncodeRow(nil, d, nil); err != nil {
			t.Errorf("%v: empty row: %v", d, err)
		}
	}
}

func FuzzDecodeRow(f *testing.F) {
	for _, d := range decodable() {
		f.Add(uint8(d), uint16(d.BlockSize()), bytes.Repeat([]byte{0xa5}, d.Size()))
		f.Add(uint8(d), uint16(2*d.BlockSize()), bytes.Repeat([]byte{0xff}, 2*d.Size()))
	}
	f.Fuzz(func(t *testing.T, tag uint8, n uint16, src []byte) {
		d := dtype.DType(tag)
		dst := make([]float32, n)
		err := DecodeRow(dst, d, src)
		if fits := d.SupportsToFloat() && int(n)%d.BlockSize() == 0 && int(n)/d.BlockSize()*d.Size() == len(src); fits != (err == nil) {
			t.Errorf("%v, %d elements, %d bytes: %v", d, n, len(src), err)
		}
		// A Decoder must stay inside its slices for any lengths.
		if decode, err := DecoderOf(d); err == nil {
			decode(dst, src)
		}
	})
}

func ExampleDecodeRow() {
	row := make([]byte, dtype.Q8_0.Size())
	values := make([]float32, 32)
	values[0], values[1] = 1.27, -0.5
	if err := EncodeRow(row, dtype.Q8_0, values); err != nil {
		fmt.Println(err)
	}
	if err := DecodeRow(values, dtype.Q8_0, row); err != nil {
		fmt.Println(err)
	}
	fmt.Printf("%.3f %.3f %.3f\n", values[0], values[1], values[2])
	// Output: 1.270 -0.500 0.000
}

func BenchmarkDecodeRow(b *testing.B) {
	for _, d := range decodable() {
		b.Run(d.String(), func(b *testing.B) {
			dst := make([]float32, 4096)
			src := make([]byte, 4096/d.BlockSize()*d.Size())
			for i := range src {
				src[i] = byte(i * 37)
			}
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				if err := DecodeRow(dst, d, src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
