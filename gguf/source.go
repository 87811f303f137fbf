package gguf

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
)

// Source is the set of files that a [File] was opened from.
type Source struct {
	parts   []*mapping
	headers []int
	tensors []TensorInfo
}

// Source returns the files that f was opened from.
func (f *File) Source() Source { return Source{f.parts, f.headers, f.tensors} }

// Retain keeps the files open, also after [File.Close], until Release. It fails with [ErrClosed]
// if one of them is no longer open.
func (s Source) Retain() error {
	for i, m := range s.parts {
		if !m.retain() {
			Source{parts: s.parts[:i]}.Release()
			return fmt.Errorf("%w: part %d of %d", ErrClosed, i+1, len(s.parts))
		}
	}
	return nil
}

// Release ends a Retain.
func (s Source) Release() {
	for _, m := range s.parts {
		_ = m.release() // the error is ignored as in Buffer
	}
}

// Check returns an error that wraps [ErrFileChanged] if the size or time of modification
// of one of the files has changed since it was opened. If Check succeeds, all bytes read
// before it were the bytes of the files. A file that was replaced by a rename has not
// changed. Check skips images given to [Parse], and files that nothing keeps open: neither
// the [File] nor a buffer nor Retain. It allocates only if it fails, and may be called at any
// time.
func (s Source) Check() error {
	for _, m := range s.parts {
		if m.check == nil || !m.retain() {
			continue
		}
		err := m.check()
		// The error is ignored as in Buffer.
		_ = m.release()
		if err != nil {
			return fmt.Errorf("gguf: %w", err)
		}
	}
	return nil
}

// sampleBytes is the number of bytes that Fingerprint reads at each end of a tensor.
const sampleBytes = 4096

// Fingerprint returns a hash that tells models apart without reading all weights. It is the
// SHA-256 of these bytes:
//
//   - for each file its size and the size of its header, as little-endian u64, and the header,
//     which ends with the last tensor description;
//   - for each tensor, in the order of [File.Tensors], the first and the last 4096 bytes of its
//     data, or the whole data if that has at most 8192 bytes.
//
// It fails with [ErrClosed] if one of the files is no longer open, or with [ErrFileChanged].
func (s Source) Fingerprint() (sum [sha256.Size]byte, err error) {
	if err := s.Retain(); err != nil {
		return sum, err
	}
	defer s.Release()
	h := sha256.New()
	for i, m := range s.parts {
		err := m.read(func() error {
			hashHeader(h, m.data, s.headers[i])
			return nil
		})
		if err != nil {
			return sum, fmt.Errorf("gguf: %w", err)
		}
	}
	for _, t := range s.tensors {
		m := s.parts[t.Part]
		err := m.read(func() error {
			hashEnds(h, m.data[t.Offset:t.Offset+t.Size])
			return nil
		})
		if err != nil {
			return sum, fmt.Errorf("gguf: %w", err)
		}
	}
	h.Sum(sum[:0])
	return sum, nil
}

func hashHeader(h hash.Hash, file []byte, header int) {
	var sizes [16]byte
	binary.LittleEndian.PutUint64(sizes[:], uint64(len(file)))
	binary.LittleEndian.PutUint64(sizes[8:], uint64(header))
	h.Write(sizes[:])
	h.Write(file[:header])
}

func hashEnds(h hash.Hash, data []byte) {
	if len(data) > 2*sampleBytes {
		h.Write(data[:sampleBytes])
		data = data[len(data)-sampleBytes:]
	}
	h.Write(data)
}
