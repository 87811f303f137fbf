package page_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/llm/internal/kv/page"
)

// count returns n tokens that begin with start and count up.
func count(start, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(start + i)
	}
	return ids
}

// start returns a sequence of the tokens ids, decoded in steps of at most 64.
func start(t *testing.T, p *page.Pool, opt page.SequenceOptions, ids []int32) *page.Sequence {
	t.Helper()
	s := p.NewSequence(opt)
	decode(t, s, ids)
	return s
}

// decode decodes what Redo names and then ids, in steps of at most 64 tokens.
func decode(t *testing.T, s *page.Sequence, ids []int32) {
	t.Helper()
	from, to := s.Redo()
	ids = append(slices.Clone(s.IDs()[from:to]), ids...)
	for len(ids) > 0 {
		n := min(len(ids), 64)
		if _, err := s.Reserve(n); err != nil {
			t.Fatal(err)
		}
		s.Commit(ids[:n])
		ids = ids[n:]
	}
}

// checkTable checks the table of group g of s.
func checkTable(t *testing.T, s *page.Sequence, g int, want ...int32) {
	t.Helper()
	if got := s.Table(g); !slices.Equal(got, want) {
		t.Errorf("table of group %d: %v, want %v", g, got, want)
	}
}

// checkUsed checks how many pages of group g are not free, and how many only the tree holds.
func checkUsed(t *testing.T, p *page.Pool, g, used, tree int) {
	t.Helper()
	if s := p.Group(g); s.Pages-s.Free != used || s.Tree != tree {
		t.Errorf("group %d: %+v, want %d used and %d of the tree only", g, s, used, tree)
	}
}

// A reservation takes the lowest free pages. Cancel and a commit of fewer rows return those that
// are not needed.
func TestReserve(t *testing.T) {
	p := page.New(page.Options{Rows: 300, Windows: []int{0}})
	checkUsed(t, p, 0, 0, 0)
	if n := p.Group(0).Pages; n != 10 {
		t.Errorf("%d pages of 300 rows, want 10", n)
	}
	a, b := p.NewSequence(page.SequenceOptions{}), p.NewSequence(page.SequenceOptions{})
	decode(t, a, count(0, 33))
	decode(t, b, count(0, 33))
	checkTable(t, a, 0, 0, 1)
	checkTable(t, b, 0, 2, 3)
	if err := a.Rewind(32); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Reserve(64); err != nil {
		t.Fatal(err)
	}
	checkTable(t, b, 0, 2, 3, 1, 4)
	b.Cancel()
	b.Cancel()
	checkTable(t, b, 0, 2, 3)
	if _, err := b.Reserve(100); err != nil {
		t.Fatal(err)
	}
	b.Commit(count(33, 31))
	checkTable(t, b, 0, 2, 3)
	if b.Len() != 64 || !slices.Equal(b.IDs(), count(0, 64)) {
		t.Errorf("%d tokens: %v, want 64", b.Len(), b.IDs())
	}
	b.Release()
	decode(t, a, count(32, 33))
	checkTable(t, a, 0, 0, 1, 2)
	a.Release()
	checkUsed(t, p, 0, 0, 0)
}

// The first of two sequences that writes into a shared last page writes into a copy. A step that
// is canceled gives the copy back. The other one then has the page alone.
func TestCopyOnWrite(t *testing.T) {
	p := page.New(page.Options{Rows: 320, Windows: []int{0, 40}})
	a := start(t, p, page.SequenceOptions{}, count(0, 40))
	b := a.Fork()
	checkTable(t, b, 0, 0, 1)
	if got := p.Stats().Forked; got != 4 {
		t.Errorf("%d pages shared by a fork, want 4", got)
	}
	want := []page.Copy{{Group: 0, From: 1, To: 2, Rows: 8}, {Group: 1, From: 1, To: 2, Rows: 8}}
	for range 2 {
		copies, err := b.Reserve(1)
		if err != nil || !slices.Equal(copies, want) {
			t.Fatalf("%v, %v, want %v", copies, err, want)
		}
		checkTable(t, b, 0, 0, 2)
		b.Cancel()
		checkTable(t, b, 0, 0, 1)
	}
	if _, err := b.Reserve(30); err != nil {
		t.Fatal(err)
	}
	checkTable(t, b, 1, 0, 2, 3)
	b.Commit(count(100, 30))
	if copies, err := a.Reserve(1); err != nil || len(copies) != 0 {
		t.Errorf("%v, %v, want no copies of a page that is not shared", copies, err)
	}
	a.Release() // cancels the step
	b.Release()
	checkUsed(t, p, 0, 0, 0)
}

