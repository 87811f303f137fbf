package quant

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/tests/countdown"
)

// lcg generates numbers that any language reproduces bit for bit: exact multiples of 2^-16.
type lcg uint32

// uniform returns the next number in [0, 1).
func (s *lcg) uniform() float32 {
	*s = *s*1664525 + 1013904223
	return float32(*s>>16) / 65536
}

// bell returns a number in (-2, 2) with a bell-shaped distribution.
func (s *lcg) bell() float32 {
	return s.uniform() + s.uniform() + s.uniform() + s.uniform() - 2
}

// distributions are typical and extreme values for the encoders. The recorder of testdata
// has the same ones.
var distributions = []struct {
	name string
	next func(s *lcg, i int) float32
}{
	{"bell", func(s *lcg, _ int) float32 { return s.bell() }},
	{"heavy", func(s *lcg, _ int) float32 { return s.bell() / (s.uniform() + 0x1p-9) }},
	{"zeros", func(s *lcg, i int) float32 {
		v := s.bell()
		switch {
		case i/32%4 == 1 || i/16%6 == 5: // whole groups
			return float32(math.Copysign(0, float64(v)))
		case i/32%4 == 2 && s.uniform() < 0.9:
			return 0
		}
		return v
	}},
	{"tiny", func(s *lcg, i int) float32 {
		return s.bell() * []float32{0x1p-20, 0x1p-45, 0x1p-60, 0x1p-120}[i/256%4]
	}},
	{"huge", func(s *lcg, _ int) float32 { return s.bell() * 2000 }},
	{"ties", func(s *lcg, _ int) float32 { return float32(int(s.uniform()*257)-128) / 2 }},
	{"constant", func(_ *lcg, i int) float32 { return []float32{3.25, -3.25, 0, -0.1}[i/64%4] }},
	{"nearly constant", func(s *lcg, i int) float32 {
		return []float32{3.25, -3.25}[i/256%2] * (1 + 0x1p-22*float32(int(s.uniform()*4)))
	}},
	{"negative", func(s *lcg, _ int) float32 { return -1 - s.uniform() }},
}

// importances are weights of columns; nil means none.
var importances = []struct {
	name string
	next func(s *lcg, i int) float32
}{
	{"none", nil},
	{"square", func(s *lcg, _ int) float32 { v := s.bell(); return float32(v*v) + 0x1p-10 }},
	{"sparse", func(s *lcg, i int) float32 {
		if v := s.uniform(); v > 0.5 && i/32%8 != 3 {
			return v
		}
		return 0
	}},
}

const goldenRow = 512

// generate returns two rows of a distribution, and an importance vector or nil.
func generate(dist, imp int) (x, importance []float32) {
	s := lcg(1000*dist + imp + 1)
	for i := range 2 * goldenRow {
		x = append(x, distributions[dist].next(&s, i))
	}
	if next := importances[imp].next; next != nil {
		for i := range goldenRow {
			importance = append(importance, next(&s, i))
		}
	}
	return x, importance
}

// TestEncodeGenerated compares the hashes of encoded generated rows with ggml's.
func TestEncodeGenerated(t *testing.T) {
	want := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(readFile(t, "encode.sha256")))
	for lines.Scan() {
		if hash, name, ok := strings.Cut(lines.Text(), " "); ok {
			want[name] = hash
		}
	}
	for dist := range distributions {
		for imp := range importances {
			x, importance := generate(dist, imp)
			for _, d := range encodable() {
				name := fmt.Sprintf("%v %s %s", d, distributions[dist].name, importances[imp].name)
				hash, ok := want[name]
				if !ok {
					if d.IsBlockQuantized() && d != dtype.Q2_0 && !(importance == nil && RequiresImportance(d)) {
						t.Errorf("%s has no hash", name)
					}
					continue
				}
				delete(want, name)
				sum := sha256.Sum256(encode(t, d, x, goldenRow, importance))
				if got := hex.EncodeToString(sum[:8]); got != hash {
					t.Errorf("%s: sha256 %s, want %s", name, got, hash)
				}
			}
		}
	}
	for name := range want {
		t.Errorf("there is no case %q", name)
	}
}

