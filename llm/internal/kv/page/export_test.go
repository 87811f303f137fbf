package page

import (
	"fmt"
	"slices"
)

// Refs returns the number of references to a page of group g.
func (p *Pool) Refs(g int, page int32) int { return int(p.groups[g].refs[page]) }

// DropPrefixes drops all pages that only the prefix tree holds.
func (p *Pool) DropPrefixes() {
	for g := range p.groups {
		p.evict(g, p.groups[g].treeOnly)
	}
}

// TreePages returns the pages of group g that the prefix tree refers to.
func (p *Pool) TreePages(g int) []int32 {
	var pages []int32
	for n := p.tree.oldest; n != none; n = p.tree.nodes[n].newer {
		if page := *p.tree.page(n, g); page != none {
			pages = append(pages, page)
		}
	}
	return pages
}

// Check returns an error if the books of p are wrong. sequences are all sequences of p that are
// not released.
func (p *Pool) Check(sequences []*Sequence) error {
	for g := range p.groups {
		if err := p.checkGroup(g, sequences); err != nil {
			return fmt.Errorf("group %d: %w", g, err)
		}
	}
	for i, s := range sequences {
		if err := p.checkSequence(s); err != nil {
			return fmt.Errorf("sequence %d: %w", i, err)
		}
	}
	return p.checkTree()
}

// checkGroup counts the references to the pages of group g anew.
func (p *Pool) checkGroup(g int, sequences []*Sequence) error {
	in := &p.groups[g]
	refs := make([]int32, len(in.refs))
	for _, s := range sequences {
		for _, page := range s.tables[g].pages {
			if page != none {
				refs[page]++
			}
		}
		for _, c := range s.copies {
			if c.Group == g {
				refs[c.From]++
			}
		}
	}
	for _, page := range p.TreePages(g) {
		refs[page]++
		if n := in.node[page]; n == none || *p.tree.page(n, g) != page {
			return fmt.Errorf("page %d is not listed", page)
		}
	}
	if !slices.Equal(refs, in.refs) {
		return fmt.Errorf("references are %v, want %v", in.refs, refs)
	}
	var free, stale, treeOnly int
	for page, n := range refs {
		if in.unused.has(page) != (n == 0) {
			return fmt.Errorf("page %d with %d references is free: %t", page, n, in.unused.has(page))
		}
		if n == 0 {
			free++
			if in.dirty.has(page) {
				stale++
			}
			if page/64 < in.low {
				return fmt.Errorf("page %d is free below word %d", page, in.low)
			}
		}
		if n == 1 && in.node[page] != none {
			treeOnly++
		}
	}
	if free != in.free || stale != in.stale || treeOnly != in.treeOnly {
		return fmt.Errorf("%d free, %d stale, %d of the tree only, counted %d, %d, %d", free, stale, treeOnly, in.free, in.stale, in.treeOnly)
	}
	if treeOnly > p.limit {
		return fmt.Errorf("%d pages of the tree only, the limit is %d", treeOnly, p.limit)
	}
	return nil
}

// checkSequence checks that the tables of s have the rows that later tokens see, and that the
// full pages of group 0 are those of the tree.
func (p *Pool) checkSequence(s *Sequence) error {
	for g, t := range s.tables {
		if got, want := len(t.pages), pagesOf(s.done+s.reserved); got != want {
			return fmt.Errorf("table of group %d with %d entries, want %d", g, got, want)
		}
		for i, page := range t.pages {
			if i < t.low && page != none {
				return fmt.Errorf("entry %d of group %d has a page below %d", i, g, t.low)
			}
			if i >= p.groups[g].first(s.done)/Rows && page == none {
				return fmt.Errorf("entry %d of group %d has no page with %d rows", i, g, s.done)
			}
		}
	}
	if p.limit == 0 || s.opt.Private {
		for g := range s.tables {
			for _, page := range s.tables[g].pages {
				if page != none && p.groups[g].node[page] != none {
					return fmt.Errorf("page %d of group %d is in the tree", page, g)
				}
			}
		}
		return nil
	}
	if got, want := p.tree.depth(s.node), s.done/Rows; got != want {
		return fmt.Errorf("%d pages are in the tree, want %d", got, want)
	}
	for n := s.node; n != none; n = p.tree.nodes[n].parent {
		i := p.tree.depth(n) - 1
		if p.tree.nodes[n].edge != s.edge(p.tree.nodes[n].parent, i) || *p.tree.page(n, 0) != s.tables[0].pages[i] {
			return fmt.Errorf("entry %d is not that of node %d", i, n)
		}
	}
	return nil
}

// checkTree checks the links between the nodes.
func (p *Pool) checkTree() error {
	t := &p.tree
	children := make(map[int32]int32)
	seen := make(map[int32]bool)
	for n := t.newest; n != none; n = t.nodes[n].older {
		e := &t.nodes[n].edge
		if seen[n] || e.parent != none && !seen[e.parent] {
			return fmt.Errorf("node %d is newer than node %d before it", n, e.parent)
		}
		seen[n] = true
		children[e.parent]++
		if t.find(e) != n || t.depth(n) != t.depth(e.parent)+1 {
			return fmt.Errorf("node %d of depth %d after depth %d is found as %d", n, t.depth(n), t.depth(e.parent), t.find(e))
		}
		if *t.page(n, 0) == none {
			return fmt.Errorf("node %d has no page in group 0", n)
		}
	}
	for n := range seen {
		if t.nodes[n].children != children[n] {
			return fmt.Errorf("node %d counts %d children, has %d", n, t.nodes[n].children, children[n])
		}
	}
	unused := 0
	for n := t.unused; n != none; n = t.nodes[n].next {
		unused++
	}
	if unused+len(seen) != len(t.nodes) {
		return fmt.Errorf("%d nodes used and %d unused of %d", len(seen), unused, len(t.nodes))
	}
	return nil
}

// Retain and ReleasePage add and remove a reference to a page of group g.
func (p *Pool) Retain(g int, page int32)      { p.groups[g].retain(page) }
func (p *Pool) ReleasePage(g int, page int32) { p.groups[g].release(page) }