// A sequence gives back the pages of a window that no later token sees, as soon as the last row
// of the page is out of the window of the next token.
func TestWindows(t *testing.T) {
	for _, tc := range []struct {
		window, tokens int
		slack          int
		keep           bool
		held           string // the entries of the table
	}{
		{window: 8, tokens: 32, held: "x"},
		{window: 8, tokens: 38, held: "xx"},
		{window: 8, tokens: 39, held: "-x"},
		{window: 33, tokens: 63, held: "xx"},
		{window: 33, tokens: 64, held: "-x"},
		{window: 33, tokens: 65, held: "-xx"},
		{window: 33, tokens: 300, held: "--------xx"},
		{window: 1, tokens: 32, held: "x"}, // as a window of 2
		{window: 1, tokens: 33, held: "-x"},
		{window: 8, tokens: 100, keep: true, held: "xxxx"},
		{window: 8, tokens: 103, slack: 32, held: "--xx"},
		{window: 8, tokens: 102, slack: 32, held: "-xxx"},
	} {
		p := page.New(page.Options{Rows: 320, Windows: []int{0, tc.window}})
		s := start(t, p, page.SequenceOptions{KeepWindows: tc.keep, Slack: tc.slack}, count(0, tc.tokens))
		held := ""
		for _, number := range s.Table(1) {
			held += map[bool]string{true: "-", false: "x"}[number < 0]
		}
		if held != tc.held {
			t.Errorf("%+v: %s", tc, held)
		}
		if got := p.Stats().GivenBack; got != strings.Count(tc.held, "-") {
			t.Errorf("%+v: %d pages given back", tc, got)
		}
	}
}

// A rewind goes back to the last point where all groups have the rows that a token sees: in the
// tables of the sequence, or in the tree.
func TestRewind(t *testing.T) {
	for _, tc := range []struct {
		name    string
		windows []int
		slack   int
		keep    bool
		prefix  int
		to      int
		from    int
	}{
		{name: "no windows", windows: []int{0}, to: 100, from: 100},
		{name: "pages are gone", windows: []int{0, 40}, to: 100, from: 0},
		{name: "first point where the pages are there", windows: []int{0, 40}, to: 295, from: 295},
		{name: "one row is gone", windows: []int{0, 40}, to: 294, from: 0},
		{name: "one of two windows is gone", windows: []int{0, 8, 100}, to: 280, from: 0},
		{name: "within the slack", windows: []int{0, 40}, slack: 32, to: 268, from: 268},
		{name: "window kept", windows: []int{0, 40}, keep: true, to: 100, from: 100},
		{name: "full pages in the tree", windows: []int{0, 40}, prefix: 320, to: 100, from: 96},
		{name: "part of the window in the tree", windows: []int{0, 40}, prefix: 128, to: 200, from: 128},
		{name: "start", windows: []int{0, 40}, to: 0, from: 0},
		{name: "end", windows: []int{0, 40}, to: 300, from: 300},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := page.New(page.Options{Rows: 640, Windows: tc.windows, PrefixRows: tc.prefix})
			s := start(t, p, page.SequenceOptions{KeepWindows: tc.keep, Slack: tc.slack}, count(0, 300))
			for _, n := range []int{-1, 301} {
				if err := s.Rewind(n); err == nil || s.Len() != 300 {
					t.Errorf("rewind to %d: %v, %d tokens left", n, err, s.Len())
				}
			}
			if err := s.Rewind(tc.to); err != nil {
				t.Fatal(err)
			}
			if from, to := s.Redo(); from != tc.from || to != tc.to || s.Len() != tc.to {
				t.Errorf("%d to %d of %d tokens again, want %d to %d", from, to, s.Len(), tc.from, tc.to)
			}
			decode(t, s, count(500, 7))
			if from, to := s.Redo(); from != tc.to+7 || to != tc.to+7 {
				t.Errorf("%d to %d again after decoding %d tokens", from, to, tc.to+7)
			}
			if want := append(count(0, tc.to), count(500, 7)...); !slices.Equal(s.IDs(), want) {
				t.Errorf("tokens %v, want %v", s.IDs(), want)
			}
			if got := p.Stats().Redone; got != tc.to-tc.from {
				t.Errorf("%d tokens counted as decoded again, want %d", got, tc.to-tc.from)
			}
			s.Release()
			p.DropPrefixes()
			for g := range tc.windows {
				checkUsed(t, p, g, 0, 0)
			}
		})
	}
}