// TestEncodeQ2_0 expects the result of Q2_0_G64 for blocks of 128 whose halves have the same
// largest magnitude.
func TestEncodeQ2_0(t *testing.T) {
	x, _ := generate(0, 0)
	for i := 0; i < len(x); i += 64 {
		x[i+7] = -2
	}
	got, want := encode(t, dtype.Q2_0, x, len(x), nil), encode(t, dtype.Q2_0_G64, x, len(x), nil)
	for i := range len(x) / 128 {
		first, second := want[36*i:36*i+18], want[36*i+18:36*i+36]
		if !bytes.Equal(got[34*i:34*i+34], slices.Concat(first, second[2:])) {
			t.Errorf("block %d is % x, want % x and % x", i, got[34*i:34*i+34], first, second)
		}
	}
}

// TestEncodeError holds the error of a round trip to the bounds of ggml's
// test-quantize-fns, on its data, with an importance vector of ones where one is
// required.
func TestEncodeError(t *testing.T) {
	x := make([]float32, 4096)
	for i := range x {
		x[i] = float32(0.1 + 2*math.Cos(float64(i)))
	}
	ones := slices.Repeat([]float32{1}, len(x))
	for _, d := range encodable() {
		limit := 0.002
		switch d {
		case dtype.TQ1_0, dtype.TQ2_0, dtype.Q1_0, dtype.Q2_0, dtype.Q2_0_G64:
			limit = 0.01
		case dtype.Q2_K, dtype.IQ2_S, dtype.IQ2_XS, dtype.IQ2_XXS:
			limit = 0.0075
		case dtype.IQ1_S, dtype.IQ1_M:
			limit = 0.0125 // ours: ggml does not test them
		case dtype.Q3_K, dtype.IQ3_S:
			limit = 0.004
		case dtype.IQ3_XXS:
			limit = 0.005
		case dtype.NVFP4, dtype.MXFP4:
			limit = 0.003
		}
		for _, importance := range [][]float32{nil, ones} {
			if importance == nil && RequiresImportance(d) {
				continue
			}
			sum := 0.0
			for i, v := range decode(t, d, encode(t, d, x, len(x), importance)) {
				sum += float64(v-x[i]) * float64(v-x[i])
			}
			// ggml divides the root of the sum, not the sum, by the length.
			if e := math.Sqrt(sum) / float64(len(x)); !(e <= limit) {
				t.Errorf("%v: error %.5f, limit %.5f", d, e, limit)
			}
		}
	}
}

// A block of zeros does not get a NaN scale: it decodes to zeros in every format.
func TestEncodeZeros(t *testing.T) {
	for _, d := range encodable() {
		for _, zero := range []float32{0, float32(math.Copysign(0, -1))} {
			for _, weight := range []float32{0, 1} {
				x, importance := slices.Repeat([]float32{zero}, 512), slices.Repeat([]float32{weight}, 512)
				for i, v := range decode(t, d, encode(t, d, x, 512, importance)) {
					if v != 0 {
						t.Errorf("%v: element %d of zeros decodes to %v", d, i, v)
						break
					}
				}
			}
		}
	}
}

