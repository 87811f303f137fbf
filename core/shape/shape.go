package shape

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"

	"github.com/fucina-go/fucina/core/dtype"
)

// MaxRank is the largest number of axes.
const MaxRank = 8

var (
	// ErrShapeMismatch reports operands whose shapes do not fit each other.
	ErrShapeMismatch = errors.New("shape mismatch")
	// ErrInvalidShape reports a shape that no tensor can have.
	ErrInvalidShape = errors.New("invalid shape")
	// ErrOverflow reports a size that does not fit an int.
	ErrOverflow = errors.New("size overflow")
)

// Shape is a list of up to MaxRank sizes, or of strides, held inline so that
// tensors and views need no allocation. Entries past the rank are zero, so that
// shapes compare with ==.
type Shape struct {
	dims [MaxRank]int
	rank uint8
}

// Of returns the shape with the given dims. It fails with ErrInvalidShape unless
// there are 1 to MaxRank of them and each is at least 1.
func Of(dims ...int) (Shape, error) {
	s, err := OfStrides(dims...)
	if err != nil {
		return Shape{}, err
	}
	for i, d := range dims {
		if d < 1 {
			// The copy keeps the common path's dims from escaping.
			return Shape{}, fmt.Errorf("%w: %s: axis %d has size %d, want at least 1", ErrInvalidShape, s, i, d)
		}
	}
	return s, nil
}

// OfStrides returns dims as a Shape of strides: zero is allowed (a broadcast
// axis), negative is not.
func OfStrides(dims ...int) (Shape, error) {
	var s Shape
	if len(dims) < 1 || len(dims) > MaxRank {
		return Shape{}, fmt.Errorf("%w: rank %d, want 1 to %d", ErrInvalidShape, len(dims), MaxRank)
	}
	s.rank = uint8(len(dims))
	copy(s.dims[:], dims)
	for i, d := range s.dims[:s.rank] {
		if d < 0 {
			return Shape{}, fmt.Errorf("%w: %s: entry %d is %d, want at least 0", ErrInvalidShape, s, i, d)
		}
	}
	return s, nil
}

// Must is Of for constant dims. It panics on an error.
func Must(dims ...int) Shape {
	s, err := Of(dims...)
	if err != nil {
		panic(err)
	}
	return s
}

// Rank returns the number of axes, or 0 for the zero Shape.
func (s *Shape) Rank() int { return int(s.rank) }

// Dim returns entry i, counting from the end when i is negative.
func (s *Shape) Dim(i int) int {
	if i < 0 {
		i += int(s.rank)
	}
	return s.dims[:s.rank][i]
}

// Set changes entry i.
func (s *Shape) Set(i, v int) { s.dims[:s.rank][i] = v }

// Slice returns the entries. The slice aliases s.
func (s *Shape) Slice() []int { return s.dims[:s.rank] }

// String formats the entries as "[2 3]".
func (s Shape) String() string {
	buf := make([]byte, 0, 64)
	buf = append(buf, '[')
	for i, d := range s.dims[:s.rank] {
		if i > 0 {
			buf = append(buf, ' ')
		}
		buf = strconv.AppendInt(buf, int64(d), 10)
	}
	return string(append(buf, ']'))
}

// Without returns s with axis i removed; removing the only axis gives {1}.
func (s Shape) Without(i int) Shape {
	if s.rank == 1 {
		s.dims[0] = 1
		return s
	}
	copy(s.dims[i:s.rank], s.dims[i+1:s.rank])
	s.rank--
	s.dims[s.rank] = 0
	return s
}

// Mul returns a*b, or ErrOverflow. Both must be at least 0.
func Mul(a, b int) (int, error) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt {
		return 0, fmt.Errorf("%w: %d x %d", ErrOverflow, a, b)
	}
	return int(lo), nil
}

// Add returns a+b, or ErrOverflow. Both must be at least 0.
func Add(a, b int) (int, error) {
	if a > math.MaxInt-b {
		return 0, fmt.Errorf("%w: %d + %d", ErrOverflow, a, b)
	}
	return a + b, nil
}

// Elements returns the logical element count of s.
func (s *Shape) Elements() (int, error) {
	if n, ok := s.product(); ok {
		return n, nil
	}
	return s.elements()
}

// product returns the logical element count of s, and false where elements fails.
func (s *Shape) product() (int, bool) {
	n := 1
	for _, d := range s.dims[:s.rank] {
		hi, lo := bits.Mul64(uint64(n), uint64(d))
		if d < 1 || hi != 0 || lo > math.MaxInt {
			return 0, false
		}
		n = int(lo)
	}
	return n, s.rank > 0
}