// A prompt takes the full pages of another sequence with the same tokens and the same key, and
// leaves at least its last token.
func TestPrefix(t *testing.T) {
	other := page.Key{Variant: "linear"}
	for _, tc := range []struct {
		name string
		key  page.Key
		held []int32 // the tokens that the sequence has already
		ids  []int32
		want int
	}{
		{name: "equal", ids: count(0, 1000), want: 992},
		{name: "longer", ids: count(0, 2000), want: 992},
		{name: "shorter", ids: count(0, 70), want: 64},
		{name: "whole pages", ids: count(0, 64), want: 32},
		{name: "one page and a token", ids: count(0, 33), want: 32},
		{name: "one page", ids: count(0, 32), want: 0},
		{name: "one token", ids: count(0, 1), want: 0},
		{name: "none", ids: nil, want: 0},
		{name: "other tokens", ids: count(1, 1000), want: 0},
		{name: "other tokens at 100", ids: append(count(0, 100), count(0, 100)...), want: 96},
		{name: "other key", key: other, ids: count(0, 1000), want: 0},
		{name: "after a part", held: count(0, 10), ids: count(10, 500), want: 470},
		{name: "after a full page", held: count(0, 32), ids: count(32, 500), want: 480},
		{name: "after other tokens", held: count(5, 10), ids: count(10, 500), want: 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := page.New(page.Options{Rows: 4096, Windows: []int{0, 40}, PrefixRows: 1024})
			start(t, p, page.SequenceOptions{}, count(0, 1000)).Release()
			s := start(t, p, page.SequenceOptions{Key: tc.key}, tc.held)
			if got := s.Prefix(tc.ids); got != tc.want {
				t.Errorf("prefix of %d tokens, want %d", got, tc.want)
			}
			want := append(slices.Clone(tc.held), tc.ids[:tc.want]...)
			if from, _ := s.Redo(); from != len(want) || !slices.Equal(s.IDs(), want) {
				t.Errorf("%d rows of %v, want %v", from, s.IDs(), want)
			}
			if err := p.Check([]*page.Sequence{s}); err != nil {
				t.Error(err)
			}
		})
	}
}

// A prefix ends at the last point where the tree has the pages of all windows.
func TestPrefixWithoutWindow(t *testing.T) {
	p := page.New(page.Options{Rows: 4096, Windows: []int{0, 40}, PrefixRows: 640})
	// The tree keeps the first 640 rows of the window, and all rows of group 0, which the
	// sequence holds.
	a := start(t, p, page.SequenceOptions{}, count(0, 1500))
	checkUsed(t, p, 1, 20+2, 20)
	b := p.NewSequence(page.SequenceOptions{})
	if got := b.Prefix(count(0, 1300)); got != 640 {
		t.Errorf("prefix of %d tokens, want 640", got)
	}
	if b.Release(); b.Len() != 640 {
		t.Errorf("%d tokens", b.Len())
	}
	a.Release()
	checkUsed(t, p, 0, 20, 20)
	checkUsed(t, p, 1, 20, 20)
}