// A value that is not finite is refused wherever it is, and so is a value that overflows a
// scale. Other values decode to finite values.
func TestEncodeRange(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, d := range encodable() {
		if !d.IsBlockQuantized() {
			continue
		}
		ones := slices.Repeat([]float32{1}, 1024)
		for _, v := range []float32{nan, inf, -inf} {
			for _, at := range []int{0, 255, 700, 1023} {
				x := slices.Repeat([]float32{0.5}, 1024)
				x[at] = v
				err := EncodeRows(make([]byte, 1024/d.BlockSize()*d.Size()), d, x, 512, ones[:512])
				first := at % 512 / d.BlockSize() * d.BlockSize()
				if where := fmt.Sprintf("in row %d, elements %d to %d of %v", at/512, first, first+d.BlockSize()-1, d); !errors.Is(err, ErrRange) || !strings.Contains(err.Error(), where) {
					t.Errorf("%v with %v at %d: %v", d, v, at, err)
				}
			}
		}
		refused := false
		for e := -149; e < 128; e++ {
			x, _ := generate(0, 0)
			for i := range x {
				x[i] = float32(math.Ldexp(float64(x[i]), e))
			}
			for _, importance := range [][]float32{nil, ones} {
				if importance == nil && RequiresImportance(d) {
					continue
				}
				dst := make([]byte, 1024/d.BlockSize()*d.Size())
				err := EncodeRows(dst, d, x, 1024, importance)
				if err != nil {
					refused = true
					if !errors.Is(err, ErrRange) || e < 10 {
						t.Errorf("%v of values near 2^%d: %v", d, e, err)
					}
					continue
				}
				for i, v := range decode(t, d, dst) {
					if v-v != 0 {
						t.Errorf("%v of values near 2^%d: element %d decodes to %v", d, e, i, v)
						break
					}
				}
			}
		}
		if wide := d == dtype.MXFP4 || d == dtype.Q8_K; refused == wide {
			t.Errorf("%v: refused large values: %v", d, refused)
		}
	}
}

// If finite weights lead to no finite scale, the error names the weights, not the values.
// The formats are those whose search does not keep its first scale.
func TestEncodeImportanceOverflow(t *testing.T) {
	x, _ := generate(0, 0)
	weights := slices.Repeat([]float32{1}, goldenRow)
	weights[300] = 0x1p127
	for _, d := range []dtype.DType{dtype.Q4_0, dtype.Q5_0, dtype.Q2_K, dtype.Q4_K, dtype.Q5_K, dtype.IQ4_NL} {
		err := EncodeRows(make([]byte, len(x)/d.BlockSize()*d.Size()), d, x, goldenRow, weights)
		first := 300 / d.BlockSize() * d.BlockSize()
		want := fmt.Sprintf("elements %d to %d of %v", first, first+d.BlockSize()-1, d)
		if !errors.Is(err, ErrRange) || !strings.Contains(err.Error(), "importance of up to 1.7014118e+38") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want the importance and %q", d, err, want)
		}
	}
}

// A Q8_1 block is refused if its sum overflows f16 although its scale does not.
func TestEncodeQ8_1Sum(t *testing.T) {
	row := make([]byte, dtype.Q8_1.Size())
	if err := EncodeRow(row, dtype.Q8_1, slices.Repeat([]float32{2040}, 32)); err != nil {
		t.Error(err)
	}
	if err := EncodeRow(row, dtype.Q8_1, slices.Repeat([]float32{2060}, 32)); !errors.Is(err, ErrRange) {
		t.Errorf("a sum of 65920: %v", err)
	}
	if err := EncodeRow(row, dtype.Q8_1, append(slices.Repeat([]float32{2060}, 16), slices.Repeat([]float32{-2060}, 16)...)); err != nil {
		t.Error(err)
	}
}

// The scale byte of MXFP4 is right at and around powers of two, where the f32 logarithm
// rounds, and below the smallest scale, where byte 0 is 2^-127.
func TestEncodeMXFP4Scale(t *testing.T) {
	for _, c := range []struct {
		value float32
		want  byte
	}{
		{1, 125}, {math.Nextafter32(1, 0), 124}, {2, 126}, {math.Nextafter32(2, 0), 125},
		// 100 - 2^-24/ln 2 is not an f32, and rounds to 100.
		{0x1p100, 225}, {math.Nextafter32(0x1p100, 0), 225}, {0x1.ffff8p99, 224},
		{0x1.ffffp127, 252}, {0x1p-124, 1}, {0x1p-125, 0}, {0x1p-126, 0}, {0x1p-149, 0},
	} {
		row := make([]byte, 17)
		if err := EncodeRow(row, dtype.MXFP4, append(make([]float32, 31), c.value)); err != nil {
			t.Fatal(err)
		}
		if row[0] != c.want {
			t.Errorf("scale byte of %v is %d, want %d", c.value, row[0], c.want)
		}
		if got := decode(t, dtype.MXFP4, row)[31]; c.value >= 0x1p-127 && math.Abs(float64(got/c.value-1)) > 0.34 {
			t.Errorf("%v decodes to %v", c.value, got)
		}
	}
}

