package gguf

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/fucina-go/fucina/core/dtype"
)

// Limits of ggml: GGML_MAX_DIMS and GGML_MAX_NAME less its terminator.
const (
	maxDims       = 4
	maxTensorName = 63
)

// TensorInfo describes a tensor of a file.
type TensorInfo struct {
	// Name is unique within the file.
	Name string
	// DType is the element format. Its block size divides the last dim.
	DType dtype.DType
	// Shape holds 1 to 4 dims, outermost first and the last one contiguous. A file has
	// the dims in reverse. A tensor with a dim of 0 is empty and has no Buffer. The slice
	// must not be modified.
	Shape []int
	// Part is the number of the file that holds the data, 0 unless the file is split.
	Part int
	// Offset is the position of the first byte of the data in its file.
	Offset int64
	// Size is the length of the data in bytes, without padding.
	Size int64

	// noDims tells a scalar without dims from a vector of one element.
	noDims bool
}

// Elements returns the product of the dims. For a tensor of a [File] the product does not
// overflow.
func (t TensorInfo) Elements() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n
}

// extent is the type and the offset in the data section that a tensor description gives.
type extent struct {
	id     uint32 // ggml_type
	offset uint64
}

// readTensors reads n tensor descriptions. It does not set Offset and Size, nor DType if
// two formats have the id.
func (r *reader) readTensors(n int) ([]TensorInfo, []extent, error) {
	tensors, extents := make([]TensorInfo, 0, n), make([]extent, 0, n)
	for i := range n {
		t, e, err := r.readTensor(i)
		if err != nil {
			return nil, nil, err
		}
		tensors, extents = append(tensors, t), append(extents, e)
	}
	return tensors, extents, nil
}

func (r *reader) readTensor(i int) (t TensorInfo, e extent, err error) {
	if t.Name, err = r.name(fmt.Sprintf("name of tensor %d", i), maxTensorName); err != nil {
		return t, e, err
	}
	what := "tensor " + quote(t.Name)
	nd, err := r.u32("number of dims of " + what)
	if err != nil {
		return t, e, err
	}
	if nd > maxDims {
		return t, e, malformed("%s has %d dims, at most %d are allowed", what, nd, maxDims)
	}
	t.Shape = make([]int, max(nd, 1))
	t.Shape[0], t.noDims = 1, nd == 0
	for j := range nd {
		d, err := r.u64("dims of " + what)
		if err != nil {
			return t, e, err
		}
		if d > math.MaxInt {
			return t, e, malformed("%s has a dim of %d, want at most %d", what, d, math.MaxInt)
		}
		t.Shape[nd-1-j] = int(d)
	}
	if e.id, err = r.u32("type of " + what); err != nil {
		return t, e, err
	}
	switch formats := dtype.FromGGUF(e.id); len(formats) {
	case 0:
		return t, e, malformed("%s has type %d, which is not a known ggml type", what, e.id)
	case 1:
		t.DType = formats[0]
	}
	e.offset, err = r.u64("offset of " + what)
	return t, e, err
}

// locate sets DType, Offset and Size of every tensor. The data section begins at byte
// start, ends with the file and has space bytes. The errors of locate, place and byteSize
// have no sentinel, because reader and [Writer] add different ones.
func locate(tensors []TensorInfo, extents []extent, start, space, align int64) error {
	ambiguous := func(t TensorInfo) bool { return t.DType == dtype.Invalid }
	if !slices.ContainsFunc(tensors, ambiguous) {
		return place(tensors, extents, start, space, align, dtype.Invalid)
	}
	// q2_0_g64 is tried first, so that it is chosen if both formats fit.
	trial := slices.Clone(tensors)
	errG64 := place(trial, extents, start, space, align, dtype.Q2_0_G64)
	if errG64 == nil {
		copy(tensors, trial)
		return nil
	}
	err := place(tensors, extents, start, space, align, dtype.Q2_0)
	if err == nil || err.Error() == errG64.Error() {
		return err
	}
	return fmt.Errorf("the file fits neither format of type %d: as %s: %w; as %s: %w",
		dtype.Q2_0.GGUF(), dtype.Q2_0_G64, errG64, dtype.Q2_0, err)
}

// place is locate with q2 as the format of type 42.
func place(tensors []TensorInfo, extents []extent, start, space, align int64, q2 dtype.DType) error {
	var next int64 // end of the tensors so far, padded
	for i := range tensors {
		t := &tensors[i]
		if t.DType == dtype.Invalid {
			t.DType = q2
		}
		if extents[i].offset != uint64(next) {
			return fmt.Errorf("tensor %s has offset %d, want %d: tensors lie back to back, padded to %d bytes",
				quote(t.Name), extents[i].offset, next, align)
		}
		size, err := byteSize(*t)
		if err != nil {
			return err
		}
		if size > space-next {
			return fmt.Errorf("tensor %s takes %d bytes at offset %d, the data section has %d",
				quote(t.Name), size, next, space)
		}
		t.Offset, t.Size = start+next, size
		next = pad(next+size, align)
	}
	return nil
}

// byteSize returns the size of t in bytes. It checks that the rows of t are whole blocks,
// and that the products of the elements and of the bytes fit an int, with dims of 0 left
// out of the products.
func byteSize(t TensorInfo) (int64, error) {
	row, block := t.Shape[len(t.Shape)-1], t.DType.BlockSize()
	if row%block != 0 {
		return 0, fmt.Errorf("tensor %s of type %s has rows of %d elements, not a multiple of its block of %d",
			quote(t.Name), t.DType, row, block)
	}
	elements, size, empty := uint64(1), uint64(t.DType.Size()), false
	for i, d := range t.Shape {
		if d == 0 {
			empty = true
			continue
		}
		blocks := d
		if i == len(t.Shape)-1 {
			blocks = row / block
		}
		var hiE, hiS uint64
		hiE, elements = bits.Mul64(elements, uint64(d))
		hiS, size = bits.Mul64(size, uint64(blocks))
		if hiE != 0 || hiS != 0 || elements > math.MaxInt || size > math.MaxInt {
			return 0, fmt.Errorf("tensor %s of type %s and shape %v is larger than %d elements or bytes",
				quote(t.Name), t.DType, t.Shape, math.MaxInt)
		}
	}
	if empty {
		return 0, nil
	}
	return int64(size), nil
}

// pad rounds n up to a multiple of align, a power of two.
func pad(n, align int64) int64 { return (n + align - 1) &^ (align - 1) }