// Appended tokens are part of the sequence at once. The tree gives their full pages, if it has
// them, and Redo names the other tokens until they are decoded.
func TestAppend(t *testing.T) {
	other := page.Key{Variant: "linear"}
	for _, tc := range []struct {
		name   string
		prefix int // the rows of the tree; 1000 tokens that count from 0 are decoded before
		key    page.Key
		held   []int32 // the tokens that the sequence has already
		ids    []int32
		from   int
	}{
		{name: "no tree", ids: count(0, 100), from: 0},
		{name: "part of a page", prefix: 1024, ids: count(0, 100), from: 96},
		{name: "whole pages", prefix: 1024, ids: count(0, 96), from: 96},
		{name: "less than a page", prefix: 1024, ids: count(0, 31), from: 0},
		{name: "longer", prefix: 1024, ids: count(0, 1100), from: 992},
		{name: "part of the window in the tree", prefix: 320, ids: count(0, 900), from: 320},
		{name: "none", prefix: 1024, ids: nil, from: 0},
		{name: "other key", prefix: 1024, key: other, ids: count(0, 100), from: 0},
		{name: "other first token", prefix: 1024, ids: append(count(9, 1), count(1, 99)...), from: 0},
		{name: "after a part", prefix: 1024, held: count(0, 10), ids: count(10, 90), from: 96},
		{name: "after a full page", prefix: 1024, held: count(0, 32), ids: count(32, 10), from: 32},
		{name: "after other tokens", prefix: 1024, held: count(5, 10), ids: count(10, 90), from: 10},
		{name: "after tokens without a tree", held: count(0, 50), ids: count(50, 50), from: 50},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := page.New(page.Options{Rows: 4096, Windows: []int{0, 40}, PrefixRows: tc.prefix})
			first := start(t, p, page.SequenceOptions{}, count(0, 1000))
			s := start(t, p, page.SequenceOptions{Key: tc.key}, tc.held)
			redone := p.Stats().Redone
			s.Append(tc.ids)
			want := append(slices.Clone(tc.held), tc.ids...)
			if from, to := s.Redo(); from != tc.from || to != len(want) || s.Len() != to {
				t.Errorf("%d to %d of %d tokens again, want %d to %d", from, to, s.Len(), tc.from, len(want))
			}
			f := s.Fork()
			decode(t, s, count(2000, 7))
			if got := p.Stats().Redone - redone; got != len(want)-tc.from {
				t.Errorf("%d tokens counted as decoded again, want %d", got, len(want)-tc.from)
			}
			if err := f.Rewind(len(want)); err != nil || !slices.Equal(f.IDs(), want) {
				t.Errorf("tokens of a fork %v, %v, want %v", f.IDs(), err, want)
			}
			if want = append(want, count(2000, 7)...); !slices.Equal(s.IDs(), want) {
				t.Errorf("tokens %v, want %v", s.IDs(), want)
			}
			if from, to := s.Redo(); from != len(want) || to != len(want) {
				t.Errorf("%d to %d again after decoding %d tokens", from, to, len(want))
			}
			if err := p.Check([]*page.Sequence{first, s, f}); err != nil {
				t.Error(err)
			}
		})
	}
}

// Sequences that decode the same prompt hold its full pages once, whether they asked for a prefix
// or decoded the prompt at the same time.
func TestSharedPrompt(t *testing.T) {
	for _, prefix := range []bool{true, false} {
		p := page.New(page.Options{Rows: 32 * 1024, Windows: []int{0}, PrefixRows: 32})
		var all []*page.Sequence
		for range 200 {
			s, ids := p.NewSequence(page.SequenceOptions{}), count(0, 1000)
			if prefix {
				ids = ids[s.Prefix(ids):]
			}
			decode(t, s, ids)
			all = append(all, s)
		}
		checkUsed(t, p, 0, 31+200, 0)
		for _, s := range all {
			s.Release()
		}
		checkUsed(t, p, 0, 1, 1)
	}
}

