package shape

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
)

// half squared overflows an int by one bit.
const half = 1 << (bits.UintSize / 2)

func TestOf(t *testing.T) {
	tests := []struct {
		name string
		dims []int
		err  error
	}{
		{"scalar", []int{1}, nil},
		{"matrix", []int{2, 3}, nil},
		{"rank 8", []int{1, 2, 3, 4, 5, 6, 7, 8}, nil},
		{"rank 0", nil, ErrInvalidShape},
		{"rank 9", []int{1, 1, 1, 1, 1, 1, 1, 1, 1}, ErrInvalidShape},
		{"zero dim", []int{2, 0}, ErrInvalidShape},
		{"negative dim", []int{-1, 2}, ErrInvalidShape},
		{"least int", []int{math.MinInt}, ErrInvalidShape},
		{"large dim", []int{math.MaxInt}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Of(tt.dims...)
			if !errors.Is(err, tt.err) {
				t.Fatalf("Of(%v) error = %v, want %v", tt.dims, err, tt.err)
			}
			if err != nil {
				if s != (Shape{}) {
					t.Errorf("failed Of returned %s", s)
				}
				return
			}
			if s.Rank() != len(tt.dims) || !slices.Equal(s.Slice(), tt.dims) {
				t.Errorf("Of(%v) = %s", tt.dims, s)
			}
		})
	}
}

func TestOfStrides(t *testing.T) {
	if s, err := OfStrides(0, 3, 0); err != nil || !slices.Equal(s.Slice(), []int{0, 3, 0}) {
		t.Errorf("OfStrides(0, 3, 0) = %s, %v", s, err)
	}
	for _, dims := range [][]int{nil, {-1}, {1, math.MinInt}, make([]int, 9)} {
		if _, err := OfStrides(dims...); !errors.Is(err, ErrInvalidShape) {
			t.Errorf("OfStrides(%v) error = %v, want ErrInvalidShape", dims, err)
		}
	}
}

func TestMustPanics(t *testing.T) {
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, ErrInvalidShape) {
			t.Errorf("Must(0) panicked with %v", err)
		}
	}()
	Must(0)
}

// Equal shapes compare with ==, however they were made.
func TestEqualHoweverMade(t *testing.T) {
	matrix := Must(2, 3)
	for name, got := range map[string]Shape{
		"without last":   Must(2, 3, 4).Without(2),
		"without first":  Must(9, 2, 3).Without(0),
		"without middle": Must(2, 9, 3).Without(1),
	} {
		if got != matrix {
			t.Errorf("%s: %s (%#v), want %s", name, got, got, matrix)
		}
	}
	if got := Must(7).Without(0); got != Must(1) {
		t.Errorf("removing the only axis gave %s, want [1]", got)
	}
}

func TestDim(t *testing.T) {
	s := Must(2, 3, 4)
	for i, want := range map[int]int{0: 2, 2: 4, -1: 4, -3: 2} {
		if got := s.Dim(i); got != want {
			t.Errorf("Dim(%d) = %d, want %d", i, got, want)
		}
	}
	for _, i := range []int{3, -4} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Dim(%d) of rank 3 did not panic", i)
				}
			}()
			s.Dim(i)
		}()
	}
}

// A product of dims that overflows is an error, not a small number.
func TestElementsOverflow(t *testing.T) {
	tests := []struct {
		dims []int
		want int
		err  error
	}{
		{[]int{2, 3, 4}, 24, nil},
		{[]int{math.MaxInt}, math.MaxInt, nil},
		{[]int{half / 2, half / 2}, half / 4 * half, nil},
		{[]int{half, half / 2}, 0, ErrOverflow},
		{[]int{half, half}, 0, ErrOverflow},
		{[]int{math.MaxInt, 2}, 0, ErrOverflow},
		{[]int{math.MaxInt, math.MaxInt, math.MaxInt}, 0, ErrOverflow},
		{[]int{1 << 16, 1 << 16, 1 << 16, 1 << 16}, 0, ErrOverflow},
	}
	for _, tt := range tests {
		s := Must(tt.dims...)
		got, err := s.Elements()
		if got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: %d, %v; want %d, %v", s, got, err, tt.want, tt.err)
		}
	}
	var zero Shape
	if _, err := zero.Elements(); !errors.Is(err, ErrInvalidShape) {
		t.Errorf("zero Shape: %v", err)
	}
	hollow, _ := OfStrides(2, 0)
	if _, err := hollow.Elements(); !errors.Is(err, ErrInvalidShape) {
		t.Errorf("[2 0]: %v", err)
	}
}

