package page

import (
	"fmt"
	"slices"
)

// SequenceOptions are the options of NewSequence.
type SequenceOptions struct {
	Key Key
	// Private keeps the pages of the sequence out of the prefix tree, and those of the tree
	// out of the sequence. Forks of the sequence are private too, and share its pages.
	Private bool
	// KeepWindows keeps the pages that no later token sees, so that a rewind finds them.
	// Pages that the prefix tree has lost before Prefix took a prompt are missing all the
	// same.
	KeepWindows bool
	// Slack is a number of rows. A page that no later token sees is given back only when its
	// rows are that far out of sight, so that a rewind of at most Slack tokens finds it.
	Slack int
	// Tokens is the number of tokens for which the sequence allocates tables at once. The
	// tables grow with a longer sequence.
	Tokens int
}

// Sequence is a sequence of tokens and the pages that hold its rows. It belongs to a pool, and
// the lock that guards the pool guards the sequence.
type Sequence struct {
	pool     *Pool
	opt      SequenceOptions
	ids      []int32
	done     int // the rows that are there; the ids from here on must be decoded again
	tables   []table
	node     int32  // the node of the last full page, or none
	reserved int    // the rows of the step that has been reserved; 0 between steps
	copies   []Copy // the shared pages that the step replaces; the sequence refers to both pages
	released bool
}

// table is the table of a sequence in one group. It has an entry for each page of the rows that
// are there or reserved.
type table struct {
	pages []int32
	low   int // all entries before this one are none
}

// Copy asks the owner to copy the first Rows rows of page From to page To, in all layers of
// a group. Page To belongs to the sequence.
type Copy struct {
	Group    int
	From, To int32
	Rows     int
}

// NewSequence returns an empty sequence. The caller releases it.
func (p *Pool) NewSequence(opt SequenceOptions) *Sequence {
	s := &Sequence{
		pool: p, opt: opt, node: none,
		ids:    make([]int32, 0, opt.Tokens),
		tables: make([]table, len(p.groups)),
		copies: make([]Copy, 0, len(p.groups)),
	}
	for g := range s.tables {
		s.tables[g].pages = make([]int32, 0, pagesOf(opt.Tokens))
	}
	return s
}

// Len returns the number of tokens, including those that Redo names.
func (s *Sequence) Len() int { return len(s.ids) }

// IDs returns the tokens. The slice belongs to the sequence and is valid until it changes.
func (s *Sequence) IDs() []int32 { return s.ids }

// Table returns the pages of the sequence in group g: entry i has the rows from i*Rows on, or is
// -1 if no later token sees them. While a step is reserved, the table includes its rows. The
// slice belongs to the sequence and is valid until it changes.
func (s *Sequence) Table(g int) []int32 { return s.tables[g].pages }

// Redo returns the range of the tokens that must be decoded again: the rows of IDs()[from:to]
// are missing, and the next rows that are reserved are theirs. Usually from and to are both
// Len().
func (s *Sequence) Redo() (from, to int) { return s.done, len(s.ids) }

// Append adds tokens without their rows. It takes the rows that the prefix tree has, so that Redo
// names the other tokens. After the contents of the buffers were lost, the owner makes a new pool,
// and appends the tokens of each sequence of the old pool to a new sequence. The old sequences
// need not be released.
func (s *Sequence) Append(ids []int32) {
	s.idle("Append")
	s.ids = append(s.ids, ids...)
	s.settle()
}

// idle panics if the sequence is released or has a reservation.
func (s *Sequence) idle(call string) {
	if s.released || s.reserved > 0 {
		panic(fmt.Sprintf("page: %s of a sequence of %d tokens with %d rows reserved (released: %t)", call, len(s.ids), s.reserved, s.released))
	}
}

// Prefix takes rows from the prefix tree for tokens that are to follow the sequence. It returns
// the number of ids that became part of the sequence; the caller decodes the others. If there
// are any, the sequence then ends with a full page, and Redo names no tokens. At least the last
// id remains, so that decoding it gives logits. Prefix also takes rows for the tokens that Redo
// names.
func (s *Sequence) Prefix(ids []int32) int {
	s.idle("Prefix")
	held := len(s.ids)
	s.ids = append(s.ids, ids...)
	s.ids = s.ids[:max(held, (len(s.ids)-1)/Rows*Rows)]
	s.settle()
	s.ids = s.ids[:max(held, s.done)]
	return len(s.ids) - held
}