// elements is Elements with the errors.
func (s *Shape) elements() (int, error) {
	if s.rank == 0 {
		return 0, fmt.Errorf("%w: rank 0", ErrInvalidShape)
	}
	n := 1
	for i, d := range s.dims[:s.rank] {
		if d < 1 {
			return 0, fmt.Errorf("%w: %s: axis %d has size %d, want at least 1", ErrInvalidShape, *s, i, d)
		}
		var err error
		if n, err = Mul(n, d); err != nil {
			return 0, fmt.Errorf("shape %s: %w", *s, err)
		}
	}
	return n, nil
}

// Storage returns the shape of s in storage elements of d: for a block format the
// last axis counts blocks, and its size must be a multiple of the block size.
func (s Shape) Storage(d dtype.DType) (Shape, error) {
	if !d.Valid() {
		return Shape{}, fmt.Errorf("%w: %s has an invalid dtype %s", ErrInvalidShape, s, d)
	}
	if _, err := s.Elements(); err != nil {
		return Shape{}, err
	}
	if bs := d.BlockSize(); bs > 1 {
		last := &s.dims[s.rank-1]
		if *last%bs != 0 {
			return Shape{}, fmt.Errorf("%w: %s: the last axis of %s must be a multiple of %d", ErrInvalidShape, s, d, bs)
		}
		*last /= bs
	}
	return s, nil
}

// StorageElements returns the number of storage elements of a contiguous tensor of shape s
// and format d.
func (s *Shape) StorageElements(d dtype.DType) (int, error) {
	if n, ok := s.product(); ok && d.IsScalar() {
		return n, nil
	}
	st, err := s.Storage(d)
	if err != nil {
		return 0, err
	}
	return st.Elements()
}

// Bytes returns the size in bytes of a contiguous tensor of shape s and format d.
func (s *Shape) Bytes(d dtype.DType) (int, error) {
	n, err := s.StorageElements(d)
	if err != nil {
		return 0, err
	}
	return Mul(n, d.Size())
}

// Contiguous returns the row-major strides of s, in the units of s.
func (s *Shape) Contiguous() Shape {
	st := Shape{rank: s.rank}
	n := 1
	for i := int(s.rank) - 1; i >= 0; i-- {
		st.dims[i] = n
		n *= s.dims[i]
	}
	return st
}

// IsContiguous reports whether strides are exactly the row-major strides of s.
func (s *Shape) IsContiguous(strides *Shape) bool {
	if s.rank != strides.rank {
		return false
	}
	n := 1
	for i := int(s.rank) - 1; i >= 0; i-- {
		if strides.dims[i] != n {
			return false
		}
		n *= s.dims[i]
	}
	return true
}

// Reach returns the largest offset that the view (s, strides) can touch, counted
// from its first element.
func (s *Shape) Reach(strides *Shape) (int, error) {
	if s.rank != strides.rank {
		return 0, fmt.Errorf("%w: shape %s has strides %s", ErrInvalidShape, *s, *strides)
	}
	reach := 0
	for i, d := range s.dims[:s.rank] {
		span, err := Mul(d-1, strides.dims[i])
		if err != nil {
			return 0, err
		}
		if reach, err = Add(reach, span); err != nil {
			return 0, err
		}
	}
	return reach, nil
}

// Overlaps reports whether two indices of the view (s, strides) may have the same element,
// as with a broadcast axis, so that a write is ambiguous. [Shape.Reach] has accepted the
// view.
func (s *Shape) Overlaps(strides *Shape) bool {
	// In ascending order, each stride must be larger than everything that the axes of
	// smaller strides reach.
	reach := 0
	var done [MaxRank]bool
	for range s.rank {
		next := -1
		for i := range int(s.rank) {
			if !done[i] && s.dims[i] > 1 && (next < 0 || strides.dims[i] < strides.dims[next]) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		if strides.dims[next] <= reach {
			return true
		}
		done[next] = true
		reach += (s.dims[next] - 1) * strides.dims[next]
	}
	return false
}

// RequireSame returns ErrShapeMismatch unless a equals b.
func RequireSame(a, b *Shape) error {
	if *a != *b {
		return fmt.Errorf("%w: %s and %s", ErrShapeMismatch, *a, *b)
	}
	return nil
}

// BroadcastStrides returns strides that read a source of shape src and strides
// srcStrides as if it had shape target: right-aligned as in NumPy, with stride 0
// on new axes and on axes of size 1 that are stretched.
func BroadcastStrides(src, srcStrides, target *Shape) (Shape, error) {
	if src.rank > target.rank {
		return Shape{}, fmt.Errorf("%w: %s does not broadcast to %s", ErrShapeMismatch, *src, *target)
	}
	out := Shape{rank: target.rank}
	lead := int(target.rank - src.rank)
	for i := range int(src.rank) {
		switch d := src.dims[i]; {
		case d == target.dims[lead+i]:
			out.dims[lead+i] = srcStrides.dims[i]
		case d != 1:
			return Shape{}, fmt.Errorf("%w: %s does not broadcast to %s: axis %d is %d, want 1 or %d",
				ErrShapeMismatch, *src, *target, i, d, target.dims[lead+i])
		}
	}
	return out, nil
}
