package gguf

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/fucina-go/fucina/core/dtype"
)

// writerVersion is the format version that a Writer writes.
const writerVersion = 3

// Writer writes a GGUF file of version 3 as a stream. The caller first declares all
// metadata pairs and tensor descriptions, then writes the tensors' bytes in the order of
// declaration. The Writer holds the metadata in memory, and no tensor data.
//
// The layout is ggml's: pairs in the order in which they were set, then tensors back to
// back. The descriptions and each tensor are padded with zeros to general.alignment, or to
// 32 if that key is not set.
//
// An error of misuse wraps [ErrWrite] and does not change the Writer. An error of the
// output is final: every later call returns it. A Writer is for one goroutine.
type Writer struct {
	out     io.Writer
	pairs   []pair
	places  map[string]int // index in pairs, by key
	tensors []TensorInfo
	names   map[string]bool // of tensors

	// The fields below are set when the header is written, before the first data.
	started bool
	align   int64
	next    int // index of the tensor whose data comes next
	// short is the number of padding bytes to leave out at the end of the file.
	short  int64
	closed bool
	err    error
}

type pair struct {
	key   string
	value Value
}

// NewWriter returns a Writer to out. It calls out.Write once for the header and a few times
// for each tensor, so out need not be buffered. The caller closes out, after
// [Writer.Close].
func NewWriter(out io.Writer) *Writer {
	return &Writer{out: out, places: make(map[string]int), names: make(map[string]bool)}
}

func misuse(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrWrite, fmt.Errorf(format, args...))
}

// declaring returns an error if the header is already written.
func (w *Writer) declaring(what string) error {
	switch {
	case w.err != nil:
		return w.err
	case w.closed || w.started:
		return misuse("%s after the header was written", what)
	}
	return nil
}

// Set sets key to the value v. A new key is placed after all others; an earlier value of
// key is replaced in its place. The key general.alignment, a u32 that is a power of two,
// sets the alignment.
func (w *Writer) Set(key string, v Value) error {
	if err := w.declaring("key " + quote(key)); err != nil {
		return err
	}
	switch {
	case key == "":
		return misuse("an empty key")
	case len(key) > math.MaxUint16:
		return misuse("key %s has %d bytes, at most %d are allowed", quote(key), len(key), math.MaxUint16)
	case strings.IndexByte(key, 0) >= 0:
		return misuse("key %s holds a NUL byte", quote(key))
	case !v.valid():
		return misuse("key %s has the zero Value", quote(key))
	}
	if key == alignmentKey {
		if _, err := checkAlignment(v); err != nil {
			return misuse("%w", err)
		}
	}
	if i := w.find(key); i >= 0 {
		w.pairs[i].value = v
		return nil
	}
	w.places[key] = len(w.pairs)
	w.pairs = append(w.pairs, pair{key, v})
	return nil
}

// Remove removes key. It does nothing if key is not set.
func (w *Writer) Remove(key string) error {
	if err := w.declaring("removal of key " + quote(key)); err != nil {
		return err
	}
	if i := w.find(key); i >= 0 {
		w.pairs = slices.Delete(w.pairs, i, i+1)
		clear(w.places)
		for i, p := range w.pairs {
			w.places[p.key] = i
		}
	}
	return nil
}

// SetAll sets every pair of m, in m's order.
func (w *Writer) SetAll(m *Metadata) error {
	for key, v := range m.All() {
		if err := w.Set(key, v); err != nil {
			return err
		}
	}
	return nil
}

// RemoveSplit removes the metadata keys of a split file, for a file that holds the tensors
// of all its parts.
func (w *Writer) RemoveSplit() error {
	for _, key := range []string{splitNoKey, splitCountKey, splitTensorsKey} {
		if err := w.Remove(key); err != nil {
			return err
		}
	}
	return nil
}

// find returns the index of key's pair, or -1.
func (w *Writer) find(key string) int {
	if i, ok := w.places[key]; ok {
		return i
	}
	return -1
}