// Reservations that need room drop the pages that only the tree holds: the least recently used
// first, and of a sequence the last first.
func TestLeastRecentlyUsed(t *testing.T) {
	p := page.New(page.Options{Rows: 10 * page.Rows, Windows: []int{0}, PrefixRows: 10 * page.Rows})
	for _, first := range []int{1000, 2000, 3000} {
		start(t, p, page.SequenceOptions{}, count(first, 3*page.Rows)).Release()
	}
	held := func(first int) int {
		s := p.NewSequence(page.SequenceOptions{})
		defer s.Release()
		return s.Prefix(count(first, 100)) / page.Rows
	}
	if got := held(1000); got != 3 { // which is thereby the most recently used
		t.Errorf("%d pages of the first sequence, want 3", got)
	}
	for _, step := range []struct{ pages, second, third int }{{2, 2, 3}, {4, 0, 3}, {6, 0, 1}} {
		s := start(t, p, page.SequenceOptions{}, count(5000, step.pages*page.Rows))
		// A page of the sequence is taken from the tree, so it costs a page only once.
		if second, third, first := held(2000), held(3000), held(1000); second != step.second || third != step.third || first != 3 {
			t.Errorf("%d pages: %d, %d and %d pages are left, want 3, %d and %d", step.pages, first, second, third, step.second, step.third)
		}
		s.Release()
	}
}

// Pages count as used until the sequence that holds them is released or rewound.
func TestUsedUntilReleased(t *testing.T) {
	for _, end := range []func(s *page.Sequence){
		(*page.Sequence).Release,
		func(s *page.Sequence) { _ = s.Rewind(0) },
	} {
		p := page.New(page.Options{Rows: 6 * page.Rows, Windows: []int{0}, PrefixRows: 6 * page.Rows})
		a := start(t, p, page.SequenceOptions{}, count(0, 3*page.Rows))
		start(t, p, page.SequenceOptions{}, count(1000, 3*page.Rows)).Release()
		end(a)
		start(t, p, page.SequenceOptions{}, count(2000, page.Rows)).Release()
		for _, tc := range []struct{ first, want int }{{0, 3}, {1000, 2}, {2000, 1}} {
			s := p.NewSequence(page.SequenceOptions{})
			if got := s.Prefix(count(tc.first, 4*page.Rows)); got != tc.want*page.Rows {
				t.Errorf("prefix of %d tokens from %d on, want %d pages", got, tc.first, tc.want)
			}
			s.Release()
		}
	}
}

// A reservation that finds no room fails with ErrFull, says what it needs, and changes nothing.
func TestFull(t *testing.T) {
	p := page.New(page.Options{Rows: 10 * page.Rows, Windows: []int{0, 40}, PrefixRows: 5 * page.Rows})
	start(t, p, page.SequenceOptions{}, count(9000, 64)).Release()
	a := start(t, p, page.SequenceOptions{}, count(0, 150))
	before := p.Stats()
	b := p.NewSequence(page.SequenceOptions{})
	_, err := b.Reserve(5*page.Rows + 1)
	if !errors.Is(err, page.ErrFull) || !strings.Contains(err.Error(), "161 tokens need 192 more rows, in pages of 32, and 160 of 320 rows are free") {
		t.Errorf("error %v", err)
	}
	if p.Stats() != before || len(b.Table(0)) != 0 || b.Len() != 0 {
		t.Errorf("a reservation that failed changed %+v to %+v", before, p.Stats())
	}
	if err := p.Check([]*page.Sequence{a, b}); err != nil {
		t.Error(err)
	}
	if _, err := b.Reserve(5 * page.Rows); err != nil {
		t.Errorf("reservation of the pages that are free or in the tree only: %v", err)
	}
	if got := p.Stats().Dropped; got != 4 {
		t.Errorf("%d pages dropped, want 4", got)
	}
	b.Cancel()
	if _, err := a.Reserve(5 * page.Rows); err != nil {
		t.Errorf("reservation after another was canceled: %v", err)
	}
}

// A sequence that has all pages rewrites its last page in place if only the tree shares it.
func TestFullRewritesLastPage(t *testing.T) {
	p := page.New(page.Options{Rows: 4 * page.Rows, Windows: []int{0, 100}, PrefixRows: 4 * page.Rows})
	s := start(t, p, page.SequenceOptions{}, count(0, 4*page.Rows))
	if err := s.Rewind(2*page.Rows + 5); err != nil {
		t.Fatal(err)
	}
	copies, err := s.Reserve(page.Rows - 5)
	if err != nil || len(copies) != 2 {
		t.Fatalf("copies %v, %v, want those of both groups while the tree has another page", copies, err)
	}
	s.Cancel()
	other := start(t, p, page.SequenceOptions{}, count(900, 5))
	for g := range 2 {
		checkUsed(t, p, g, 4, 0)
	}
	copies, err = s.Reserve(page.Rows - 5)
	if err != nil || len(copies) != 0 {
		t.Fatalf("copies %v, %v, want none", copies, err)
	}
	s.Commit(count(700, page.Rows-5))
	checkTable(t, s, 0, 0, 1, 2)
	if err := p.Check([]*page.Sequence{s, other}); err != nil {
		t.Error(err)
	}
	if _, err := s.Reserve(1); !errors.Is(err, page.ErrFull) {
		t.Errorf("error %v, want ErrFull", err)
	}
}

