package gguf

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
)

// The metadata keys of a split file: the number of the part, from 0, the number of parts,
// and the number of tensors in all parts. They are integers (u16, u16 and i32 in files of
// llama.cpp's gguf-split). Only part 0 has the model's metadata.
const (
	splitNoKey      = "split.no"
	splitCountKey   = "split.count"
	splitTensorsKey = "split.tensors.count"
)

// splitNumber returns the value of the split key, or def if the key is absent.
func (f *File) splitNumber(key string, def int64, limit int64) (int64, error) {
	v, ok := f.Value(key)
	if !ok {
		return def, nil
	}
	if !v.typ.isInteger() {
		return 0, malformed("key %q is %s, want integer", key, v.describe())
	}
	// A u64 above the largest int64 is negative here.
	n := int64(v.bits(0))
	if n < 0 || n > limit {
		return 0, malformed("key %q is %s, want 0 to %d", key, v, limit)
	}
	return n, nil
}

// splitCount returns the number of parts that the metadata of f gives, or 1 if f is not
// split.
func (f *File) splitCount() (int, error) {
	n, err := f.splitNumber(splitCountKey, 1, math.MaxUint16)
	return max(int(n), 1), err
}

// SplitPath returns the path of part no, from 0, of a file that is split into count
// parts: prefix-00001-of-00003.gguf for part 0 of 3.
func SplitPath(prefix string, no, count int) string {
	return fmt.Sprintf("%s-%05d-of-%05d.gguf", prefix, no+1, count)
}

// splitPrefix is the inverse of [SplitPath] for the path of part no of count.
func splitPrefix(path string, no, count int) (string, error) {
	prefix, ok := strings.CutSuffix(path, SplitPath("", no, count))
	if !ok || filepath.Base(path) == SplitPath("", no, count) {
		return "", malformed("it is part %d of %d by its metadata, so its name must be like %s",
			no+1, count, SplitPath("NAME", no, count))
	}
	return prefix, nil
}

// ParseSplit is [Parse] for all parts of a split file, in order. The File has the metadata
// of the first part and the tensors of all parts. A single file that is not split is
// allowed. If the parts do not belong together, the error wraps [ErrMalformed].
func ParseSplit(parts ...[]byte) (*File, error) {
	if len(parts) == 0 {
		return nil, malformed("no parts")
	}
	var first *File
	for i, data := range parts {
		f, err := Parse(data)
		if err != nil {
			return nil, fmt.Errorf("part %d of %d: %w", i+1, len(parts), err)
		}
		if i == 0 {
			first = f
		}
		if err := first.checkPart(f, i, len(parts)); err != nil {
			return nil, fmt.Errorf("part %d of %d: %w", i+1, len(parts), err)
		}
		if i > 0 {
			if err := first.join(f); err != nil {
				return nil, fmt.Errorf("part %d of %d: %w", i+1, len(parts), err)
			}
		}
	}
	if err := first.checkJoined(); err != nil {
		return nil, err
	}
	return first, nil
}

// checkPart returns an error if p is not part no of the count parts that f begins.
func (f *File) checkPart(p *File, no, count int) error {
	n, err := p.splitCount()
	if err != nil {
		return err
	}
	if n != count {
		return malformed("key %q is %d, want %d", splitCountKey, n, count)
	}
	if count == 1 {
		return nil
	}
	own, err := p.splitNumber(splitNoKey, 0, math.MaxUint16)
	if err != nil {
		return err
	}
	if _, ok := p.Value(splitNoKey); !ok || own != int64(no) {
		return malformed("key %q is %d, want %d", splitNoKey, own, no)
	}
	// Later parts repeat a little of the first part's metadata. A difference there shows
	// that the parts come from different models.
	for key, v := range p.All() {
		if key == splitNoKey || key == alignmentKey {
			continue
		}
		if first, ok := f.Value(key); ok && first != v {
			return malformed("key %s is %s, and %s in the first part", quote(key), v.brief(), first.brief())
		}
	}
	return nil
}

// join adds the tensors and the mapping of p, a later part, to f.
func (f *File) join(p *File) error {
	part := len(f.parts)
	for _, t := range p.tensors {
		if o, dup := f.Tensor(t.Name); dup {
			return malformed("tensor %s is in part %d too", quote(t.Name), o.Part+1)
		}
		t.Part = part
		f.index[t.Name] = len(f.tensors)
		f.tensors = append(f.tensors, t)
	}
	f.parts, f.headers = append(f.parts, p.parts...), append(f.headers, p.headers...)
	return nil
}

// checkJoined returns an error if tensors are missing from the joined parts.
func (f *File) checkJoined() error {
	if len(f.parts) == 1 {
		return nil
	}
	n := int64(len(f.tensors))
	want, err := f.splitNumber(splitTensorsKey, n, math.MaxInt32)
	if err != nil {
		return err
	}
	if want != n {
		return malformed("the %d parts hold %d tensors, want %d by key %q", len(f.parts), n, want, splitTensorsKey)
	}
	return nil
}
