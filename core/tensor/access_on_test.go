//go:build cuda || metal || accel

package tensor

import (
	"context"
	"slices"
	"testing"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
)

var bg = context.Background()

// memory is device memory whose transfers are immediate and counted.
type memory struct {
	bytes              []byte
	uploads, downloads int
}

func (m *memory) Upload(_ context.Context, off int, src []byte, _ accel.Fences) (accel.Work, error) {
	m.uploads++
	copy(m.bytes[off:], src)
	return accel.Work{}, nil
}

func (m *memory) Download(_ context.Context, dst []byte, off int, _ accel.Work) (accel.Work, error) {
	m.downloads++
	copy(dst, m.bytes[off:])
	return accel.Work{}, nil
}

func (m *memory) Read(_ context.Context, dst []byte, off int, _ accel.Work) (accel.Work, error) {
	copy(dst, m.bytes[off:])
	return accel.Work{}, nil
}

func (m *memory) Free(accel.Fences) {}

// Overwriting a part of a buffer keeps the other bytes that only the device has. Overwriting
// the whole buffer downloads nothing.
func TestOverwriteOfPartIsUpdate(t *testing.T) {
	tests := []struct {
		name  string
		extra int // elements by which the buffer exceeds the tensor
		view  func(x *Tensor) (Tensor, error)
		alone bool // the view is the only owner
		want  int  // downloads
	}{
		{"whole", 0, func(x *Tensor) (Tensor, error) { return x.Reshape(shape.Must(8)) }, true, 0},
		{"whole, shared", 0, func(x *Tensor) (Tensor, error) { return x.Reshape(shape.Must(8)) }, false, 0},
		{"whole of a pooled buffer", 8, func(x *Tensor) (Tensor, error) { return x.Reshape(shape.Must(8)) }, true, 0},
		{"whole of a pooled buffer, shared", 8, func(x *Tensor) (Tensor, error) { return x.Reshape(shape.Must(8)) }, false, 1},
		{"head, shared", 0, func(x *Tensor) (Tensor, error) { return x.Narrow(0, 0, 2) }, false, 1},
		{"tail, shared", 0, func(x *Tensor) (Tensor, error) { return x.Narrow(0, 2, 2) }, false, 1},
		{"tail", 0, func(x *Tensor) (Tensor, error) { return x.Narrow(0, 2, 2) }, true, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			buf := storage.NewLazy((8 + tt.extra) * 4)
			m := &memory{bytes: make([]byte, buf.Size())}
			buf.Attach(m, nil, &storage.Retired{})
			q := accel.NewTimeline("compute", nil)
			var needs storage.Needs
			if _, err := buf.BeginDevice(bg, q, storage.Overwrite, &needs); err != nil {
				t.Fatal(err)
			}
			values := must(storage.Elements[float32](m.bytes))
			for i := range values {
				values[i] = float32(i)
			}
			buf.EndDevice(storage.Overwrite, accel.Work{}, true, nil)

			x := must(FromBuffer(buf, dtype.F32, shape.Must(4, 2)))
			v := must(tt.view(&x))
			defer v.Release()
			if tt.alone {
				x.Release()
			} else {
				defer x.Release()
			}
			for i, p := 0, must(Data[float32](background, &v, storage.Overwrite)); i < len(p); i++ {
				p[i] = -1
			}
			if m.downloads != tt.want || m.uploads != 0 {
				t.Errorf("%d downloads, %d uploads; want %d and none", m.downloads, m.uploads, tt.want)
			}
			if tt.alone {
				return
			}
			want := []float32{0, 1, 2, 3, 4, 5, 6, 7}
			for i := range v.Len() {
				want[v.Offset()+i] = -1
			}
			if got := must(Data[float32](background, &x, storage.Read)); !slices.Equal(got, want) {
				t.Errorf("the base reads %v, want %v", got, want)
			}
		})
	}
}
