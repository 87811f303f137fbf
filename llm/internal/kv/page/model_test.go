package page_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fucina-go/fucina/llm/internal/kv/page"
	"github.com/fucina-go/fucina/tests/harness"
)

// world is a pool with simulated buffers: a row has one number, which depends on all tokens up to
// it and on the key of the sequence.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	opt     page.Options
	pages   int
	pool    *page.Pool
	memory  [][]uint64 // [group][page*Rows+row]
	written [][]bool   // [group][page]: written since AppendFreed returned the page
	texts   [][]int32  // the texts of which prompts have a part
	live    []*story
	lost    []*story   // the sequences of pools whose buffers were lost
	pending []*story   // those of live with a reservation
	full    int        // the reservations that failed
	stats   page.Stats // the counts of the pools whose buffers were lost
	found   int        // the appended tokens whose rows the tree had
	events  []page.Run // scratch space of drain
}

// story is what the model knows of a sequence.
type story struct {
	seq  *page.Sequence
	opt  page.SequenceOptions
	ids  []int32
	sums []uint64    // the right content of the row of each token
	step []int32     // the tokens of the reserved step
	from []page.Copy // the copies of the reserved step
}

// mix returns the content of a row from that of the row before it and the row's id.
func mix(sum uint64, id int32) uint64 {
	sum = (sum ^ uint64(uint32(id))) * 0x9e3779b97f4a7c15
	return sum ^ sum>>29 | 1
}

// setIDs sets the tokens of s, and the contents that follow from them.
func (s *story) setIDs(ids []int32) {
	s.ids = ids
	s.sums = s.sums[:0]
	sum := mix(1<<63, int32(len(s.opt.Key.Variant)))
	for _, id := range ids {
		sum = mix(sum, id)
		s.sums = append(s.sums, sum)
	}
}

func newWorld(t *testing.T, seed uint64, opt page.Options) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 0)), opt: opt}
	w.open()
	for range 4 {
		text := make([]int32, w.pages*page.Rows)
		for i := range text {
			text[i] = w.rng.Int32N(4)
		}
		if len(w.texts) > 0 {
			copy(text, w.texts[0][:w.rng.IntN(200)])
		}
		w.texts = append(w.texts, text)
	}
	return w
}

// open begins with an empty pool and new buffers.
func (w *world) open() {
	w.pool = page.New(w.opt)
	w.pages = w.pool.Group(0).Pages
	w.memory, w.written = nil, nil
	for range w.opt.Windows {
		w.memory = append(w.memory, make([]uint64, w.pages*page.Rows))
		w.written = append(w.written, make([]bool, w.pages))
	}
}

// first returns the first row of group g that the token at position at sees.
func (w *world) first(g, at int) int {
	if g == 0 {
		return 0
	}
	return max(0, at-max(w.opt.Windows[g], 2)+1) // a window of 1 is treated as one of 2
}

// check checks the books of the pool, and the rows that the next token of each sequence sees.
func (w *world) check() {
	w.t.Helper()
	var all []*page.Sequence
	for _, s := range w.live {
		all = append(all, s.seq)
	}
	if err := w.pool.Check(all); err != nil {
		w.t.Fatal(err)
	}
	for _, s := range w.live {
		if !slices.Equal(s.seq.IDs(), s.ids) || s.seq.Len() != len(s.ids) {
			w.t.Fatalf("tokens %v, want %v", s.seq.IDs(), s.ids)
		}
		done, n := s.seq.Redo()
		if done > n || n != len(s.ids) {
			w.t.Fatalf("redo of %d to %d of %d tokens", done, n, len(s.ids))
		}
		for g := range w.memory {
			w.checkRows(s, g, w.first(g, done), done)
		}
	}
}

// checkRows checks the contents of rows from to end of s in group g.
func (w *world) checkRows(s *story, g, from, end int) {
	w.t.Helper()
	for i := from; i < end; i++ {
		number := s.seq.Table(g)[i/page.Rows]
		if number < 0 {
			w.t.Fatalf("row %d of group %d has no page", i, g)
		}
		if got := w.memory[g][int(number)*page.Rows+i%page.Rows]; got != s.sums[i] {
			w.t.Fatalf("row %d of group %d in page %d is %x, want %x", i, g, number, got, s.sums[i])
		}
	}
}

// holders returns how many tables and reserved copies refer to each page of group g.
func (w *world) holders(g int) map[int32]int {
	held := make(map[int32]int)
	for _, s := range w.live {
		for _, number := range s.seq.Table(g) {
			if number >= 0 {
				held[number]++
			}
		}
		for _, c := range s.from {
			if c.Group == g {
				held[c.From]++
			}
		}
	}
	return held
}

