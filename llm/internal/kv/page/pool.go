package page

import (
	"errors"
	"fmt"
	"math"
)

// Rows is the number of rows of a page.
const Rows = 32

// none is the number of a page or node that does not exist.
const none = -1

// ErrFull reports that the cache has too few free pages for a step. The step can succeed after
// other sequences were rewound or released.
var ErrFull = errors.New("cache is full")

// Options are the dimensions of a pool.
type Options struct {
	// Rows is the number of rows of each group. It is rounded up to whole pages.
	Rows int
	// Windows has the window of each group. The window of group 0 must be 0, which means
	// that its layers see all tokens. The others must be positive.
	Windows []int
	// PrefixRows limits the rows, in whole pages, that the prefix tree may hold in each group
	// in addition to those that sequences hold. If it is less than a page, there is no tree.
	PrefixRows int
}

// Pool has the pages of a cache, and the tree of prefixes. It is not safe for concurrent use.
type Pool struct {
	groups []group
	tree   tree
	limit  int     // the pages that only the tree may hold, in each group; 0 means no tree
	path   []int32 // scratch space of Sequence.path
	stats  Stats
}

// Stats counts what a pool has done since New. Pages are counted in all groups together.
type Stats struct {
	Forked    int // pages that a fork shares with its parent
	Matched   int // pages that a sequence took from the prefix tree
	Copied    int // shared pages that were copied to be written
	GivenBack int // pages that a sequence gave back because no later token sees them
	Dropped   int // pages that the prefix tree dropped
	Redone    int // tokens that were decoded again
}

// Add adds the counters of o to s.
func (s *Stats) Add(o Stats) {
	s.Forked += o.Forked
	s.Matched += o.Matched
	s.Copied += o.Copied
	s.GivenBack += o.GivenBack
	s.Dropped += o.Dropped
	s.Redone += o.Redone
}

// GroupStats says what the pages of one group are used for.
type GroupStats struct {
	Pages int // all pages
	Free  int // pages that nothing refers to
	Tree  int // pages that only the prefix tree refers to
}

// Run is a run of free pages of one group.
type Run struct {
	Group, From, Count int
}

// New returns a pool whose pages are all free. It panics if opt has no groups that a network
// can have.
func New(opt Options) *Pool {
	pages := (opt.Rows + Rows - 1) / Rows
	if opt.Rows < 1 || pages > math.MaxInt32 || len(opt.Windows) == 0 || opt.Windows[0] != 0 {
		panic(fmt.Sprintf("page: pool of %d rows with windows %v", opt.Rows, opt.Windows))
	}
	p := &Pool{limit: opt.PrefixRows / Rows}
	for i, window := range opt.Windows {
		if i > 0 && window < 1 {
			panic(fmt.Sprintf("page: pool with windows %v", opt.Windows))
		}
		if i > 0 {
			// With a window of 1 a sequence would be whole in the middle of a page whose
			// first rows it does not have, and the page would enter the tree.
			window = max(window, 2)
		}
		p.groups = append(p.groups, newGroup(i, window, pages))
	}
	p.tree = newTree(len(p.groups), pages)
	return p
}

// Stats returns the pool's counters.
func (p *Pool) Stats() Stats { return p.stats }

// Group returns the use of the pages of group g.
func (p *Pool) Group(g int) GroupStats {
	return GroupStats{Pages: len(p.groups[g].refs), Free: p.groups[g].free, Tree: p.groups[g].treeOnly}
}

// AppendFreed appends to runs the longest possible runs of free pages that include a page which
// became free since AppendFreed last returned it, and returns the extended slice. Other pages of
// a run may have been returned before. A run of fewer than least pages is left for a later call,
// because its pages are likely to be used again soon.
//
// The owner may give the memory of the runs back to the system before the next Reserve.
func (p *Pool) AppendFreed(runs []Run, least int) []Run {
	for i := range p.groups {
		runs = p.groups[i].appendFreed(runs, least)
	}
	return runs
}

// trim drops the least recently used pages beyond the limit of the tree.
func (p *Pool) trim() {
	for g := range p.groups {
		p.evict(g, p.groups[g].treeOnly-p.limit)
	}
}

// pagesOf returns the number of pages that n rows take.
func pagesOf(n int) int { return (n + Rows - 1) / Rows }
