//go:build (darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows) && !race

package offheap

import "github.com/fucina-go/fucina/internal/invariants"

const (
	kindSlab    kind = iota // a cell of a slab
	kindPages               // a mapping of its own
	kindGuarded             // a mapping of its own between inaccessible pages
)

// alloc returns n zeroed bytes of mapped memory.
func alloc(n int) (Block, error) {
	b := Block{n: n}
	var err error
	switch {
	case invariants.Enabled && takeGuard():
		b.kind = kindGuarded
		if b.ptr, b.cap, err = allocGuarded(n); err != nil {
			returnGuard()
		}
	case n < LargeMin:
		b.kind = kindSlab
		b.cap = classSize(classOf(n))
		b.ptr, err = classes[classOf(n)].take(n)
	default:
		b.kind = kindPages
		b.cap = roundUp(n, pageSize)
		b.ptr, err = mapPages(b.cap)
	}
	return b, err
}

func release(b Block) {
	switch b.kind {
	case kindSlab:
		classes[classOf(b.n)].give(b.ptr)
	case kindPages:
		unmapPages(b.ptr, b.cap)
	case kindGuarded:
		freeGuarded(b)
	}
}