func TestStorage(t *testing.T) {
	tests := []struct {
		dims     []int
		d        dtype.DType
		elements int
		bytes    int
		err      error
	}{
		{[]int{2, 3}, dtype.F32, 6, 24, nil},
		{[]int{4, 64}, dtype.Q8_0, 8, 8 * 34, nil},
		{[]int{256}, dtype.Q4_K, 1, 144, nil},
		{[]int{64, 4}, dtype.Q8_0, 0, 0, ErrInvalidShape},
		{[]int{2, 16}, dtype.Q8_0, 0, 0, ErrInvalidShape},
		{[]int{896}, dtype.Q4_K, 0, 0, ErrInvalidShape},
		{[]int{2}, dtype.Invalid, 0, 0, ErrInvalidShape},
		{[]int{2}, dtype.Count, 0, 0, ErrInvalidShape},
	}
	for _, tt := range tests {
		s := Must(tt.dims...)
		n, err := s.StorageElements(tt.d)
		if n != tt.elements || !errors.Is(err, tt.err) {
			t.Errorf("%s %s: %d storage elements, %v; want %d, %v", tt.d, s, n, err, tt.elements, tt.err)
		}
		b, err := s.Bytes(tt.d)
		if b != tt.bytes || !errors.Is(err, tt.err) {
			t.Errorf("%s %s: %d bytes, %v; want %d, %v", tt.d, s, b, err, tt.bytes, tt.err)
		}
	}
	big := Must(math.MaxInt / 2)
	if _, err := big.Bytes(dtype.F32); !errors.Is(err, ErrOverflow) {
		t.Errorf("bytes of %s f32: %v, want ErrOverflow", big, err)
	}
}

func TestContiguous(t *testing.T) {
	for _, tt := range []struct{ dims, strides []int }{
		{[]int{1}, []int{1}},
		{[]int{2, 3}, []int{3, 1}},
		{[]int{4, 2, 3}, []int{6, 3, 1}},
		{[]int{2, 1, 3}, []int{3, 3, 1}},
	} {
		s := Must(tt.dims...)
		st := s.Contiguous()
		if !slices.Equal(st.Slice(), tt.strides) {
			t.Errorf("strides of %s = %s, want %v", s, st, tt.strides)
		}
		if !s.IsContiguous(&st) {
			t.Errorf("%s is not contiguous with its own strides", s)
		}
		st.Set(0, st.Dim(0)+1)
		if s.IsContiguous(&st) {
			t.Errorf("%s is contiguous with strides %s", s, st)
		}
	}
	// A {1} view of stride 0 is not contiguous.
	one, zero := Must(1), Shape{rank: 1}
	if one.IsContiguous(&zero) {
		t.Error("[1] with stride 0 is contiguous")
	}
	pair, three := Must(2, 3), Must(3)
	if pair.IsContiguous(&three) {
		t.Error("strides of another rank are contiguous")
	}
}

func TestReach(t *testing.T) {
	strides := func(v ...int) Shape {
		s := Shape{rank: uint8(len(v))}
		copy(s.dims[:], v)
		return s
	}
	tests := []struct {
		name    string
		dims    []int
		strides Shape
		want    int
		err     error
	}{
		{"row major", []int{2, 3}, strides(3, 1), 5, nil},
		{"transposed", []int{3, 2}, strides(1, 3), 5, nil},
		{"broadcast", []int{4, 3}, strides(0, 1), 2, nil},
		{"gaps", []int{2, 2}, strides(100, 7), 107, nil},
		{"largest", []int{2}, strides(math.MaxInt), math.MaxInt, nil},
		{"size 1 axis ignores its stride", []int{1, 2}, strides(math.MaxInt, 1), 1, nil},
		{"product wraps", []int{3}, strides(math.MaxInt), 0, ErrOverflow},
		{"product wraps to zero", []int{half + 1}, strides(half), 0, ErrOverflow},
		{"sum wraps", []int{2, 2}, strides(math.MaxInt, 1), 0, ErrOverflow},
		{"negative stride", []int{2}, strides(-1), 0, ErrOverflow},
		{"rank", []int{2, 2}, strides(1), 0, ErrInvalidShape},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := Must(tt.dims...)
			got, err := s.Reach(&tt.strides)
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("reach of %s by %s = %d, %v; want %d, %v", s, tt.strides, got, err, tt.want, tt.err)
			}
		})
	}
}

