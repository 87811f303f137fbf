package gguf

import (
	"encoding/binary"
	"strings"
)

// The least sizes of entries in a file. A count is checked against them before anything is
// allocated for it.
const (
	minPairSize   = 8 + 1 + 4 + 1     // key length, key, type, u8
	minTensorSize = 8 + 0 + 4 + 4 + 8 // name length, name, n_dims, type, offset
	minStringSize = 8
)

// reader is a bounds-checked cursor over a file image.
type reader struct {
	data []byte
	off  int
}

func (r *reader) remaining() int { return len(r.data) - r.off }

// take returns the next n bytes, which alias the image.
func (r *reader) take(n uint64, what string) ([]byte, error) {
	if n > uint64(r.remaining()) {
		return nil, malformed("%s at byte %d takes %d bytes, the file has %d left", what, r.off, n, r.remaining())
	}
	b := r.data[r.off : r.off+int(n)]
	r.off += int(n)
	return b, nil
}

func (r *reader) u32(what string) (uint32, error) {
	b, err := r.take(4, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (r *reader) u64(what string) (uint64, error) {
	b, err := r.take(8, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// str reads a length-prefixed string of the image.
func (r *reader) str(what string) ([]byte, error) {
	n, err := r.u64(what)
	if err != nil {
		return nil, err
	}
	return r.take(n, what)
}

// name reads a key or tensor name of at most limit bytes.
func (r *reader) name(what string, limit int) (string, error) {
	b, err := r.str(what)
	if err != nil {
		return "", err
	}
	if len(b) > limit {
		return "", malformed("%s has %d bytes, at most %d are allowed", what, len(b), limit)
	}
	s := string(b)
	if strings.IndexByte(s, 0) >= 0 {
		return "", malformed("%s %s holds a NUL byte", what, quote(s))
	}
	return s, nil
}