// A restored sequence has the pages of a window that it would have kept, if they were saved.
func TestRestore(t *testing.T) {
	for _, tc := range []struct {
		opt  page.SequenceOptions
		from int // the first page of the window that was saved
		want []int32
	}{
		{page.SequenceOptions{}, 0, []int32{-1, -1, 0, 1}},
		{page.SequenceOptions{}, 2, []int32{-1, -1, 0, 1}},
		{page.SequenceOptions{Slack: page.Rows}, 0, []int32{-1, 0, 1, 2}},
		{page.SequenceOptions{Slack: page.Rows}, 2, []int32{-1, -1, 0, 1}},
		{page.SequenceOptions{KeepWindows: true}, 0, []int32{0, 1, 2, 3}},
		{page.SequenceOptions{KeepWindows: true}, 1, []int32{-1, 0, 1, 2}},
		{page.SequenceOptions{KeepWindows: true, Private: true}, 1, []int32{-1, 0, 1, 2}},
	} {
		p := page.New(page.Options{Rows: 4 * page.Rows, Windows: []int{0, 40}, PrefixRows: page.Rows})
		s := p.NewSequence(tc.opt)
		if got := s.Seen(1, 110); got != 2 || s.Seen(0, 110) != 0 {
			t.Errorf("page %d of the window is the first that is seen, want 2", got)
		}
		from := []int{0, tc.from}
		if err := s.Restore(129, from); !errors.Is(err, page.ErrFull) || len(s.Table(0)) != 0 {
			t.Errorf("restoring 129 rows in 128: %v", err)
		}
		for range 2 {
			if err := s.Restore(110, from); err != nil {
				t.Fatal(err)
			}
			checkTable(t, s, 0, 0, 1, 2, 3)
			checkTable(t, s, 1, tc.want...)
			s.Cancel()
		}
		if err := s.Restore(110, from); err != nil {
			t.Fatal(err)
		}
		s.Commit(count(0, 110))
		checkTable(t, s, 1, tc.want...)
		if err := p.Check([]*page.Sequence{s}); err != nil || s.Len() != 110 {
			t.Errorf("%d tokens, %v", s.Len(), err)
		}
	}
}

// A private sequence neither gives pages to the prefix tree nor takes any from it. Its forks
// share its pages.
func TestPrivate(t *testing.T) {
	p := page.New(page.Options{Rows: 640, Windows: []int{0, 40}, PrefixRows: 640})
	private := page.SequenceOptions{Private: true}
	s := start(t, p, private, count(0, 100))
	if n := len(p.TreePages(0)); n != 0 {
		t.Errorf("%d pages of a private sequence are in the tree", n)
	}
	other := p.NewSequence(page.SequenceOptions{})
	if n := other.Prefix(count(0, 100)); n != 0 {
		t.Errorf("a prefix of %d tokens of a private sequence", n)
	}
	other.Release()
	open := start(t, p, page.SequenceOptions{}, count(0, 100))
	hidden := p.NewSequence(private)
	if n := hidden.Prefix(count(0, 100)); n != 0 {
		t.Errorf("a private sequence takes a prefix of %d tokens", n)
	}
	// The pages of the window are missing, although the tree has pages for the same tokens.
	if err := s.Rewind(33); err != nil {
		t.Fatal(err)
	}
	if from, to := s.Redo(); from != 0 || to != 33 {
		t.Errorf("%d to %d again, want 0 to 33", from, to)
	}
	decode(t, s, nil)
	f := s.Fork()
	if f.Table(0)[0] != s.Table(0)[0] || p.Refs(0, f.Table(0)[0]) != 2 {
		t.Error("a fork does not share the pages of a private sequence")
	}
	decode(t, f, count(500, 40))
	if err := p.Check([]*page.Sequence{s, open, hidden, f}); err != nil {
		t.Error(err)
	}
}

