package fucina

import (
	"context"
	"unsafe"

	"github.com/fucina-go/fucina/core/storage"
)

// Memory returns the address of the buffer that the tensor lives in, for tests of its
// reuse.
func Memory(t Tensor) *byte {
	o, err := t.use()
	if err != nil {
		panic(err)
	}
	defer o.t.Release()
	p, err := o.t.Buffer().Host(context.Background(), storage.Read)
	if err != nil {
		panic(err)
	}
	return unsafe.SliceData(p)
}
