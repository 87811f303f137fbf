package gguf

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
)

// alignmentKey is the key of the data section's alignment, a u32.
const alignmentKey = "general.alignment"

// defaultAlignment is the alignment of a file without alignmentKey.
const defaultAlignment = 32

// File is an open GGUF file. Its methods may be called concurrently.
type File struct {
	Metadata

	version   uint32
	alignment uint32
	tensors   []TensorInfo
	index     map[string]int

	parts   []*mapping // one per part of a split file
	headers []int      // for each part, the bytes in front of the padding before the tensors' data
	// short is the number of padding bytes missing at the end of the first part.
	short  int64
	closed atomic.Bool
}

// Parse reads the file image data without copying tensor bytes: the File and
// the buffers that borrow from it alias data, which must not change while they
// are in use. Errors wrap [ErrNotGGUF], [ErrVersion] or [ErrMalformed].
//
// If data is a part of a split file, the File has only the tensors of that part; see
// [ParseSplit].
func Parse(data []byte) (*File, error) {
	f, err := parse(data)
	if err != nil {
		return nil, err
	}
	f.parts = []*mapping{newMapping(data, nil, nil)}
	return f, nil
}

// Parts returns the number of files that the tensors lie in. It is 1 if f is not split.
func (f *File) Parts() int { return len(f.parts) }

// OpenedFrom reports whether path leads to a file that f was opened from, or to one of its
// parts, under the same or another name.
func (f *File) OpenedFrom(path string) bool {
	info, err := os.Stat(path)
	return err == nil && slices.ContainsFunc(f.parts, func(m *mapping) bool {
		return m.info != nil && os.SameFile(m.info, info)
	})
}

// Version returns the format version, 2 or 3. For a split file it is that of part 0.
func (f *File) Version() int { return int(f.version) }

// Alignment returns the alignment of tensors within the data section in bytes, a power of
// two. It may be 1. For a split file it is that of part 0.
func (f *File) Alignment() int64 { return int64(f.alignment) }

// Tensors returns the tensors in the order of their data, part after part.
func (f *File) Tensors() []TensorInfo { return slices.Clone(f.tensors) }

// Tensor returns the tensor called name and whether there is one.
func (f *File) Tensor(name string) (TensorInfo, bool) {
	i, ok := f.index[name]
	if !ok {
		return TensorInfo{}, false
	}
	return f.tensors[i], true
}

// Data returns the t.Size bytes of a tensor of this file, without a copy. The bytes are
// read-only: a write to a mapped file faults. They are valid until [File.Close], or longer
// if a buffer keeps the mapping alive. Data returns nil after Close and for a tensor of
// another file.
//
// If the file may be truncated while it is read, use [File.View] instead.
func (f *File) Data(t TensorInfo) []byte {
	own, ok := f.own(t)
	if f.closed.Load() || !ok {
		return nil
	}
	end := own.Offset + own.Size
	return f.parts[own.Part].data[own.Offset:end:end]
}

// View calls use with the t.Size bytes of a tensor of this file and returns the error of
// use. The bytes are read-only and valid until use returns.
//
// The error wraps [ErrFileChanged] if use reads bytes that are no longer in the file, or
// if the size or time of modification of the file has changed when use returns: use may
// have read wrong bytes. Only reads on the calling goroutine are covered. Another goroutine
// that reads the bytes must call View itself. The error wraps [ErrClosed] after Close and
// [ErrNoTensor] for a tensor of another file.
func (f *File) View(t TensorInfo, use func(data []byte) error) error {
	m, data, err := f.borrow(t)
	if err != nil {
		return err
	}
	// The error is ignored as in Buffer.
	defer func() { _ = m.release() }()
	return m.read(func() error { return use(data) })
}

// borrow returns the bytes of a tensor of f, and the mapping that they lie in with a
// reference for the caller.
func (f *File) borrow(t TensorInfo) (*mapping, []byte, error) {
	own, ok := f.own(t)
	if !ok {
		return nil, nil, fmt.Errorf("%w: %s at [%d, +%d)", ErrNoTensor, quote(t.Name), t.Offset, t.Size)
	}
	m := f.parts[own.Part]
	if f.closed.Load() || !m.retain() {
		return nil, nil, fmt.Errorf("%w: tensor %s", ErrClosed, quote(t.Name))
	}
	end := own.Offset + own.Size
	return m, m.data[own.Offset:end:end], nil
}