// AppendFreed returns the whole run around a page that became free, once, and leaves short runs
// for later.
func TestAppendFreed(t *testing.T) {
	p := page.New(page.Options{Rows: 200 * page.Rows, Windows: []int{0, 1000}})
	check := func(least int, want ...page.Run) {
		t.Helper()
		if got := p.AppendFreed(nil, least); !slices.Equal(got, want) {
			t.Errorf("freed %v, want %v", got, want)
		}
	}
	var all []*page.Sequence
	for i := range 150 {
		all = append(all, start(t, p, page.SequenceOptions{}, count(i, 1)))
	}
	check(1)
	all[70].Release()
	check(2)
	check(1, page.Run{Group: 0, From: 70, Count: 1}, page.Run{Group: 1, From: 70, Count: 1})
	check(1)
	all[3].Release()
	all[69].Release()
	check(2, page.Run{Group: 0, From: 69, Count: 2}, page.Run{Group: 1, From: 69, Count: 2})
	all[149].Release()
	check(1, page.Run{Group: 0, From: 3, Count: 1}, page.Run{Group: 0, From: 149, Count: 51},
		page.Run{Group: 1, From: 3, Count: 1}, page.Run{Group: 1, From: 149, Count: 51})
	// A page that is in use again is not returned.
	all[5].Release()
	start(t, p, page.SequenceOptions{}, count(0, 1))
	start(t, p, page.SequenceOptions{}, count(0, 1))
	check(1)
}

// Broken invariants and calls in the wrong order panic with what they found.
func TestPanics(t *testing.T) {
	opt := page.Options{Rows: 320, Windows: []int{0, 8}, PrefixRows: 320}
	for _, tc := range []struct {
		name string
		call func(p *page.Pool, s *page.Sequence)
		says string
	}{
		{"second release", func(p *page.Pool, s *page.Sequence) { s.Release(); s.Release() }, "second release of a sequence of 40 tokens"},
		{"use after release", func(p *page.Pool, s *page.Sequence) { s.Release(); _ = s.Rewind(0) }, "Rewind of a sequence of 40 tokens with 0 rows reserved (released: true)"},
		{"second reservation", func(p *page.Pool, s *page.Sequence) { _, _ = s.Reserve(3); _, _ = s.Reserve(1) }, "Reserve of a sequence of 40 tokens with 3 rows reserved"},
		{"fork within a step", func(p *page.Pool, s *page.Sequence) { _, _ = s.Reserve(3); s.Fork() }, "Fork of a sequence"},
		{"rewind within a step", func(p *page.Pool, s *page.Sequence) { _, _ = s.Reserve(3); _ = s.Rewind(0) }, "Rewind of a sequence"},
		{"append within a step", func(p *page.Pool, s *page.Sequence) { _, _ = s.Reserve(3); s.Append(nil) }, "Append of a sequence"},
		{"prefix within a step", func(p *page.Pool, s *page.Sequence) { _, _ = s.Reserve(3); s.Prefix(nil) }, "Prefix of a sequence"},
		{"no rows", func(p *page.Pool, s *page.Sequence) { _, _ = s.Reserve(0) }, "Reserve of 0 rows"},
		{"restore after tokens", func(p *page.Pool, s *page.Sequence) { _ = s.Restore(1, []int{0, 0}) }, "Restore of a sequence of 40 tokens"},
		{"commit of too many", func(p *page.Pool, s *page.Sequence) { _, _ = s.Reserve(1); s.Commit(count(0, 2)) }, "Commit of 2 tokens after 40 with 1 rows reserved"},
		{"commit of none", func(p *page.Pool, s *page.Sequence) { _, _ = s.Reserve(1); s.Commit(nil) }, "Commit of 0 tokens"},
		{"commit without a step", func(p *page.Pool, s *page.Sequence) { s.Commit(count(0, 1)) }, "Commit of 1 tokens after 40 with 0 rows reserved"},
		{"commit of other tokens", func(p *page.Pool, s *page.Sequence) {
			s.Append(count(40, 1))
			_, _ = s.Reserve(1)
			s.Commit(count(7, 1))
		}, "Commit of 1 tokens after 40 with 1 rows reserved, of which 1 were decoded before"},
		{"restore in part", func(p *page.Pool, s *page.Sequence) {
			r := p.NewSequence(page.SequenceOptions{})
			_ = r.Restore(100, []int{0, 2})
			r.Commit(count(0, 50))
		}, "group 1 lacks page 1 of a sequence of 50 rows"},
		{"restore of too few rows", func(p *page.Pool, s *page.Sequence) {
			_ = p.NewSequence(page.SequenceOptions{}).Restore(100, []int{0, 3})
		}, "Restore of 100 rows from page 3 of group 1 on, want 2 or before"},
		{"reference to a free page", func(p *page.Pool, s *page.Sequence) { p.Retain(1, 9) }, "reference to page 9 of group 1, which is free"},
		{"release of a free page", func(p *page.Pool, s *page.Sequence) { p.ReleasePage(0, 9) }, "release of page 9 of group 0, which is free (0 references)"},
		{"release of the reference of the tree", func(p *page.Pool, s *page.Sequence) { s.Release(); p.ReleasePage(0, 0) }, "release of the last reference to page 0 of group 0, which is that of node 0"},
		{"no rows in the pool", func(p *page.Pool, s *page.Sequence) { page.New(page.Options{Windows: []int{0}}) }, "pool of 0 rows"},
		{"no groups", func(p *page.Pool, s *page.Sequence) { page.New(page.Options{Rows: 1}) }, "pool of 1 rows with windows []"},
		{"window of group 0", func(p *page.Pool, s *page.Sequence) { page.New(page.Options{Rows: 1, Windows: []int{8}}) }, "with windows [8]"},
		{"second group without window", func(p *page.Pool, s *page.Sequence) { page.New(page.Options{Rows: 1, Windows: []int{0, 0}}) }, "with windows [0 0]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := page.New(opt)
			s := start(t, p, page.SequenceOptions{}, count(0, 40))
			defer func() {
				if msg := fmt.Sprint(recover()); !strings.Contains(msg, "page: ") || !strings.Contains(msg, tc.says) {
					t.Errorf("panic %q, want one that says %q", msg, tc.says)
				}
			}()
			tc.call(p, s)
		})
	}
}

