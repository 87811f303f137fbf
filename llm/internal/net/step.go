package net

import (
	"slices"
	"unsafe"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/llm/internal/kv"
	"github.com/fucina-go/fucina/llm/internal/kv/page"
)

// Rows are consecutive tokens of one sequence.
type Rows struct {
	IDs    []int32 // rows of the embedding
	Past   int     // the position of the first token
	Angles *Angles // of the sequence
	// Tables has, for each group of the cache, the pages of the sequence. They have room for
	// the tokens.
	Tables [][]int32
}

// Step is the input of one pass through the network: tokens of one or several sequences. It is
// reused from step to step.
type Step struct {
	Rows []Rows // no two of the same sequence
	// Generated is the number of tokens, first of all, that were generated. The others belong
	// to prompts.
	Generated int

	// words is the step's one upload. Its sections are the ids, positions and sequences of the
	// tokens; for each group, the places of the tokens and the tables of the sequences; and
	// the angles of the tokens, as f32.
	words []int32
	n     int // the number of tokens
}

// Forget removes the sequences from the step, so that it does not keep their memory alive.
func (s *Step) Forget() {
	clear(s.Rows)
	s.Rows = s.Rows[:0]
}

// inputs are the sections of a step as tensors.
type inputs struct {
	ids, positions, sequences fucina.Tensor // {seq}
	groups                    [maxGroups]group
	global, local             fucina.Tensor // {seq pair cos_sin}; local is zero if no block has a window
}

// group has the inputs of the blocks of one group.
type group struct {
	places fucina.Tensor // {seq}
	tables fucina.Tensor // {sequence slot}
}

// maxGroups is the largest number of groups: the blocks without a window, and those with one.
const maxGroups = 2

// noPage fills the tables of the sequences that are shorter than the longest one.
const noPage = -1

// open fills the words of the step and returns its inputs, which the innermost frame of c owns.
func (s *Step) open(c *fucina.Context, n *Network, cache *kv.Cache) (inputs, error) {
	s.n = 0
	for i := range s.Rows {
		s.n += len(s.Rows[i].IDs)
	}
	s.words = s.words[:0]
	for i := range s.Rows {
		s.words = append(s.words, s.Rows[i].IDs...)
	}
	for i := range s.Rows {
		r := &s.Rows[i]
		for j := range r.IDs {
			s.words = append(s.words, int32(r.Past+j))
		}
	}
	for i := range s.Rows {
		for range s.Rows[i].IDs {
			s.words = append(s.words, int32(i))
		}
	}
	positions, groups := s.words[s.n:2*s.n], len(cache.Groups())
	for g := range groups {
		s.addGroup(g)
	}
	err := s.addAngles(positions, n.params.RoPE.Dims, func(a *Angles) *fucina.Angles { return a.global })
	if n.params.Window > 0 && err == nil {
		err = s.addAngles(positions, n.params.LocalRoPE.Dims, func(a *Angles) *fucina.Angles { return a.local })
	}
	if err != nil {
		return inputs{}, err
	}
	return s.view(c, n, groups), nil
}

// addGroup adds the places of the tokens and the tables of the sequences in a group.
func (s *Step) addGroup(g int) {
	for i := range s.Rows {
		r := &s.Rows[i]
		for pos := r.Past; pos < r.Past+len(r.IDs); pos++ {
			s.words = append(s.words, r.Tables[g][pos/page.Rows]*page.Rows+int32(pos%page.Rows))
		}
	}
	width := s.width()
	for i := range s.Rows {
		table := s.Rows[i].Tables[g]
		table = table[:min(len(table), width)]
		s.words = append(s.words, table...)
		for range width - len(table) {
			s.words = append(s.words, noPage)
		}
	}
}

// leastWidth is the least number of entries of a table. It suffices for 512 tokens.
const leastWidth = 16

// width returns the number of entries of the tables. It is at least the number of pages of the
// longest sequence, rounded up to a power of two, so that the size of the upload, and with it
// that of the memory for it, rarely changes while sequences grow.
func (s *Step) width() int {
	w := leastWidth
	for i := range s.Rows {
		r := &s.Rows[i]
		for w*page.Rows < r.Past+len(r.IDs) {
			w *= 2
		}
	}
	return w
}

// addAngles adds the angles of all tokens, dims numbers for each, for the blocks whose angles of
// returns.
func (s *Step) addAngles(positions []int32, dims int, of func(a *Angles) *fucina.Angles) error {
	for i := range s.Rows {
		r, n := &s.Rows[i], len(s.words)
		s.words = slices.Grow(s.words, len(r.IDs)*dims)[:n+len(r.IDs)*dims]
		words := s.words[n:]
		if err := of(r.Angles).Put(unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(words))), len(words)), positions[:len(r.IDs)]); err != nil {
			return err
		}
		positions = positions[len(r.IDs):]
	}
	return nil
}

// view returns the sections of the words as tensors, in the order in which open adds them.
func (s *Step) view(c *fucina.Context, n *Network, groups int) (in inputs) {
	words := fucina.FromSlice(c, s.words, fucina.Ax("word", len(s.words)))
	at := 0
	next := func(size int, into ...fucina.Axis) fucina.Tensor {
		at += size
		return words.Narrow("word", at-size, size, into...)
	}
	row := func() fucina.Tensor { return next(s.n, fucina.Ax("seq", s.n)) }
	in.ids, in.positions, in.sequences = row(), row(), row()
	width := s.width()
	for g := range groups {
		in.groups[g].places = row()
		in.groups[g].tables = next(len(s.Rows)*width, fucina.Ax("sequence", len(s.Rows)), fucina.Ax("slot", width))
	}
	angles := func(dims int) fucina.Tensor {
		return next(s.n*dims, fucina.Ax("seq", s.n), fucina.Ax(fucina.PairAxis, dims/2), fucina.Ax(fucina.CosSinAxis, 2)).Bitcast(dtype.F32)
	}
	in.global = angles(n.params.RoPE.Dims)
	if n.params.Window > 0 {
		in.local = angles(n.params.LocalRoPE.Dims)
	}
	return in
}