// AddTensor declares a tensor by t's Name, DType and Shape. It ignores the other exported
// fields. An empty Shape is a scalar without dims, which reads back as shape [1]. A scalar
// without dims of a [File] is written without dims.
func (w *Writer) AddTensor(t TensorInfo) error {
	if err := w.declaring("tensor " + quote(t.Name)); err != nil {
		return err
	}
	switch {
	case len(t.Name) > maxTensorName:
		return misuse("the name of tensor %s has %d bytes, at most %d are allowed", quote(t.Name), len(t.Name), maxTensorName)
	case strings.IndexByte(t.Name, 0) >= 0:
		return misuse("the name of tensor %s holds a NUL byte", quote(t.Name))
	case t.DType.GGUF() == dtype.NoGGUF:
		return misuse("tensor %s: no file holds the type %s", quote(t.Name), t.DType)
	case len(t.Shape) > maxDims:
		return misuse("tensor %s has %d dims, at most %d are allowed", quote(t.Name), len(t.Shape), maxDims)
	case w.names[t.Name]:
		return misuse("tensor %s was declared before", quote(t.Name))
	}
	own := TensorInfo{Name: t.Name, DType: t.DType, Shape: slices.Clone(t.Shape)}
	if len(t.Shape) == 0 || t.noDims && slices.Equal(t.Shape, []int{1}) {
		own.Shape, own.noDims = []int{1}, true
	}
	for _, d := range own.Shape {
		if d < 0 {
			return misuse("tensor %s has the shape %v", quote(t.Name), t.Shape)
		}
	}
	size, err := byteSize(own)
	if err != nil {
		return misuse("%w", err)
	}
	own.Size = size
	w.names[t.Name] = true
	w.tensors = append(w.tensors, own)
	return nil
}

// header writes everything before the first tensor's data.
func (w *Writer) header() error {
	w.align = defaultAlignment
	if i := w.find(alignmentKey); i >= 0 {
		w.align = int64(w.pairs[i].value.bits(0)) // checked by Set
	}

	b := []byte("GGUF")
	b = binary.LittleEndian.AppendUint32(b, writerVersion)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(w.tensors)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(w.pairs)))
	for _, p := range w.pairs {
		b = appendString(b, p.key)
		b = p.value.append(b)
	}
	extents := make([]extent, len(w.tensors))
	var offset int64
	for i, t := range w.tensors {
		shape := t.Shape
		if t.noDims {
			shape = nil
		}
		b = appendString(b, t.Name)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(shape)))
		for _, d := range slices.Backward(shape) {
			b = binary.LittleEndian.AppendUint64(b, uint64(d))
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(t.DType.GGUF()))
		b = binary.LittleEndian.AppendUint64(b, uint64(offset))
		extents[i] = extent{id: uint32(t.DType.GGUF()), offset: uint64(offset)}
		if t.Size > math.MaxInt64-2*w.align-offset {
			return misuse("the tensors up to %s exceed %d bytes", quote(t.Name), int64(math.MaxInt64))
		}
		offset = pad(offset+t.Size, w.align)
	}
	if err := w.checkFormats(extents, offset); err != nil {
		return err
	}
	w.started = true
	if err := w.write(b); err != nil {
		return err
	}
	return w.pad(int64(len(b)), len(w.tensors) == 0)
}

// checkFormats returns an error if a reader would take tensors for the other format with
// the same id. space is the length of the data section.
func (w *Writer) checkFormats(extents []extent, space int64) error {
	read := slices.Clone(w.tensors)
	for i, t := range read {
		if formats := dtype.FromGGUF(extents[i].id); len(formats) > 1 {
			read[i].DType = dtype.Invalid
		}
		read[i].Shape = slices.Clone(t.Shape)
	}
	if err := locate(read, extents, 0, space-w.short, w.align); err != nil {
		return misuse("%w", err)
	}
	for i, t := range w.tensors {
		if read[i].DType != t.DType {
			return misuse("tensor %s is %s, but all tensors are so small that it would be read as %s",
				quote(t.Name), t.DType, read[i].DType)
		}
	}
	return nil
}

// begin checks that name is the next tensor to write, and returns its description.
func (w *Writer) begin(name string) (TensorInfo, error) {
	switch {
	case w.err != nil:
		return TensorInfo{}, w.err
	case w.closed:
		return TensorInfo{}, misuse("data of tensor %s after Close", quote(name))
	case w.next == len(w.tensors):
		return TensorInfo{}, misuse("data of tensor %s after that of all %d tensors", quote(name), len(w.tensors))
	}
	t := w.tensors[w.next]
	if t.Name != name {
		return TensorInfo{}, misuse("data of tensor %s where that of %s is due", quote(name), quote(t.Name))
	}
	return t, nil
}