// own returns the tensor of f whose bytes t describes, and whether there is one.
func (f *File) own(t TensorInfo) (TensorInfo, bool) {
	own, ok := f.Tensor(t.Name)
	return own, ok && own.Part == t.Part && own.Offset == t.Offset && own.Size == t.Size && own.DType == t.DType
}

// Close drops the file's reference to the mapping. Buffers that borrow from it
// stay valid until they are released. A second Close does nothing.
func (f *File) Close() error {
	if f.closed.Swap(true) {
		return nil
	}
	var errs []error
	for _, m := range f.parts {
		errs = append(errs, m.release())
	}
	return errors.Join(errs...)
}

func parse(data []byte) (*File, error) {
	r := &reader{data: data}
	f := &File{}
	nTensors, nPairs, err := r.readHeader(f)
	if err != nil {
		return nil, err
	}
	if f.Metadata, err = r.readMetadata(nPairs); err != nil {
		return nil, err
	}
	f.alignment = defaultAlignment
	if v, ok := f.Value(alignmentKey); ok {
		if f.alignment, err = checkAlignment(v); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
	}
	// Check the count again, because the pairs may have been longer than minPairSize.
	if nTensors > r.remaining()/minTensorSize {
		return nil, malformed("%d tensors are described at byte %d, the file has %d bytes left", nTensors, r.off, r.remaining())
	}
	tensors, extents, err := r.readTensors(nTensors)
	if err != nil {
		return nil, err
	}
	f.tensors, f.headers = tensors, []int{r.off}
	f.index = make(map[string]int, len(tensors))
	for i, t := range tensors {
		if _, dup := f.index[t.Name]; dup {
			return nil, malformed("tensor %d repeats the name %s", i, quote(t.Name))
		}
		f.index[t.Name] = i
	}
	start, align := pad(int64(r.off), int64(f.alignment)), int64(f.alignment)
	if len(tensors) == 0 {
		f.short = max(0, start-int64(len(data)))
		return f, nil
	}
	if start > int64(len(data)) {
		return nil, malformed("the data section begins at byte %d, the file has %d bytes", start, len(data))
	}
	if err := locate(tensors, extents, start, int64(len(data))-start, align); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	last := tensors[len(tensors)-1]
	f.short = max(0, start+pad(last.Offset+last.Size-start, align)-int64(len(data)))
	return f, nil
}

// readHeader sets f.version and returns the counts, bounded by what the file
// can hold.
func (r *reader) readHeader(f *File) (nTensors, nPairs int, err error) {
	if len(r.data) < 4 || string(r.data[:4]) != "GGUF" {
		return 0, 0, fmt.Errorf(`%w: want the magic bytes "GGUF", found %q`, ErrNotGGUF, r.data[:min(4, len(r.data))])
	}
	r.off = 4
	if f.version, err = r.u32("version"); err != nil {
		return 0, 0, err
	}
	switch v := f.version; {
	case v == 2 || v == 3:
	case v&0xffff == 0 && v != 0:
		return 0, 0, fmt.Errorf("%w: %#x is a version number in big-endian order, only little-endian files are read", ErrVersion, v)
	default:
		return 0, 0, fmt.Errorf("%w: %d, want 2 or 3", ErrVersion, v)
	}
	tensors, err := r.u64("number of tensors")
	if err != nil {
		return 0, 0, err
	}
	pairs, err := r.u64("number of metadata pairs")
	if err != nil {
		return 0, 0, err
	}
	if limit := uint64(r.remaining() / minTensorSize); tensors > limit {
		return 0, 0, malformed("%d tensors do not fit the %d bytes of the file", tensors, len(r.data))
	}
	if limit := uint64(r.remaining() / minPairSize); pairs > limit {
		return 0, 0, malformed("%d metadata pairs do not fit the %d bytes of the file", pairs, len(r.data))
	}
	return int(tensors), int(pairs), nil
}

// checkAlignment returns the alignment that v gives. The caller adds a sentinel to the
// error.
func checkAlignment(v Value) (uint32, error) {
	if v.typ != TypeUint32 {
		return 0, fmt.Errorf("key %q is %s, want u32", alignmentKey, v.describe())
	}
	a := v.bits(0)
	if a == 0 || a&(a-1) != 0 {
		return 0, fmt.Errorf("key %q is %d, want a power of two", alignmentKey, a)
	}
	return uint32(a), nil
}