// TestFP4Code compares fp4Code with a search of all levels, at and next to ties.
func TestFP4Code(t *testing.T) {
	for _, scale := range []float32{ue4m3Half[1], ue4m3Half[0x3b], ue4m3Half[0x7e], 0x1p-128, 0x1p60, 0} {
		for i := range 60 {
			at := float32(float64(i) / 2 * float64(scale))
			for _, v := range []float32{at, math.Nextafter32(at, 0), math.Nextafter32(at, math.MaxFloat32)} {
				best, want := v, 0
				for code, level := range fp4Levels[:8] {
					if diff := magnitude(scale*float32(level) - v); diff < best {
						best, want = diff, code
					}
				}
				if got := fp4Code(v, fp4Inverse(scale)); int(got) != want {
					t.Errorf("%v at scale %v has code %d, want %d", v, scale, got, want)
				}
				if want != 0 {
					want |= 8
				}
				if got := fp4Code(-v, fp4Inverse(scale)); int(got) != want {
					t.Errorf("%v at scale %v has code %d, want %d", -v, scale, got, want)
				}
			}
		}
	}
}

// TestIQ4Code compares iq4Code with a search of all levels, at and next to ties.
func TestIQ4Code(t *testing.T) {
	for i := -300; i < 300; i++ {
		at := float32(i) / 2
		for _, v := range []float32{at, math.Nextafter32(at, -1000), math.Nextafter32(at, 1000)} {
			want := 0
			for c := 1; c < 16; c++ {
				if v >= float32(int(iq4nlLevels[c-1])+int(iq4nlLevels[c]))/2 {
					want = c
				}
			}
			if got := iq4Code(v); int(got) != want {
				t.Errorf("%v has code %d, want %d", v, got, want)
			}
		}
	}
	for _, v := range []float32{float32(math.NaN()), math.MaxFloat32, -math.MaxFloat32} {
		if c := iq4Code(v); c > 15 {
			t.Errorf("%v has code %d", v, c)
		}
	}
}

// Halves round away from zero, their neighbours to the nearest integer.
func TestRoundAway(t *testing.T) {
	for i := range 300 {
		at := float32(i) / 2
		for _, v := range []float32{at, -at, math.Nextafter32(at, 0), math.Nextafter32(at, 200), -math.Nextafter32(at, 0), -math.Nextafter32(at, 200)} {
			if got, want := float64(roundAway(v)), math.Round(float64(v)); got != want {
				t.Errorf("%v rounds to %v, want %v", v, got, want)
			}
		}
	}
}

// TestExtreme compares extreme with a search, also for ties.
func TestExtreme(t *testing.T) {
	for _, x := range [][]float32{
		{0, 1, -1, 0.5, 0, 0, 0, 0}, {0, -1, 1, 0.5, 0, 0, 0, 0}, {-3, 1, 2, 0, 0, 0, 0, 2.5}, {3, 1, -2, 0, 0, 0, -2.5, 0},
		{-1e-45, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 1e-45},
	} {
		var want float32
		for _, v := range x {
			if magnitude(v) > magnitude(want) {
				want = v
			}
		}
		for range x {
			x = append(x[1:], x[0])
			want = 0
			for _, v := range x {
				if magnitude(v) > magnitude(want) {
					want = v
				}
			}
			if amax, ext := extreme(x); ext != want || amax != magnitude(want) || maxAbs(x) != amax {
				t.Errorf("extreme of %v is %v, %v, want %v", x, amax, ext, want)
			}
		}
	}
	negZero := float32(math.Copysign(0, -1))
	if amax, ext := extreme(slices.Repeat([]float32{negZero}, 8)); math.Float32bits(amax)|math.Float32bits(ext) != 0 {
		t.Errorf("extreme of negative zeros is %v, %v", amax, ext)
	}
}