// Reserve makes room for the next n rows, of the tokens that Redo names and then of new ones. It
// returns the copies that must be performed before the step writes these rows, in the order of
// the Reserve calls if a step has rows of several sequences. The slice is valid until Commit or
// Cancel, one of which must follow.
//
// If pages lack, Reserve drops prefixes that no sequence uses. If that does not suffice, it
// fails with ErrFull and changes nothing.
func (s *Sequence) Reserve(n int) ([]Copy, error) {
	if err := s.reserve("Reserve", n, nil); err != nil {
		return nil, err
	}
	return s.copies, nil
}

// Restore makes room in an empty sequence for n rows that the owner has saved. from has for each
// group the first entry of the table whose rows were saved, which must not be behind Seen(g, n).
// Restore reserves the pages from there on, but only those that a sequence of n rows keeps. The
// caller then writes the rows of Table, and calls Commit with all n tokens, or Cancel. Restore
// fails like Reserve.
func (s *Sequence) Restore(n int, from []int) error {
	if len(s.ids) > 0 {
		panic(fmt.Sprintf("page: Restore of a sequence of %d tokens", len(s.ids)))
	}
	for g := range s.tables {
		if from[g] > s.Seen(g, n) {
			panic(fmt.Sprintf("page: Restore of %d rows from page %d of group %d on, want %d or before", n, from[g], g, s.Seen(g, n)))
		}
	}
	return s.reserve("Restore", n, from)
}

// Seen returns the first entry of the table of group g that the token at position n sees, or any
// later token.
func (s *Sequence) Seen(g, n int) int { return s.pool.groups[g].first(n) / Rows }

// reserve implements Reserve, and Restore if from is set.
func (s *Sequence) reserve(call string, n int, from []int) error {
	s.idle(call)
	if n < 1 {
		panic(fmt.Sprintf("page: %s of %d rows", call, n))
	}
	for g := range s.tables {
		if err := s.fits(g, n, from); err != nil {
			return err
		}
	}
	for g := range s.tables {
		s.makeRoom(g, n, from)
	}
	s.reserved = n
	return nil
}

// skipped returns the first entry of the table of group g for which a reservation of n rows
// takes a page.
func (s *Sequence) skipped(g, n int, from []int) int {
	held := len(s.tables[g].pages)
	if from != nil {
		return max(held, from[g], s.firstEntry(g, s.done+n))
	}
	return held
}

// need returns the number of pages that a reservation of n rows takes from group g. If it must
// copy the last page, shared is that page; else shared is none.
func (s *Sequence) need(g, n int, from []int) (pages int, shared int32) {
	pages = pagesOf(s.done+n) - s.skipped(g, n, from)
	if s.done%Rows != 0 {
		last := s.tables[g].pages[s.done/Rows]
		if s.pool.groups[g].refs[last] > 1 {
			return pages + 1, last
		}
	}
	return pages, none
}

// fits returns an error if group g cannot have room for n more rows.
func (s *Sequence) fits(g, n int, from []int) error {
	in := &s.pool.groups[g]
	need, shared := s.need(g, n, from)
	if shared != none && in.node[shared] != none && in.refs[shared] == 2 {
		need-- // makeRoom can take the page from the tree instead of copying it
	}
	if room := in.obtainable(); need > room {
		return fmt.Errorf("%w: %d tokens need %d more rows, in pages of %d, and %d of %d rows are free",
			ErrFull, n, need*Rows, Rows, room*Rows, len(in.refs)*Rows)
	}
	return nil
}

// makeRoom takes the pages for n more rows in group g. fits has found that there are enough.
func (s *Sequence) makeRoom(g, n int, from []int) {
	p := s.pool
	in, t := &p.groups[g], &s.tables[g]
	need, shared := s.need(g, n, from)
	if need > in.obtainable() {
		// Only the tree shares the last page, and all nodes after that page are evicted.
		p.evict(g, in.treeOnly)
		p.drop(in.node[shared], g)
		need, shared = need-1, none
	}
	p.evict(g, need-in.free)
	if shared != none {
		to := in.take()
		t.pages[s.done/Rows] = to
		s.copies = append(s.copies, Copy{Group: g, From: shared, To: to, Rows: s.done % Rows})
		p.stats.Copied++
	}
	for i, end := s.skipped(g, n, from), pagesOf(s.done+n); len(t.pages) < end; {
		page := int32(none)
		if len(t.pages) >= i {
			page = in.take()
		}
		t.pages = append(t.pages, page)
	}
}

// Cancel forgets the rows that were reserved, because the step failed. It does nothing if no
// rows are reserved.
func (s *Sequence) Cancel() {
	for _, c := range s.copies {
		s.tables[c.Group].pages[s.done/Rows] = c.From
		s.pool.groups[c.Group].release(c.To)
	}
	s.endStep()
}