// fits reports whether n more rows of s fit when the tree gives up whatever sequences don't use.
func (w *world) fits(s *story, n int) bool {
	done, _ := s.seq.Redo()
	for g := range w.memory {
		held, table := w.holders(g), s.seq.Table(g)
		need := (done+n+page.Rows-1)/page.Rows - len(table)
		if done%page.Rows != 0 && held[table[done/page.Rows]] > 1 {
			need++
		}
		if len(held)+need > w.pages {
			return false
		}
	}
	return true
}

// tables returns a copy of the tables of all sequences.
func (w *world) tables() (all [][]int32) {
	for _, s := range w.live {
		for g := range w.memory {
			all = append(all, slices.Clone(s.seq.Table(g)))
		}
	}
	return all
}

// reserve reserves rows for the tokens of s that Redo names and then for next, at most limit of
// them, and returns whether there was room.
func (w *world) reserve(s *story, next []int32, limit int) bool {
	w.t.Helper()
	done, n := s.seq.Redo()
	step := append(slices.Clone(s.ids[done:n]), next...)
	step = step[:min(len(step), limit)]
	fits, before := w.fits(s, len(step)), w.tables()
	copies, err := s.seq.Reserve(len(step))
	if fits != (err == nil) || err != nil && !errors.Is(err, page.ErrFull) {
		w.t.Fatalf("reservation of %d rows after %d: %v, want room: %t", len(step), done, err, fits)
	}
	if err != nil {
		if !slices.EqualFunc(before, w.tables(), slices.Equal[[]int32]) {
			w.t.Fatalf("a reservation that failed changed tables")
		}
		w.full++
		return false
	}
	s.step, s.from = step, slices.Clone(copies)
	w.pending = append(w.pending, s)
	return true
}

// perform does the copies of the reserved steps and writes their rows. If fail is set, it stops
// somewhere.
func (w *world) perform(fail bool) {
	for _, s := range w.pending {
		for _, c := range s.from {
			if fail && w.rng.IntN(4) == 0 {
				return
			}
			w.write(c.Group, c.To)
			copy(w.memory[c.Group][int(c.To)*page.Rows:][:c.Rows], w.memory[c.Group][int(c.From)*page.Rows:])
		}
	}
	for _, s := range w.pending {
		done, n := s.seq.Redo()
		kept := s.ids
		s.setIDs(append(slices.Clone(s.ids), s.step[min(len(s.step), n-done):]...))
		for i := done; i < done+len(s.step); i++ {
			if fail && w.rng.IntN(40) == 0 {
				s.setIDs(kept)
				return
			}
			for g := range w.memory {
				number := s.seq.Table(g)[i/page.Rows]
				w.write(g, number)
				w.memory[g][int(number)*page.Rows+i%page.Rows] = s.sums[i]
			}
		}
		s.setIDs(kept)
	}
}

// write checks that a page may be written.
func (w *world) write(g int, number int32) {
	w.t.Helper()
	if n := w.pool.Refs(g, number); n != 1 {
		w.t.Fatalf("page %d of group %d is written with %d references", number, g, n)
	}
	w.written[g][number] = true
}

// attend checks that each row of the reserved step of s sees the rows that it must see.
func (w *world) attend(s *story) {
	w.t.Helper()
	done, _ := s.seq.Redo()
	kept := s.ids
	s.setIDs(append(slices.Clone(s.ids[:done]), s.step...))
	for g := 1; g < len(w.memory); g++ {
		w.checkRows(s, g, w.first(g, done), done+len(s.step))
	}
	w.checkRows(s, 0, 0, done+len(s.step))
	s.setIDs(kept)
}

// end ends all reserved steps: each is committed, in part if its tokens are not all wanted, or
// canceled.
func (w *world) end(fail bool) {
	for _, s := range w.pending {
		if fail {
			s.seq.Cancel()
		} else {
			done, n := s.seq.Redo()
			count := len(s.step)
			if w.rng.IntN(8) == 0 {
				count = 1 + w.rng.IntN(count)
			}
			s.seq.Commit(s.step[:count])
			s.setIDs(append(slices.Clone(s.ids), s.step[min(count, n-done):count]...))
		}
		s.step, s.from = nil, nil
	}
	w.pending = w.pending[:0]
}

// finish performs the reserved steps and ends them. If one fails, all are canceled.
func (w *world) finish() {
	w.t.Helper()
	fail := w.rng.IntN(6) == 0
	w.perform(fail)
	if !fail {
		for _, s := range w.pending {
			w.attend(s)
		}
	}
	w.end(fail)
	if w.rng.IntN(8) == 0 {
		w.check() // takes long, and act calls it too
	}
}