// TestLattice compares the neighbours of some words with their definition.
func TestLattice(t *testing.T) {
	for _, c := range []struct {
		name      string
		lattice   *lattice
		distances int
	}{
		{"iq2_xxs", iq2xxsLattice(), 2}, {"iq2_xs", iq2xsLattice(), 2}, {"iq2_s", iq2sLattice(), 1},
		{"iq1", iq1Lattice(), 3}, {"iq3_xxs", iq3xxsLattice(), 2}, {"iq3_s", iq3sLattice(), 3},
	} {
		l := c.lattice
		distance := func(a, b uint16) (sum int) {
			for i := range l.values {
				shift := i * l.bits()
				diff := int(a>>shift)&(1<<l.bits()-1) - int(b>>shift)&(1<<l.bits()-1)
				sum += diff * diff
			}
			return sum
		}
		n := 0
		for word := range l.words() {
			if n++; n%97 != 0 {
				continue
			}
			if i := l.index[word]; i >= 0 {
				if l.points[i] != word {
					t.Errorf("%s: word %#x has the index of %#x", c.name, word, l.points[i])
				}
				continue
			}
			want := slices.Clone(l.points)
			slices.SortStableFunc(want, func(a, b uint16) int { return distance(word, a) - distance(word, b) })
			seen, last := 0, -1
			for i, p := range want {
				if d := distance(word, p); d != last {
					if seen++; seen > c.distances {
						want = want[:i]
						break
					}
					last = d
				}
			}
			start := -1 - l.index[word]
			if got := l.near[start+1:][:l.near[start]]; !slices.Equal(got, want) {
				t.Errorf("%s: word %#x has neighbours %#x, want %#x", c.name, word, got, want)
			}
		}
	}
}

