package gguf_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/tests/ggufbuild"
)

func host(t *testing.T, b *storage.Buffer) []byte {
	t.Helper()
	p, err := b.Host(context.Background(), storage.Read)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func writeFile(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func countedTensors(align uint32) *ggufbuild.Builder {
	b := &ggufbuild.Builder{Alignment: align}
	data := make([]byte, 64)
	for i := range data {
		data[i] = byte(i)
	}
	b.AddTensor("bytes", dtype.I8, []int{3}, data[:3])
	b.AddTensor("floats", dtype.F32, []int{16}, data)
	return b
}

// A buffer borrows the mapping's bytes read-only, and keeps the mapping alive after Close.
func TestBufferOutlivesFile(t *testing.T) {
	f, err := gguf.Open(writeFile(t, countedTensors(0).Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	ti, _ := f.Tensor("floats")
	b, err := f.Buffer(ti)
	if err != nil {
		t.Fatal(err)
	}
	if &host(t, b)[0] != &f.Data(ti)[0] {
		t.Error("the buffer is not the mapping's bytes")
	}
	if !b.Borrowed() || !b.ReadOnly() {
		t.Errorf("Borrowed %v, ReadOnly %v", b.Borrowed(), b.ReadOnly())
	}
	if _, err := b.Host(context.Background(), storage.Update); !errors.Is(err, storage.ErrReadOnly) {
		t.Errorf("write access: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Buffer(ti); !errors.Is(err, gguf.ErrClosed) {
		t.Errorf("Buffer after Close: %v", err)
	}
	if p := host(t, b); len(p) != 64 || p[63] != 63 {
		t.Errorf("bytes after Close: %v", p)
	}
	b.Release()
}

// If the alignment of the file is below that of the elements, the buffer is an aligned
// copy.
func TestUnalignedTensorIsCopied(t *testing.T) {
	for _, align := range []uint32{1, 2, 4} {
		f, err := gguf.Open(writeFile(t, countedTensors(align).Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		ti, _ := f.Tensor("floats")
		b, err := f.Buffer(ti)
		if err != nil {
			t.Fatal(err)
		}
		if want := ti.Offset%4 == 0; b.Borrowed() != want {
			t.Errorf("alignment %d, offset %d: Borrowed() = %v", align, ti.Offset, b.Borrowed())
		}
		p := host(t, b)
		if !bytes.Equal(p, f.Data(ti)) {
			t.Errorf("alignment %d: bytes %v", align, p)
		}
		if _, err := storage.Elements[float32](p); err != nil {
			t.Errorf("alignment %d: %v", align, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		b.Release()
	}
}

func TestForeignTensor(t *testing.T) {
	f, err := gguf.Parse(countedTensors(0).Bytes())
	if err != nil {
		t.Fatal(err)
	}
	ti, _ := f.Tensor("floats")
	for _, change := range []func(*gguf.TensorInfo){
		func(t *gguf.TensorInfo) { t.Name = "absent" },
		func(t *gguf.TensorInfo) { t.Offset += 1 << 40 },
		func(t *gguf.TensorInfo) { t.Size *= 2 },
		func(t *gguf.TensorInfo) { t.DType = dtype.F64 },
	} {
		forged := ti
		change(&forged)
		if _, err := f.Buffer(forged); !errors.Is(err, gguf.ErrNoTensor) {
			t.Errorf("Buffer(%+v): %v", forged, err)
		}
		if f.Data(forged) != nil {
			t.Errorf("Data(%+v) is not nil", forged)
		}
	}
}

// While the file is closed concurrently, each call of Buffer returns a buffer with the
// bytes or ErrClosed.
func TestCloseRace(t *testing.T) {
	path := writeFile(t, countedTensors(0).Bytes())
	for range 50 {
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		ti, _ := f.Tensor("floats")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					b, err := f.Buffer(ti)
					if err != nil {
						if !errors.Is(err, gguf.ErrClosed) {
							t.Error(err)
						}
						return
					}
					p, err := b.Host(context.Background(), storage.Read)
					if err != nil || p[63] != 63 {
						t.Errorf("bytes %v, %v", p, err)
					}
					b.Release()
				}
			})
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := gguf.Open(filepath.Join(dir, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
	if _, err := gguf.Open(dir); !errors.Is(err, gguf.ErrNotGGUF) {
		t.Errorf("directory: %v", err)
	}
	if _, err := gguf.Open(writeFile(t, nil)); !errors.Is(err, gguf.ErrNotGGUF) {
		t.Errorf("empty file: %v", err)
	}
	image := sample()
	binary.LittleEndian.PutUint64(image[8:], 1<<40)
	if _, err := gguf.Open(writeFile(t, image)); !errors.Is(err, gguf.ErrMalformed) {
		t.Errorf("2^40 tensors: %v", err)
	}
}
