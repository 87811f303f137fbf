package page

import (
	"fmt"
	"math/bits"
)

// group has the pages of the layers that need the same rows.
type group struct {
	index  int
	window int     // the tokens that a token sees, including itself; 0 means all
	refs   []int32 // the number of references to each page
	node   []int32 // the node of the prefix tree that refers to each page, or none
	unused bitmap  // the pages without references
	dirty  bitmap  // the pages that were in use since appendFreed returned them

	free     int // the number of pages in unused
	stale    int // the number of pages in both unused and dirty
	treeOnly int // the number of pages whose only reference is that of the tree
	low      int // no word of unused before this one has a page
}

func newGroup(index, window, pages int) group {
	g := group{
		index: index, window: window, free: pages,
		refs: make([]int32, pages), node: make([]int32, pages),
		unused: newBitmap(pages), dirty: newBitmap(pages),
	}
	for i := range g.node {
		g.node[i] = none
		g.unused.set(i)
	}
	return g
}

// first returns the first row that the token at position at sees, or any later token.
func (g *group) first(at int) int {
	if g.window == 0 {
		return 0
	}
	return max(0, at-g.window+1)
}

// obtainable returns the number of pages that are free, or that the tree would give up.
func (g *group) obtainable() int { return g.free + g.treeOnly }

// take returns the lowest free page, with one reference.
func (g *group) take() int32 {
	for ; g.low < len(g.unused); g.low++ {
		if word := g.unused[g.low]; word != 0 {
			page := g.low*64 + bits.TrailingZeros64(word)
			g.unused.clear(page)
			if g.dirty.has(page) {
				g.stale--
			}
			g.dirty.set(page)
			g.free--
			g.refs[page] = 1
			return int32(page)
		}
	}
	panic(fmt.Sprintf("page: group %d has no free page, but counts %d of %d", g.index, g.free, len(g.refs)))
}

// retain adds a reference to page.
func (g *group) retain(page int32) {
	if g.refs[page] < 1 {
		panic(fmt.Sprintf("page: reference to page %d of group %d, which is free (%d references)", page, g.index, g.refs[page]))
	}
	if g.refs[page] == 1 && g.node[page] != none {
		g.treeOnly--
	}
	g.refs[page]++
}

// release removes a reference to page.
func (g *group) release(page int32) {
	if g.refs[page] < 1 {
		panic(fmt.Sprintf("page: release of page %d of group %d, which is free (%d references)", page, g.index, g.refs[page]))
	}
	g.refs[page]--
	switch inTree := g.node[page] != none; {
	case g.refs[page] == 0 && inTree:
		panic(fmt.Sprintf("page: release of the last reference to page %d of group %d, which is that of node %d", page, g.index, g.node[page]))
	case g.refs[page] == 0:
		g.unused.set(int(page))
		g.low = min(g.low, int(page)/64)
		g.free++
		g.stale++
	case g.refs[page] == 1 && inTree:
		g.treeOnly++
	}
}

// list adds the reference of a node to page, to which a sequence refers.
func (g *group) list(page, node int32) {
	if g.node[page] != none {
		panic(fmt.Sprintf("page: page %d of group %d enters node %d, but is in node %d", page, g.index, node, g.node[page]))
	}
	g.retain(page)
	g.node[page] = node
}

// unlist removes the reference of node to page.
func (g *group) unlist(page, node int32) {
	if g.node[page] != node {
		panic(fmt.Sprintf("page: page %d of group %d leaves node %d, but is in node %d", page, g.index, node, g.node[page]))
	}
	if g.refs[page] == 1 {
		g.treeOnly--
	}
	g.node[page] = none
	g.release(page)
}

// appendFreed implements Pool.AppendFreed for the group.
func (g *group) appendFreed(runs []Run, least int) []Run {
	for page := g.nextStale(0); page != none; {
		from, end := page, page
		for from > 0 && g.unused.has(from-1) {
			from--
		}
		for end < len(g.refs) && g.unused.has(end) {
			end++
		}
		if end-from >= least {
			for i := from; i < end; i++ {
				if g.dirty.has(i) {
					g.dirty.clear(i)
					g.stale--
				}
			}
			runs = append(runs, Run{Group: g.index, From: from, Count: end - from})
		}
		page = g.nextStale(end)
	}
	return runs
}

// nextStale returns the first page from from on that is in both unused and dirty, or none.
func (g *group) nextStale(from int) int {
	if g.stale == 0 {
		return none
	}
	for w := from / 64; w < len(g.unused); w++ {
		word := g.unused[w] & g.dirty[w]
		if w == from/64 {
			word &= ^uint64(0) << (from % 64)
		}
		if word != 0 {
			return w*64 + bits.TrailingZeros64(word)
		}
	}
	return none
}

// bitmap is a set of pages.
type bitmap []uint64

func newBitmap(pages int) bitmap { return make(bitmap, (pages+63)/64) }

func (b bitmap) has(page int) bool { return b[page/64]>>(page%64)&1 != 0 }

func (b bitmap) set(page int) { b[page/64] |= 1 << (page % 64) }

func (b bitmap) clear(page int) { b[page/64] &^= 1 << (page % 64) }
