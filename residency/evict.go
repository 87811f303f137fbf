//go:build cuda || metal || accel

package residency

import (
	"cmp"
	"math"
	"slices"
	"weak"

	"github.com/fucina-go/fucina/core/storage"
)

// Eviction looks ahead. A forward pass uses the weights of a model in the same order each
// time, so the time between the uses of a weight, its interval, says when it is used
// next. The weight that is used next at the latest time goes first: in a loop that is
// one that was just used, so that a model over its budget keeps a fixed part resident
// and streams the rest through the room that is left. Time is counted in uses of
// weights, its unit is a tick.

// history is what is known of the uses of a weight. It outlives the weight's block.
type history struct {
	last     int64    // the tick of the last use, 0 before the first
	gaps     [3]int64 // between the last uses
	interval int64    // the median of gaps, 0 before the second use
}

// use records a use at tick now. One pause of the model, or one use of a weight that is
// used several times in a round, makes no other interval.
func (h *history) use(now int64) {
	switch gap := now - h.last; {
	case h.last == 0:
	case h.interval == 0:
		h.gaps = [3]int64{gap, gap, gap}
		h.interval = gap
	default:
		a, b := h.gaps[1], h.gaps[2]
		h.gaps = [3]int64{a, b, gap}
		h.interval = max(min(a, b), min(max(a, b), gap))
	}
	h.last = now
}

// next returns how many ticks after now the next use is expected. A weight that was
// used once may never be used again.
func (h *history) next(now int64) int64 {
	if h.interval == 0 {
		return math.MaxInt64
	}
	return max(0, h.last+h.interval-now)
}

const (
	// roundFade is how fast, in ticks, the length of a round forgets a longer one.
	roundFade = 64
	// deadRounds is the number of rounds without a use after which a weight is taken to
	// be out of use.
	deadRounds = 3
	// spareShare of the budget is what the last used weights may hold and keep: the
	// device may still be at work on them, and their memory would have to be waited for.
	spareShare = 1. / 32
)

// adopt makes b the memory of the weight owner.
func (m *Manager) adopt(b *Block, owner *storage.Buffer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := weak.Make(owner)
	past := m.past[key]
	if past == nil {
		if len(m.past) >= m.pastLimit {
			m.forget()
		}
		past = new(history)
		m.past[key] = past
	}
	b.owner, b.past, b.place = owner, past, len(m.adopted)
	m.adopted = append(m.adopted, b)
	m.stats.Adopted += int64(b.mem.Len)
	m.use(past)
}

// forget drops the histories of buffers that the collector has taken, and looks again
// once there are twice as many as are left. The caller holds mu.
func (m *Manager) forget() {
	for key := range m.past {
		if key.Value() == nil {
			delete(m.past, key)
		}
	}
	m.pastLimit = max(minPast, 2*len(m.past))
}

// minPast is the number of histories that are kept without a look at them.
const minPast = 256

// touch records a use of b.
func (m *Manager) touch(b *Block) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b.owner != nil {
		m.use(b.past)
	}
}

// use records a use of a weight. The caller holds mu.
func (m *Manager) use(h *history) {
	m.tick++
	h.use(m.tick)
	m.round = max(h.interval, m.round-(m.round+roundFade-1)/roundFade)
}

// disown ends the adoption of b. The caller holds mu.
func (m *Manager) disown(b *Block) {
	last := m.adopted[len(m.adopted)-1]
	m.adopted[b.place] = last
	last.place = b.place
	m.adopted[len(m.adopted)-1] = nil
	m.adopted = m.adopted[:len(m.adopted)-1]
	b.owner, b.past = nil, nil
	m.stats.Adopted -= int64(b.mem.Len)
}

// candidate is a weight that may be given up.
type candidate struct {
	buf  *storage.Buffer
	size int64
	last int64 // the tick of its last use
	next int64 // ticks until its next use
	dead bool  // it was not used for deadRounds
	keep bool  // the device may still be at work on it
	take bool  // it is to be given up
}

