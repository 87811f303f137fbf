package page

import (
	"fmt"
	"hash/maphash"
	"math/bits"
)

// Key says which sequences can share rows: those whose keys are equal. The rows of equal ids
// must be equal for equal keys.
type Key struct {
	Variant string // the variant of the rotary angles
}

// edge identifies a node of the prefix tree: the page of these ids, after the page of parent.
type edge struct {
	key    Key
	parent int32 // a node, or none for the first page of a sequence
	ids    [Rows]int32
}

// node is a page of the prefix tree in every group. Its page numbers are in tree.pages.
type node struct {
	edge
	depth        int32 // the number of nodes from the first page to this one, which it includes
	children     int32 // the number of nodes whose parent this is
	next         int32 // the next node of the bucket, or of the unused nodes
	newer, older int32 // neighbours in the order of use
}

// tree is the prefix tree: a hash table of nodes by their edges.
type tree struct {
	groups         int
	nodes          []node
	pages          []int32 // [node][group] page, or none if the group has dropped it
	unused         int32   // the first unused node
	newest, oldest int32   // the ends of the order of use
	buckets        []int32 // the first node of each bucket; a power of two of them
	seed           maphash.Seed
}

// newTree returns an empty tree for the given numbers of groups and of pages in a group.
func newTree(groups, pages int) tree {
	t := tree{
		groups: groups, unused: none, newest: none, oldest: none,
		buckets: make([]int32, 1<<bits.Len(uint(pages-1))), seed: maphash.MakeSeed(),
	}
	for i := range t.buckets {
		t.buckets[i] = none
	}
	return t
}

// bucket returns the bucket of e.
func (t *tree) bucket(e *edge) *int32 {
	return &t.buckets[maphash.Comparable(t.seed, *e)&uint64(len(t.buckets)-1)]
}

// find returns the node of e, or none.
func (t *tree) find(e *edge) int32 {
	n := *t.bucket(e)
	for n != none && t.nodes[n].edge != *e {
		n = t.nodes[n].next
	}
	return n
}

// depth returns the number of nodes from the first page to n. It is 0 for none.
func (t *tree) depth(n int32) int {
	if n == none {
		return 0
	}
	return int(t.nodes[n].depth)
}

// page returns a pointer to the number of the page that n has in group g.
func (t *tree) page(n int32, g int) *int32 { return &t.pages[int(n)*t.groups+g] }

// add adds a node without pages for e, which the tree does not have. It is the newest node, and
// the caller must touch it when its pages are set.
func (t *tree) add(e *edge) int32 {
	n := t.unused
	if n == none {
		n = int32(len(t.nodes))
		t.nodes = append(t.nodes, node{})
		for range t.groups {
			t.pages = append(t.pages, none)
		}
	} else {
		t.unused = t.nodes[n].next
	}
	b := t.bucket(e)
	t.nodes[n] = node{edge: *e, depth: int32(t.depth(e.parent) + 1), next: *b}
	*b = n
	if e.parent != none {
		t.nodes[e.parent].children++
	}
	t.link(n)
	return n
}

// remove removes n, which has neither pages nor children.
func (t *tree) remove(n int32) {
	e := &t.nodes[n].edge
	b := t.bucket(e)
	for *b != n {
		b = &t.nodes[*b].next
	}
	*b = t.nodes[n].next
	if e.parent != none {
		t.nodes[e.parent].children--
	}
	t.unlink(n)
	t.nodes[n] = node{next: t.unused}
	t.unused = n
}

// touch makes n and the nodes before it the newest ones. The first page is the newest of all, so
// that no node is older than a node after it.
func (t *tree) touch(n int32) {
	for ; n != none; n = t.nodes[n].parent {
		t.unlink(n)
		t.link(n)
	}
}

// link inserts n at the new end of the order of use.
func (t *tree) link(n int32) {
	t.nodes[n].newer, t.nodes[n].older = none, t.newest
	if t.newest != none {
		t.nodes[t.newest].newer = n
	} else {
		t.oldest = n
	}
	t.newest = n
}

// unlink removes n from the order of use.
func (t *tree) unlink(n int32) {
	newer, older := t.nodes[n].newer, t.nodes[n].older
	if newer != none {
		t.nodes[newer].older = older
	} else {
		t.newest = older
	}
	if older != none {
		t.nodes[older].newer = newer
	} else {
		t.oldest = newer
	}
}

// evict frees k pages of group g that only the tree holds, the least recently used ones first.
// A page of group 0 takes its node with it, and thereby the node's pages in the other groups. The
// nodes after that node are gone by then: they are older, and only the tree holds them too.
// Nothing happens if k is not positive.
func (p *Pool) evict(g, k int) {
	t := &p.tree
	for n := t.oldest; k > 0; {
		if n == none {
			panic(fmt.Sprintf("page: %d pages of group %d that only the tree holds are not in it", k, g))
		}
		newer := t.nodes[n].newer
		if page := *t.page(n, g); page != none && p.groups[g].refs[page] == 1 {
			p.drop(n, g)
			k--
		}
		n = newer
	}
}

// drop drops the page that n has in group g. Group 0 takes the whole node with it, which must
// have no children.
func (p *Pool) drop(n int32, g int) {
	if g > 0 {
		p.dropPage(n, g)
		return
	}
	if c := p.tree.nodes[n].children; c != 0 {
		panic(fmt.Sprintf("page: node %d with %d children is dropped", n, c))
	}
	for g := range p.groups {
		p.dropPage(n, g)
	}
	p.tree.remove(n)
}

// dropPage drops the page that n has in group g, if it has one.
func (p *Pool) dropPage(n int32, g int) {
	if page := p.tree.page(n, g); *page != none {
		p.groups[g].unlist(*page, n)
		p.stats.Dropped++
		*page = none
	}
}
