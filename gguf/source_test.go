package gguf_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/tests/ggufbuild"
)

// fingerprint returns the fingerprint of the model in the images.
func fingerprint(t *testing.T, images ...[]byte) [32]byte {
	t.Helper()
	f, err := gguf.ParseSplit(images...)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum, err := f.Source().Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// The fingerprint changes with the metadata, with the ends of each tensor, with the division
// into files and with their sizes. It does not depend on the bytes between the ends of a tensor.
func TestFingerprint(t *testing.T) {
	build := func(name string, data []byte) []byte {
		var b ggufbuild.Builder
		b.SetString("general.name", name)
		b.AddTensor("small", dtype.I8, []int{3}, []byte{1, 2, 3})
		b.AddTensor("large", dtype.I8, []int{len(data)}, data)
		return b.Bytes()
	}
	data := bytes.Repeat([]byte{5}, 8192+100)
	image := build("a", data)
	want := fingerprint(t, image)
	if got := fingerprint(t, slices.Clone(image)); got != want {
		t.Error("the same image has two fingerprints")
	}
	at := bytes.LastIndex(image, data)
	if at < 0 {
		t.Fatal("the image lacks the data")
	}
	changed := func(i int) []byte {
		c := slices.Clone(image)
		c[at+i] ^= 1
		return c
	}
	for i, differs := range map[int]bool{0: true, 4095: true, 4096: false, 4195: false, 4196: true, 8291: true} {
		if got := fingerprint(t, changed(i)); (got != want) != differs {
			t.Errorf("another byte %d of a tensor of %d changes the fingerprint: %t, want %t", i, len(data), got != want, differs)
		}
	}
	for name, other := range map[string][]byte{
		"another name":             build("b", data),
		"a longer file":            append(slices.Clone(image), 0),
		"a shorter last tensor":    build("a", data[1:]),
		"a byte in a small tensor": bytes.Replace(image, []byte{1, 2, 3}, []byte{1, 9, 3}, 1),
	} {
		if fingerprint(t, other) == want {
			t.Errorf("%s does not change the fingerprint", name)
		}
	}

	parts := splitParts(3)
	want = fingerprint(t, parts...)
	parts[2] = append(slices.Clone(parts[2]), 0)
	if fingerprint(t, parts...) == want {
		t.Error("a longer last part does not change the fingerprint")
	}
}

// Retain keeps all parts open after Close, also one without tensors, which no buffer keeps open.
func TestRetainSource(t *testing.T) {
	head := ggufbuild.Builder{}
	head.SetString("general.architecture", "llama")
	head.SetUint16("split.no", 0)
	head.SetUint16("split.count", 2)
	head.SetInt32("split.tensors.count", 2)
	prefix := writeParts(t, head.Bytes(), part(1, 2, 2).Bytes())
	f, err := gguf.Open(gguf.SplitPath(prefix, 0, 2))
	if err != nil {
		t.Fatal(err)
	}
	s := f.Source()
	want, err := s.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Retain(); err != nil {
		t.Fatal(err)
	}
	info, _ := f.Tensor("t2")
	buffer, err := f.Buffer(info)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Fingerprint(); err != nil || got != want {
		t.Errorf("after Close: fingerprint %x and error %v, want %x", got, err, want)
	}
	s.Release()
	// The buffer keeps only the second part open.
	for range 2 {
		if _, err := s.Fingerprint(); !errors.Is(err, gguf.ErrClosed) {
			t.Errorf("after Release: %v, want %v", err, gguf.ErrClosed)
		}
		if err := s.Retain(); !errors.Is(err, gguf.ErrClosed) {
			t.Errorf("Retain after Release: %v, want %v", err, gguf.ErrClosed)
		}
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	buffer.Release()
}