// candidates lists the weights that can be given up now: their host copy is valid and
// no operation is being prepared on them. The caller holds scarce, which guards the
// list.
func (m *Manager) candidates() []candidate {
	m.mu.Lock()
	list := m.scratch[:0]
	for _, b := range m.adopted {
		list = append(list, candidate{
			buf: b.owner, size: int64(b.mem.Len), last: b.past.last, next: b.past.next(m.tick),
			dead: m.round > 0 && m.tick-b.past.last > deadRounds*m.round,
		})
	}
	m.mu.Unlock()
	m.scratch = list
	// Asked without mu, which Free of a buffer's memory takes under the buffer's lock.
	return slices.DeleteFunc(list, func(c candidate) bool { return !c.buf.CanDropDevice() })
}

// choose marks the weights to give up for a block of size bytes, for which missing
// bytes have to become free, and returns them in order: first the dead ones, then those
// that are used next at the latest time. It returns none if all
// of them are not enough.
//
// Sizes differ, so order is not all: a large weight that went for a small one would
// have to come back whole. Weights larger than what is missing are left alone while
// smaller ones suffice, so that large ones become the fixed part.
func choose(list []candidate, size, missing, spare int64) []candidate {
	total := int64(0)
	for i := range list {
		total += list[i].size
	}
	if total < missing {
		return nil
	}
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Compare(b.last, a.last) })
	for i, left := 0, spare; i < len(list) && left >= list[i].size; i++ {
		left -= list[i].size
		list[i].keep = !list[i].dead
	}
	slices.SortStableFunc(list, order)

	covered := int64(0)
	i := 0
	for ; i < len(list) && list[i].dead && covered < missing; i++ {
		list[i].take = true
		covered += list[i].size
	}
	if covered < missing {
		covered += chooseLive(list[i:], size, missing-covered, spare)
	}
	// The last choices first, what the others cover without them stays.
	for i := len(list) - 1; i >= 0; i-- {
		if c := &list[i]; c.take && covered-c.size >= missing {
			c.take = false
			covered -= c.size
		}
	}
	return slices.DeleteFunc(list, func(c candidate) bool { return !c.take })
}

// order compares candidates, those to give up first being less.
func order(a, b candidate) int {
	rank := func(c candidate) int {
		switch {
		case c.dead:
			return 0
		case c.keep:
			return 2
		}
		return 1
	}
	if c := cmp.Compare(rank(a), rank(b)); c != 0 {
		return c
	}
	if a.dead || a.keep {
		return cmp.Compare(a.last, b.last)
	}
	return cmp.Or(cmp.Compare(b.next, a.next), cmp.Compare(b.last, a.last))
}

// chooseLive marks weights that are in use and returns their bytes.
func chooseLive(list []candidate, size, missing, spare int64) int64 {
	if size-missing <= spare {
		// A block of the right size saves the provider a free and an allocation, if
		// one is found among the first.
		passed := int64(0)
		for i := range list {
			c := &list[i]
			if c.keep || passed > 3*size {
				break
			}
			if c.size == size {
				c.take = true
				return size
			}
			if c.size < size {
				passed += c.size
			}
		}
	}
	covered := int64(0)
	var larger *candidate // the smallest one that suffices alone
	for i := range list {
		c := &list[i]
		if c.size > missing {
			if larger == nil || c.size < larger.size {
				larger = c
			}
			continue
		}
		if covered < missing {
			c.take = true
			covered += c.size
		}
	}
	if covered >= missing {
		return covered
	}
	for i := range list {
		list[i].take = false
	}
	larger.take = true // all together suffice, the smaller ones do not
	return larger.size
}

// evict gives up the device copies of weights so that missing bytes become free, of
// the request for a block of size bytes. It reports whether it gave up any. The caller
// holds scarce.
func (m *Manager) evict(list []candidate, size, missing int64) bool {
	given := int64(0)
	for _, c := range choose(list, size, missing, int64(spareShare*float64(m.budget))) {
		// DropDevice comes back to the manager, so it is called without mu. Someone
		// may have begun to use the buffer, or ended it, meanwhile.
		if c.buf.DropDevice() {
			given++
		}
	}
	m.mu.Lock()
	m.stats.Evictions += given
	m.mu.Unlock()
	return given > 0
}