// TestEncodeConcurrently encodes every format from several goroutines, which on first
// use also race to build the tables. Rows do not depend on each other.
func TestEncodeConcurrently(t *testing.T) {
	x, importance := generate(0, 1)
	var wg sync.WaitGroup
	for _, d := range encodable() {
		rowBytes := goldenRow / d.BlockSize() * d.Size()
		got := make([]byte, 2*rowBytes)
		for r := range 2 {
			wg.Go(func() {
				if err := EncodeRows(got[r*rowBytes:(r+1)*rowBytes], d, x[r*goldenRow:(r+1)*goldenRow], goldenRow, importance); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if !bytes.Equal(got, encode(t, d, x, goldenRow, importance)) {
			t.Errorf("%v: rows encoded apart differ from rows encoded together", d)
		}
	}
}

func TestEncodeAllocations(t *testing.T) {
	x, importance := generate(0, 1)
	for _, d := range encodable() {
		dst := encode(t, d, x, goldenRow, importance)
		if n := testing.AllocsPerRun(1, func() {
			if err := EncodeRows(dst, d, x, goldenRow, importance); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations", d, n)
		}
	}
}

// No input panics, and encoded values decode to finite values. Values may be refused, and
// so may an importance whose product with the values overflows f32.
func FuzzEncodeRows(f *testing.F) {
	for _, d := range encodable() {
		f.Add(uint8(d), bytes.Repeat([]byte{1, 2, 0x80, 0x3f, 0xff, 0xff, 0x7f, 0xbf}, 128), bytes.Repeat([]byte{0, 0, 0x80, 0x3f}, 256))
		f.Add(uint8(d), bytes.Repeat([]byte{0, 0, 0x80, 0x4c, 1, 0, 0, 0}, 128), bytes.Repeat([]byte{0, 0, 0x80, 0x7e, 0, 0, 0, 0}, 128))
		f.Add(uint8(d), bytes.Repeat([]byte{0, 0, 0x80, 0x3f}, 256), []byte{})
	}
	f.Fuzz(func(t *testing.T, tag uint8, values, weights []byte) {
		d := dtype.DType(tag)
		if !slices.Contains(encodable(), d) {
			return
		}
		n := d.BlockSize()
		x := floats(values)
		x = x[:len(x)/n*n]
		var importance []float32
		if w := floats(weights); len(w) >= n {
			importance = w[:n]
		}
		dst := make([]byte, len(x)/n*d.Size())
		err := EncodeRows(dst, d, x, n, importance)
		if err != nil {
			if !errors.Is(err, ErrRange) && !errors.Is(err, ErrImportance) {
				t.Errorf("%v: %v", d, err)
			}
			return
		}
		if d.IsBlockQuantized() {
			for i, v := range decode(t, d, dst) {
				if v-v != 0 {
					t.Errorf("%v: element %d, %v, decodes to %v", d, i, x[i], v)
				}
			}
		}
	})
}

func ExampleEncodeRows() {
	// There are two rows of 32. The first column has ten times the weight of the others.
	values := make([]float32, 64)
	for i := range values {
		values[i] = float32(i%7) - 3.1
	}
	importance := slices.Repeat([]float32{1}, 32)
	importance[0] = 10
	dst := make([]byte, 2*dtype.Q4_0.Size())
	if err := EncodeRows(dst, dtype.Q4_0, values, 32, importance); err != nil {
		fmt.Println(err)
	}
	if err := DecodeRow(values, dtype.Q4_0, dst); err != nil {
		fmt.Println(err)
	}
	fmt.Printf("%.2f %.2f\n", values[0], values[1])
	// Output: -3.15 -1.97
}

// BenchmarkEncodeRows encodes 64 rows of 4096 values in a call. It reports millions of
// elements per second for the mean of the calls and for the best call, on which other load
// of the machine has the least influence.
func BenchmarkEncodeRows(b *testing.B) {
	const rows, rowLen = 64, 4096
	s := lcg(1)
	x := make([]float32, rows*rowLen)
	for i := range x {
		x[i] = s.bell()
	}
	ones := slices.Repeat([]float32{1}, rowLen)
	for _, d := range encodable() {
		dst := make([]byte, len(x)/d.BlockSize()*d.Size())
		for _, c := range []struct {
			name       string
			importance []float32
		}{{"plain", nil}, {"importance", ones}} {
			if c.importance == nil && RequiresImportance(d) {
				continue
			}
			b.Run(fmt.Sprintf("%v/%s", d, c.name), func(b *testing.B) {
				best := time.Duration(math.MaxInt64)
				for b.Loop() {
					start := time.Now()
					if err := EncodeRows(dst, d, x, rowLen, c.importance); err != nil {
						b.Fatal(err)
					}
					best = min(best, time.Since(start))
				}
				b.SetBytes(4 * int64(len(x)))
				b.ReportMetric(float64(len(x))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Melem/s")
				b.ReportMetric(float64(len(x))/best.Seconds()/1e6, "best-Melem/s")
			})
		}
	}
}

// The context is polled every 1024 elements, in one row or in many, and its end ends the
// encoding with its error. Without that, the bytes are those of EncodeRows.
func TestEncodeRowsContext(t *testing.T) {
	const n = 4 * 1024
	rng := rand.New(rand.NewPCG(1, 2))
	src, weights := make([]float32, n), make([]float32, n)
	for i := range src {
		src[i], weights[i] = float32(rng.NormFloat64()), rng.Float32()+0.5
	}
	for _, d := range encodable() {
		for _, rowLen := range []int{256, n / 2, n} {
			for _, importance := range [][]float32{nil, weights[:rowLen]} {
				if importance == nil && RequiresImportance(d) {
					continue
				}
				want := make([]byte, n/d.BlockSize()*d.Size())
				if err := EncodeRows(want, d, src, rowLen, importance); err != nil {
					t.Fatal(err)
				}
				ctx := countdown.After(math.MaxInt)
				got := make([]byte, len(want))
				if err := EncodeRowsContext(ctx, got, d, src, rowLen, importance); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%v in rows of %d: %v, or other bytes than EncodeRows", d, rowLen, err)
				}
				if ctx.Looks() < n/1024 {
					t.Errorf("%v in rows of %d: %d looks at %d elements, want one every 1024", d, rowLen, ctx.Looks(), n)
				}
				for _, left := range []int{0, 1, ctx.Looks() / 2, ctx.Looks() - 1} {
					ctx := countdown.After(left)
					if err := EncodeRowsContext(ctx, got, d, src, rowLen, importance); err != context.Canceled || ctx.Looks() != left+1 {
						t.Fatalf("%v in rows of %d, done after %d looks: %v after %d, want %v at once", d, rowLen, left, err, ctx.Looks(), context.Canceled)
					}
				}
			}
		}
	}
}