// endStep ends the reservation and releases the pages behind the rows that are there.
func (s *Sequence) endStep() {
	s.copies, s.reserved = s.copies[:0], 0
	for g := range s.tables {
		s.cut(g, pagesOf(s.done))
	}
}

// cut releases all entries of the table of group g except the first n.
func (s *Sequence) cut(g, n int) {
	t := &s.tables[g]
	for i := max(n, t.low); i < len(t.pages); i++ {
		s.releaseEntry(g, i)
	}
	t.pages = t.pages[:min(n, len(t.pages))]
	t.low = min(t.low, len(t.pages))
}

// releaseEntry releases the page of entry i of the table of group g, and returns whether there
// was one.
func (s *Sequence) releaseEntry(g, i int) bool {
	page := &s.tables[g].pages[i]
	if *page == none {
		return false
	}
	s.pool.groups[g].release(*page)
	*page = none
	return true
}

// Commit counts the rows of ids, which the step has written. They are the first of the rows that
// were reserved, and room for more is released. ids begins with the tokens that Redo names.
// Full pages enter the prefix tree, and pages that no later token sees are given back.
func (s *Sequence) Commit(ids []int32) {
	kept := s.ids[s.done:]
	kept = kept[:min(len(kept), len(ids))]
	if len(ids) < 1 || len(ids) > s.reserved || !slices.Equal(kept, ids[:len(kept)]) {
		panic(fmt.Sprintf("page: Commit of %d tokens after %d with %d rows reserved, of which %d were decoded before", len(ids), s.done, s.reserved, len(kept)))
	}
	for _, c := range s.copies {
		s.pool.groups[c.Group].release(c.From)
	}
	s.ids = append(s.ids, ids[len(kept):]...)
	s.done += len(ids)
	s.pool.stats.Redone += len(kept)
	s.endStep()
	if s.pool.limit > 0 && !s.opt.Private {
		s.enter()
	}
	s.giveBack()
	s.pool.trim()
}

// enter puts the full pages that are not in the prefix tree into it, or replaces them by the
// equal pages of the tree.
func (s *Sequence) enter() {
	p, t := s.pool, &s.pool.tree
	first := t.depth(s.node)
	for i := first; i < s.done/Rows; i++ {
		e := s.edge(s.node, i)
		n := t.find(&e)
		if n == none {
			n = t.add(&e)
		}
		for g := range s.tables {
			own, held := &s.tables[g].pages[i], t.page(n, g)
			switch {
			case *own == none || *own == *held:
			case *held == none:
				p.groups[g].list(*own, n)
				*held = *own
			default:
				p.groups[g].retain(*held)
				p.groups[g].release(*own)
				*own = *held
				p.stats.Matched++
			}
		}
		s.node = n
	}
	if s.done/Rows > first {
		t.touch(s.node)
	}
}

// edge returns the edge from parent to the page of the tokens from i*Rows on.
func (s *Sequence) edge(parent int32, i int) edge {
	return edge{key: s.opt.Key, parent: parent, ids: [Rows]int32(s.ids[i*Rows:])}
}

// giveBack releases the pages that no later token sees.
func (s *Sequence) giveBack() {
	for g := range s.tables {
		t := &s.tables[g]
		for first := s.firstEntry(g, s.done); t.low < first; t.low++ {
			if s.releaseEntry(g, t.low) {
				s.pool.stats.GivenBack++
			}
		}
		if seen := s.Seen(g, s.done); seen < len(t.pages) && t.pages[seen] == none {
			panic(fmt.Sprintf("page: group %d lacks page %d of a sequence of %d rows", g, seen, s.done))
		}
	}
}

// firstEntry returns the first entry that the table of group g keeps when at rows are there.
func (s *Sequence) firstEntry(g, at int) int {
	if s.opt.KeepWindows {
		return 0
	}
	return s.pool.groups[g].first(at-s.opt.Slack) / Rows
}

// Rewind removes all tokens except the first n. If there are fewer, it fails and changes
// nothing. Len is n at once, but Redo can name tokens before n that must be decoded again.
func (s *Sequence) Rewind(n int) error {
	s.idle("Rewind")
	if n < 0 || n > len(s.ids) {
		return fmt.Errorf("rewind to %d tokens of %d", n, len(s.ids))
	}
	s.ids = s.ids[:n]
	s.settle()
	return nil
}

