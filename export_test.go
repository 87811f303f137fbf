package fucina

import (
	"context"
	"unsafe"

	"github.com/fucina-go/fucina/core/storage"
)

// Memory returns the address of the tensor's buffer, for tests of the reuse of memory.
func Memory(t Tensor) *byte {
	o, err := t.use()
	if err != nil {
		panic(err)
	}
	defer o.Raw.Release()
	p, err := o.Raw.Buffer().Host(context.Background(), storage.Read)
	if err != nil {
		panic(err)
	}
	return unsafe.SliceData(p)
}
