package gguf

import (
	"slices"
	"testing"
)

func TestDropPages(t *testing.T) {
	var dropped [][2]int
	m := newMapping(make([]byte, 100), func() error { return nil }, func(off, n int) { dropped = append(dropped, [2]int{off, n}) })
	a := TensorInfo{Name: "a", Offset: 32, Size: 8}
	empty := TensorInfo{Name: "empty", Offset: 40}
	f := &File{tensors: []TensorInfo{a, empty}, index: map[string]int{"a": 0, "empty": 1}, parts: []*mapping{m}}
	f.DropPages(a)
	f.DropPages(empty)
	f.DropPages(TensorInfo{Name: "a", Offset: 64, Size: 8})
	f.DropPages(TensorInfo{Name: "b", Offset: 32, Size: 8})
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f.DropPages(a)
	if want := [][2]int{{32, 8}}; !slices.Equal(dropped, want) {
		t.Errorf("dropped %v, want %v", dropped, want)
	}
	// An image in memory has nothing to drop.
	f = &File{tensors: []TensorInfo{a}, index: map[string]int{"a": 0}, parts: []*mapping{newMapping(make([]byte, 100), nil, nil)}}
	f.DropPages(a)
}
