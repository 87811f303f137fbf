//go:build cuda || metal || accel

package residency

import (
	"cmp"
	"slices"
)

// idleBlocks holds the blocks that wait for reuse, in ascending order of size.
type idleBlocks []sizeList

// sizeList holds the idle blocks of one size in the order in which they were freed. It
// may be empty.
type sizeList struct {
	size   int
	blocks []*Block
}

// from returns the index of the first list whose blocks have at least size bytes.
func (l idleBlocks) from(size int) int {
	i, _ := slices.BinarySearchFunc(l, size, func(e sizeList, size int) int { return cmp.Compare(e.size, size) })
	return i
}

func (l *idleBlocks) add(b *Block) {
	i := l.from(b.mem.Len)
	if i == len(*l) || (*l)[i].size != b.mem.Len {
		*l = slices.Insert(*l, i, sizeList{size: b.mem.Len})
	}
	(*l)[i].blocks = append((*l)[i].blocks, b)
}

// take removes the block at index k.
func (l *sizeList) take(k int) *Block {
	b := l.blocks[k]
	l.blocks = slices.Delete(l.blocks, k, k+1)
	return b
}

// compact drops the empty lists.
func (l *idleBlocks) compact() {
	*l = slices.DeleteFunc(*l, func(e sizeList) bool { return len(e.blocks) == 0 })
}

func (l idleBlocks) all(yield func(*Block) bool) {
	for i := range l {
		for _, b := range l[i].blocks {
			if !yield(b) {
				return
			}
		}
	}
}