func TestOverlaps(t *testing.T) {
	for _, tt := range []struct {
		dims, strides []int
		want          bool
	}{
		{[]int{4, 3}, []int{3, 1}, false},
		{[]int{3, 4}, []int{1, 3}, false},
		{[]int{4, 3}, []int{8, 2}, false},
		{[]int{4, 3}, []int{0, 1}, true},
		{[]int{1, 3}, []int{0, 1}, false},
		{[]int{1}, []int{0}, false},
		{[]int{4, 3}, []int{1, 1}, true},
		{[]int{4, 3}, []int{2, 1}, true},
		{[]int{2, 3, 4}, []int{12, 1, 3}, false},
		{[]int{2, 2, 2}, []int{2, 1, 2}, true},
	} {
		s := Must(tt.dims...)
		strides, err := OfStrides(tt.strides...)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Overlaps(&strides); got != tt.want {
			t.Errorf("%s with strides %s overlaps: %v, want %v", s, strides, got, tt.want)
		}
	}
}

func TestMulAdd(t *testing.T) {
	if n, err := Mul(0, math.MaxInt); n != 0 || err != nil {
		t.Errorf("0 x MaxInt = %d, %v", n, err)
	}
	if n, err := Add(math.MaxInt, 0); n != math.MaxInt || err != nil {
		t.Errorf("MaxInt + 0 = %d, %v", n, err)
	}
	if _, err := Mul(half, half/2); !errors.Is(err, ErrOverflow) {
		t.Errorf("one past MaxInt: %v", err)
	}
	if _, err := Add(math.MaxInt, 1); !errors.Is(err, ErrOverflow) {
		t.Errorf("MaxInt + 1: %v", err)
	}
}

func TestBroadcastStrides(t *testing.T) {
	tests := []struct {
		src, strides, target, want []int // want nil: ErrShapeMismatch
	}{
		{[]int{2, 3}, []int{3, 1}, []int{2, 3}, []int{3, 1}},
		{[]int{2, 3}, []int{3, 1}, []int{4, 2, 3}, []int{0, 3, 1}},
		{[]int{3}, []int{1}, []int{4, 3}, []int{0, 1}},
		{[]int{2, 1}, []int{1, 1}, []int{2, 5}, []int{1, 0}},
		{[]int{1}, []int{1}, []int{2, 2}, []int{0, 0}},
		{[]int{3, 2}, []int{1, 3}, []int{5, 3, 2}, []int{0, 1, 3}},
		{[]int{2, 3}, []int{3, 1}, []int{3}, nil},
		{[]int{2, 3}, []int{3, 1}, []int{1, 3}, nil},
		{[]int{2, 3}, []int{3, 1}, []int{2, 4}, nil},
	}
	for _, tt := range tests {
		src, target := Must(tt.src...), Must(tt.target...)
		strides, err := OfStrides(tt.strides...)
		if err != nil {
			t.Fatal(err)
		}
		got, err := BroadcastStrides(&src, &strides, &target)
		if tt.want == nil {
			if !errors.Is(err, ErrShapeMismatch) {
				t.Errorf("%s to %s: %v, want ErrShapeMismatch", src, target, err)
			}
		} else if err != nil || !slices.Equal(got.Slice(), tt.want) {
			t.Errorf("%s by %s to %s = %s, %v; want %v", src, strides, target, got, err, tt.want)
		}
	}
}

func TestRequireSame(t *testing.T) {
	a, b, c := Must(2, 3), Must(2, 3), Must(3, 2)
	if err := RequireSame(&a, &b); err != nil {
		t.Error(err)
	}
	if err := RequireSame(&a, &c); !errors.Is(err, ErrShapeMismatch) {
		t.Errorf("[2 3] and [3 2]: %v", err)
	}
}

func TestNoAllocation(t *testing.T) {
	row, grid := Must(3), Must(4, 3)
	var sink Shape
	if n := testing.AllocsPerRun(100, func() {
		s, _ := Of(2, 3, 4)
		st := s.Contiguous()
		_, _ = s.Reach(&st)
		_, _ = s.Bytes(dtype.F32)
		st = row.Contiguous()
		sink, _ = BroadcastStrides(&row, &st, &grid)
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
	_ = sink
}

func ExampleBroadcastStrides() {
	row, grid := Must(3), Must(4, 3)
	strides := row.Contiguous()
	fmt.Println(BroadcastStrides(&row, &strides, &grid))
	// Output: [0 1] <nil>
}

func BenchmarkContiguous(b *testing.B) {
	s := Must(4, 2, 3, 5)
	for b.Loop() {
		st := s.Contiguous()
		if !s.IsContiguous(&st) {
			b.Fatal("not contiguous")
		}
	}
}