// whole returns the last point where a sequence is whole whose rows should be sums: done of them
// are there, in the pages of tables, and tree has the contents of the last rows of the pages of
// the tree.
func (w *world) whole(sums []uint64, done int, tables [][]int32, tree []map[uint64]bool) int {
	for at := len(sums); ; at-- {
		if w.wholeAt(sums, at, done, tables, tree) {
			return at
		}
	}
}

// wholeAt reports whether such a sequence is whole at at.
func (w *world) wholeAt(sums []uint64, at, done int, tables [][]int32, tree []map[uint64]bool) bool {
	for g := range w.memory {
		for i := w.first(g, at) / page.Rows; i*page.Rows < at; i++ {
			own := i < len(tables[g]) && tables[g][i] >= 0 && (at <= done || (i+1)*page.Rows <= done)
			end := (i + 1) * page.Rows
			if !own && (end > len(sums) || !tree[g][sums[end-1]]) {
				return false
			}
		}
	}
	return true
}

// settled runs change, which may change the tokens of s so that they end within ids, and checks
// that as few of them as possible must be decoded again.
func (w *world) settled(s *story, ids []int32, change func()) {
	w.t.Helper()
	kept := s.ids
	s.setIDs(ids)
	sums := slices.Clone(s.sums)
	s.setIDs(kept)
	done, _ := s.seq.Redo()
	var tables [][]int32
	var tree []map[uint64]bool
	for g := range w.memory {
		tables = append(tables, slices.Clone(s.seq.Table(g)))
		tree = append(tree, make(map[uint64]bool))
		for _, number := range w.pool.TreePages(g) {
			if s.opt.Private {
				break
			}
			tree[g][w.memory[g][(int(number)+1)*page.Rows-1]] = true
		}
	}
	change()
	if got, _ := s.seq.Redo(); got != w.whole(sums, done, tables, tree) {
		w.t.Fatalf("%d of %d tokens are there, want %d", got, len(ids), w.whole(sums, done, tables, tree))
	}
}

// prefix takes what it can of next from the tree and returns the rest.
func (w *world) prefix(s *story, next []int32) []int32 {
	w.t.Helper()
	all := append(slices.Clone(s.ids), next...)
	target := max(len(s.ids), (len(all)-1)/page.Rows*page.Rows)
	w.settled(s, all[:target], func() {
		n := s.seq.Prefix(next)
		if n < 0 || n >= len(next) {
			w.t.Fatalf("prefix of %d of %d tokens", n, len(next))
		}
		if done, _ := s.seq.Redo(); n > 0 && done != len(s.ids)+n {
			w.t.Fatalf("prefix of %d tokens after %d, but %d rows are there", n, len(s.ids), done)
		}
		next = next[n:]
		s.setIDs(all[:len(s.ids)+n])
	})
	w.check()
	return next
}

// extend appends next to s without their rows.
func (w *world) extend(s *story, next []int32) {
	w.t.Helper()
	all := append(slices.Clone(s.ids), next...)
	before, _ := s.seq.Redo()
	w.settled(s, all, func() {
		s.seq.Append(next)
		s.setIDs(all)
	})
	done, _ := s.seq.Redo()
	w.found += done - before
}

// decode decodes the tokens of s that Redo names and then next, in steps of a few rows, and
// returns whether it could.
func (w *world) decode(s *story, next []int32, batch int) bool {
	w.t.Helper()
	want := append(slices.Clone(s.ids), next...)
	for tries := 0; tries < 100; tries++ {
		done, _ := s.seq.Redo()
		if done == len(want) {
			return true
		}
		if !w.reserve(s, want[len(s.ids):], batch) {
			w.check()
			return false
		}
		w.finish()
	}
	return false
}

// prompt returns up to most tokens that follow those of s, as a rule of one of the texts.
func (w *world) prompt(s *story, most int) []int32 {
	n := 1 + w.rng.IntN(most)
	text := w.texts[w.rng.IntN(len(w.texts))]
	if at := len(s.ids); at+n <= len(text) && w.rng.IntN(8) > 0 {
		return text[at : at+n]
	}
	return text[:min(n, len(text))]
}