// Generation does not allocate while pages enter the tree, are given back by a window, are
// dropped and are copied.
func TestAllocations(t *testing.T) {
	for _, prefix := range []int{0, 640} {
		p := page.New(page.Options{Rows: 4096, Windows: []int{0, 40, 8}, PrefixRows: prefix})
		s := p.NewSequence(page.SequenceOptions{Tokens: 3000, Key: page.Key{Variant: "yarn"}})
		next, ids := int32(0), make([]int32, 1)
		var runs []page.Run
		generate := func() {
			if err := s.Rewind(min(s.Len(), 37)); err != nil {
				t.Fatal(err)
			}
			if from, to := s.Redo(); from < to {
				if _, err := s.Reserve(to - from); err != nil {
					t.Fatal(err)
				}
				s.Commit(s.IDs()[from:to])
			}
			for rewound := 0; s.Len() < 3000; {
				if n := s.Len(); n%64 == 0 && n > rewound {
					rewound = n
					if err := s.Rewind(n - 1); err != nil { // into a page of the tree
						t.Fatal(err)
					}
				}
				if _, err := s.Reserve(1); err != nil {
					t.Fatal(err)
				}
				ids[0] = next
				next++
				s.Commit(ids)
				runs = p.AppendFreed(runs[:0], 4)
			}
		}
		generate()
		// The average rounds down, so that an allocation of the Go runtime does not count.
		if n := testing.AllocsPerRun(4, generate); n != 0 {
			t.Errorf("tree of %d rows: %v allocations in 3000 steps, want none", prefix, n)
		}
		st := p.Stats()
		if st.GivenBack < 100 || prefix > 0 && (st.Dropped < 100 || st.Copied < 100) {
			t.Errorf("tree of %d rows: %+v, want pages that come and go", prefix, st)
		}
	}
}