// WriteTensor writes the bytes of the tensor called name, which must be the next one in the
// order of declaration.
func (w *Writer) WriteTensor(name string, data []byte) error {
	t, err := w.begin(name)
	if err != nil {
		return err
	}
	if int64(len(data)) != t.Size {
		return misuse("tensor %s of type %s and shape %v takes %d bytes, not %d", quote(name), t.DType, t.Shape, t.Size, len(data))
	}
	if !w.started {
		if err := w.header(); err != nil {
			return err
		}
	}
	if err := w.write(data); err != nil {
		return err
	}
	return w.end(t)
}

// CopyTensor is [Writer.WriteTensor] with bytes from r. It copies in pieces and reads no
// more than the tensor's size. If r fails or ends too early, the output is incomplete, and
// the error is final: it wraps the error of r or [io.ErrUnexpectedEOF].
func (w *Writer) CopyTensor(name string, r io.Reader) error {
	t, err := w.begin(name)
	if err != nil {
		return err
	}
	if !w.started {
		if err := w.header(); err != nil {
			return err
		}
	}
	n, err := io.CopyN(w.out, r, t.Size)
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		w.err = fmt.Errorf("gguf: tensor %s: copied %d of %d bytes: %w", quote(name), n, t.Size, err)
		return w.err
	}
	return w.end(t)
}

// end writes the padding after the data of t.
func (w *Writer) end(t TensorInfo) error {
	w.next++
	return w.pad(t.Size, w.next == len(w.tensors))
}

// Close completes the file. It fails if data of a declared tensor is missing. If there are
// no tensors, it writes the header. It does not close the output. A second Close does
// nothing.
func (w *Writer) Close() error {
	if w.err != nil || w.closed {
		return w.err
	}
	if w.next < len(w.tensors) {
		return misuse("close before the data of tensor %s, %d of %d", quote(w.tensors[w.next].Name), w.next+1, len(w.tensors))
	}
	if !w.started {
		if err := w.header(); err != nil {
			return err
		}
	}
	w.closed = true
	return nil
}

func (w *Writer) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if _, err := w.out.Write(b); err != nil {
		w.err = fmt.Errorf("gguf: write: %w", err)
	}
	return w.err
}

var zeros [4096]byte

// pad writes the padding after n bytes. last says that it is at the end of the file.
func (w *Writer) pad(n int64, last bool) error {
	n = pad(n, w.align) - n
	if last {
		n -= w.short
	}
	for n > 0 {
		part := min(n, int64(len(zeros)))
		if err := w.write(zeros[:part]); err != nil {
			return err
		}
		n -= part
	}
	return nil
}

// Write writes f to out as one file, with the same metadata and tensors in the same order.
// For a file of version 3 the bytes are the same, with two exceptions: padding is written
// as zeros, and bytes after the last tensor's padding are left out. A file of version 2
// becomes one of version 3. The parts of a split file become one file without the split
// keys.
func Write(out io.Writer, f *File) error {
	w := NewWriter(out)
	if err := w.SetAll(&f.Metadata); err != nil {
		return err
	}
	if len(f.parts) > 1 {
		if err := w.RemoveSplit(); err != nil {
			return err
		}
	}
	for _, t := range f.tensors {
		if err := w.AddTensor(t); err != nil {
			return err
		}
	}
	if len(f.parts) == 1 {
		w.short = f.short
	}
	for _, t := range f.tensors {
		if err := copyTensor(w, f, t); err != nil {
			return err
		}
	}
	return w.Close()
}

// copyTensor writes the bytes of t, a tensor of f.
func copyTensor(w *Writer, f *File, t TensorInfo) error {
	m, data, err := f.borrow(t)
	if err != nil {
		return err
	}
	// The error is ignored as in Buffer.
	defer func() { _ = m.release() }()
	return w.CopyTensor(t.Name, &imageReader{m, data})
}

// imageReader reads a part of an image. It copies the bytes, because a system call that
// gets bytes of a truncated file would report an error of the output.
type imageReader struct {
	m    *mapping
	rest []byte
}

// Read implements io.Reader.
func (r *imageReader) Read(p []byte) (n int, err error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	err = r.m.read(func() error { n = copy(p, r.rest); return nil })
	if err != nil {
		return 0, err
	}
	r.rest = r.rest[n:]
	return n, nil
}