// act does something at random.
func (w *world) act() {
	w.t.Helper()
	if len(w.live) == 0 || len(w.live) < 10 && w.rng.IntN(12) == 0 {
		opt := page.SequenceOptions{
			Key:     page.Key{Variant: "long"[:max(0, w.rng.IntN(12)-8)]},
			Private: w.rng.IntN(8) == 0, KeepWindows: w.rng.IntN(5) == 0, Slack: max(0, w.rng.IntN(200)-100), Tokens: w.rng.IntN(2) * 100,
		}
		w.live = append(w.live, &story{seq: w.pool.NewSequence(opt), opt: opt})
	}
	if len(w.lost) > 0 && len(w.live) < 10 && w.rng.IntN(8) == 0 {
		w.move()
	}
	at := w.rng.IntN(len(w.live))
	s := w.live[at]
	switch w.rng.IntN(16) {
	case 0, 1, 2, 3:
		next := w.prompt(s, 400)
		switch w.rng.IntN(16) {
		case 0, 1:
		case 2:
			w.extend(s, next)
			next = nil
		default:
			next = w.prefix(s, next)
		}
		w.decode(s, next, 1+w.rng.IntN(200))
	case 4, 5, 6:
		for range 1 + w.rng.IntN(50) {
			if !w.decode(s, w.prompt(s, 1), 1) {
				break
			}
		}
	case 7, 8:
		w.together()
	case 9, 10, 11:
		n := w.rng.IntN(len(s.ids) + 1)
		if w.rng.IntN(2) == 0 {
			n = max(0, len(s.ids)-w.rng.IntN(100))
		}
		w.settled(s, s.ids[:n], func() {
			if err := s.seq.Rewind(n); err != nil {
				w.t.Fatal(err)
			}
			s.setIDs(s.ids[:n])
		})
	case 12:
		if len(w.live) < 10 {
			f := &story{seq: s.seq.Fork(), opt: s.opt}
			f.setIDs(slices.Clone(s.ids))
			w.live = append(w.live, f)
		}
	case 13:
		if w.rng.IntN(2) == 0 {
			w.release(at)
		}
	case 14:
		w.restore(s)
	default:
		w.rare()
	}
	w.check()
}

// together runs one step for several sequences.
func (w *world) together() {
	for _, i := range w.rng.Perm(len(w.live))[:1+w.rng.IntN(len(w.live))] {
		w.reserve(w.live[i], w.prompt(w.live[i], 3), 1+w.rng.IntN(20))
	}
	if len(w.pending) > 0 {
		w.finish()
	}
}

// release releases a sequence, perhaps within a step.
func (w *world) release(at int) {
	s := w.live[at]
	if w.rng.IntN(2) == 0 && w.reserve(s, w.prompt(s, 40), 40) {
		w.pending = w.pending[:0]
	}
	s.seq.Release()
	w.live = slices.Delete(w.live, at, at+1)
}

// restore loads the tokens of s into a new sequence, as if from a file with the rows from some
// page of each group on.
func (w *world) restore(s *story) {
	if len(w.live) >= 10 || len(s.ids) == 0 {
		return
	}
	r := &story{seq: w.pool.NewSequence(s.opt), opt: s.opt}
	r.setIDs(slices.Clone(s.ids))
	from := make([]int, len(w.memory))
	for g := range from {
		from[g] = w.rng.IntN(w.first(g, len(r.ids))/page.Rows + 1)
	}
	if err := r.seq.Restore(len(r.ids), from); err != nil {
		w.full++
		r.seq.Release()
		return
	}
	for g := range w.memory {
		for i, number := range r.seq.Table(g) {
			if number < 0 {
				continue
			}
			if i < from[g] {
				w.t.Fatalf("room for page %d of group %d, which was not saved", i, g)
			}
			w.write(g, number)
			copy(w.memory[g][int(number)*page.Rows:][:page.Rows], r.sums[i*page.Rows:])
		}
	}
	r.seq.Commit(r.ids)
	w.live = append(w.live, r)
}

// lose loses the buffers, as a device that fails does. The sequences lose all but their tokens.
func (w *world) lose() {
	w.stats.Add(w.pool.Stats())
	w.lost = append(w.lost, w.live...)
	w.live = nil
	w.open()
}

// move makes a sequence of the pool with the tokens of one that lost its rows.
func (w *world) move() {
	w.t.Helper()
	at := w.rng.IntN(len(w.lost))
	s := w.lost[at]
	w.lost = slices.Delete(w.lost, at, at+1)
	r := &story{seq: w.pool.NewSequence(s.opt), opt: s.opt}
	w.live = append(w.live, r)
	w.extend(r, s.ids)
	w.check()
}

// rare does what a program seldom does: it drops all prefixes, loses the buffers, or gives
// memory back to the system.
func (w *world) rare() {
	switch w.rng.IntN(12) {
	case 0:
		w.pool.DropPrefixes()
	case 1:
		w.lose()
	default:
		w.drain(1 + w.rng.IntN(6))
	}
}