// settle makes done the last point at or before Len where the sequence is whole, with the pages
// of its tables and of the prefix tree. The tables then have the rows before done that tokens
// from done on see.
func (s *Sequence) settle() {
	path := s.path(len(s.ids) / Rows)
	at := s.whole(path)
	if at == s.done {
		return
	}
	s.pool.tree.touch(s.node)
	for g := range s.tables {
		s.fill(g, at, path)
	}
	s.done, s.node = at, none
	if n := min(at/Rows, len(path)); n > 0 {
		s.node = path[n-1]
	}
	s.giveBack()
	s.pool.trim()
}

// path returns the nodes of the first pages of the sequence, at most depth of them. The slice
// is valid until the next call for a sequence of the pool.
func (s *Sequence) path(depth int) []int32 {
	if s.opt.Private {
		return nil
	}
	t := &s.pool.tree
	n := s.node
	for t.depth(n) > depth {
		n = t.nodes[n].parent
	}
	for t.depth(n) < depth {
		e := s.edge(n, t.depth(n))
		next := t.find(&e)
		if next == none {
			break
		}
		n = next
	}
	path := slices.Grow(s.pool.path[:0], t.depth(n))[:t.depth(n)]
	for ; n != none; n = t.nodes[n].parent {
		path[t.depth(n)-1] = n
	}
	s.pool.path = path
	return path
}

// whole returns the last point at or before Len where the sequence is whole. path has the nodes
// of its pages.
func (s *Sequence) whole(path []int32) int {
	at := min(len(s.ids), max(s.done, len(path)*Rows))
	for {
		lower := at
		for g := range s.tables {
			if missing := s.missing(g, at, path); missing != none {
				// The page is also missing at every point between its first row and at,
				// except at those up to done that see only its first rows.
				before := missing * Rows
				if at > s.done {
					before = max(before, s.done)
				}
				lower = min(lower, before)
			}
		}
		if lower == at {
			return at
		}
		at = lower
	}
}

// missing returns the last entry of the table of group g that the token at position at needs,
// and that neither the table nor path has, or none.
func (s *Sequence) missing(g, at int, path []int32) int {
	for i := pagesOf(at) - 1; i >= s.pool.groups[g].first(at)/Rows; i-- {
		if !s.holds(g, i, at) && (i >= len(path) || *s.pool.tree.page(path[i], g) == none) {
			return i
		}
	}
	return none
}

// holds reports whether the table of group g has the page of entry i with all rows before at.
func (s *Sequence) holds(g, i, at int) bool {
	pages := s.tables[g].pages
	return i < len(pages) && pages[i] != none && (at <= s.done || i < s.done/Rows)
}

// fill makes the table of group g that of a sequence with at rows, with pages of path where it
// has none.
func (s *Sequence) fill(g, at int, path []int32) {
	t := &s.tables[g]
	keep := pagesOf(at)
	if at > s.done {
		keep = s.done / Rows // the last page ends at done if it is not full
	}
	s.cut(g, keep)
	for len(t.pages) < pagesOf(at) {
		t.pages = append(t.pages, none)
	}
	first := s.firstEntry(g, at)
	t.low = min(t.low, first)
	for i := first; i < min(len(t.pages), len(path)); i++ {
		if held := *s.pool.tree.page(path[i], g); t.pages[i] == none && held != none {
			s.pool.groups[g].retain(held)
			t.pages[i] = held
			s.pool.stats.Matched++
		}
	}
}

// Fork returns a sequence with the same tokens, options and pages. The caller releases it.
func (s *Sequence) Fork() *Sequence {
	s.idle("Fork")
	f := &Sequence{
		pool: s.pool, opt: s.opt, done: s.done, node: s.node,
		ids:    append(make([]int32, 0, max(len(s.ids), s.opt.Tokens)), s.ids...),
		tables: make([]table, len(s.tables)),
		copies: make([]Copy, 0, len(s.tables)),
	}
	for g, t := range s.tables {
		f.tables[g] = table{pages: append(make([]int32, 0, max(len(t.pages), pagesOf(s.opt.Tokens))), t.pages...), low: t.low}
		for _, page := range t.pages {
			if page != none {
				s.pool.groups[g].retain(page)
				s.pool.stats.Forked++
			}
		}
	}
	return f
}

// Release cancels a step that is reserved, and releases the pages. The sequence must not be used
// afterwards.
func (s *Sequence) Release() {
	if s.released {
		panic(fmt.Sprintf("page: second release of a sequence of %d tokens", len(s.ids)))
	}
	s.Cancel()
	s.pool.tree.touch(s.node)
	for g := range s.tables {
		s.cut(g, 0)
	}
	s.pool.trim()
	s.released = true
}