// drain checks the runs of AppendFreed, and overwrites their pages.
func (w *world) drain(least int) {
	w.events = w.pool.AppendFreed(w.events[:0], least)
	for i, r := range w.events {
		for number := r.From; number < r.From+r.Count; number++ {
			if n := w.pool.Refs(r.Group, int32(number)); n != 0 {
				w.t.Fatalf("run %v: page %d has %d references", r, number, n)
			}
			w.written[r.Group][number] = false
			clear(w.memory[r.Group][number*page.Rows:][:page.Rows])
		}
		if r.Count < least {
			w.t.Fatalf("run %d is %v, want at least %d pages", i, r, least)
		}
		for _, edge := range []int{r.From - 1, r.From + r.Count} {
			if edge >= 0 && edge < w.pages && w.pool.Refs(r.Group, int32(edge)) == 0 {
				w.t.Fatalf("run %v ends before the free page %d", r, edge)
			}
		}
	}
	if least > 1 {
		return
	}
	for g := range w.written {
		for number, written := range w.written[g] {
			if written && w.pool.Refs(g, int32(number)) == 0 {
				w.t.Fatalf("free page %d of group %d is not in %v", number, g, w.events)
			}
		}
	}
}

// Rows that differ in a token before them or in the key have different contents. Otherwise the
// model expects sequences to share pages that they must not share, or does not see that they do.
func TestContents(t *testing.T) {
	seen := make(map[uint64]string)
	var extend func(s *story, ids []int32)
	extend = func(s *story, ids []int32) {
		for id := range int32(4) {
			s.setIDs(append(slices.Clone(ids), id))
			got, row := s.sums[len(ids)], fmt.Sprintf("key %+v, tokens %v", s.opt.Key, s.ids)
			if got == 0 || seen[got] != "" {
				t.Fatalf("%s: content %x, as of %q", row, got, seen[got])
			}
			seen[got] = row
			if len(s.ids) < 5 {
				extend(s, s.ids)
			}
		}
	}
	for _, key := range []page.Key{{}, {Variant: "l"}, {Variant: "lo"}, {Variant: "lon"}} {
		extend(&story{opt: page.SequenceOptions{Key: key}}, nil)
	}
}

// Random schedules of sequences that prompt, generate, rewind, fork, fail, close, hit prefixes and
// lose their rows in a pool that is often full. At every step the rows that a token sees have the
// contents that follow from the tokens before them, only pages with one reference are written, a reservation
// fails if and only if the sequences hold too many pages, and as few tokens as possible are
// decoded again. When all sequences are released and the tree is empty, all pages are free.
func TestSchedules(t *testing.T) {
	seed := harness.Seed(t)
	steps := 800
	if testing.Short() {
		steps = 500
	}
	var sum page.Stats
	full, found := 0, 0
	for i, opt := range []page.Options{
		{Rows: 2048, Windows: []int{0, 8, 64}, PrefixRows: 512},
		{Rows: 1500, Windows: []int{0, 33, 32, 1}, PrefixRows: 4096},
		{Rows: 4096, Windows: []int{0, 16}, PrefixRows: 320},
		{Rows: 2048, Windows: []int{0, 50}, PrefixRows: 32},
		{Rows: 2048, Windows: []int{0, 31, 64}},
		{Rows: 1024, Windows: []int{0}, PrefixRows: 256},
	} {
		t.Run(fmt.Sprint(opt), func(t *testing.T) {
			w := newWorld(t, seed+uint64(i), opt)
			for range steps {
				w.act()
			}
			for len(w.live) > 0 {
				w.live[0].seq.Release()
				w.live = w.live[1:]
				w.check()
			}
			w.pool.DropPrefixes()
			w.check()
			for g := range opt.Windows {
				if s := w.pool.Group(g); s.Free != s.Pages || s.Tree != 0 {
					t.Errorf("group %d: %+v after the end, want all pages free", g, s)
				}
			}
			w.drain(1)
			w.stats.Add(w.pool.Stats())
			t.Logf("%+v, %d reservations failed, %d appended rows found", w.stats, w.full, w.found)
			sum.Add(w.stats)
			full += w.full
			found += w.found
		})
	}
	if least := min(sum.Forked, sum.Matched, sum.Copied, sum.GivenBack, sum.Dropped, sum.Redone, full, found); least < 100 {
		t.Errorf("%+v, %d reservations that failed and %d appended rows found, want at least 100 of each", sum, full, found)
	}
}
