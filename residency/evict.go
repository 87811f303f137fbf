//go:build cuda || metal || accel

package residency

import (
	"cmp"
	"math"
	"slices"
	"weak"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/storage"
)

// Eviction predicts the next use of each weight. A forward pass uses the weights of a model
// in the same order each time, so the interval between the uses of a weight predicts its
// next use. The weight with the latest predicted use is evicted first. In a loop that is a
// weight that was just used, so that a model over its budget keeps a fixed part resident
// and streams the rest through the remaining room. Time is counted in ticks; a tick is one
// use of a weight.

// history records the uses of a weight. It outlives the weight's block.
type history struct {
	last     int64    // tick of the last use, 0 before the first
	gaps     [3]int64 // ticks between the last four uses
	interval int64    // median of gaps, 0 before the second use
}

// use records a use at tick now. Because interval is a median, one pause of the model, or
// one extra use of a weight in a round, does not change it.
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

// next returns how many ticks after now the next use is expected. For a weight that was
// used once it returns the largest number, because the weight may not be used again.
func (h *history) next(now int64) int64 {
	if h.interval == 0 {
		return math.MaxInt64
	}
	return max(0, h.last+h.interval-now)
}

const (
	// roundFade is the number of ticks in which Manager.round decays by a factor e.
	roundFade = 64
	// deadRounds is the number of rounds without a use after which a weight is assumed to
	// be out of use.
	deadRounds = 3
	// spareShare is the share of the adopted bytes that the last used weights keep. The
	// device may still be using them, and a user of their memory would wait. It is not a
	// share of the budget, of which a cache may hold the most: each step streams another part
	// of the model, which starts earlier by about the bytes of these weights.
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

// forget drops the histories of buffers that the garbage collector has freed. It runs
// again once there are twice as many histories as are left. The caller holds mu.
func (m *Manager) forget() {
	for key := range m.past {
		if key.Value() == nil {
			delete(m.past, key)
		}
	}
	m.pastLimit = max(minPast, 2*len(m.past))
}

// minPast is the number of histories below which forget does not run.
const minPast = 256

// Used records a use of the weight whose device memory is mem.
func (m *Manager) Used(mem accel.Memory) {
	b, ok := mem.(*Block)
	if !ok {
		return
	}
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

// candidate is a weight that may be evicted.
type candidate struct {
	buf  *storage.Buffer
	size int64
	last int64 // tick of the last use
	next int64 // ticks until the expected next use
	dead bool  // not used for deadRounds rounds
	keep bool  // the device may still be using it
	take bool  // chosen for eviction
}

// candidates lists the weights that can be evicted now: their host copy is valid and no
// operation is being prepared on them. The caller holds scarce, which guards the list.
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
	// CanDropDevice locks the buffer, and a buffer calls Free, which locks mu, while it is
	// locked. So it is called without mu.
	return slices.DeleteFunc(list, func(c candidate) bool { return !c.buf.CanDropDevice() })
}

// choose returns the weights to evict for a block of size bytes, for which missing bytes
// must become free: first the dead ones, then those with the latest expected use. It
// returns none if all candidates together are smaller than missing.
//
// Weights larger than missing are kept if smaller ones suffice, so that the large ones
// become the fixed part. An evicted large weight would have to be uploaded whole for the
// sake of a small block.
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
	// Keep the chosen weights, the last ones first, without which the others suffice.
	for i := len(list) - 1; i >= 0; i-- {
		if c := &list[i]; c.take && covered-c.size >= missing {
			c.take = false
			covered -= c.size
		}
	}
	return slices.DeleteFunc(list, func(c candidate) bool { return !c.take })
}

// order compares candidates. A candidate that is evicted earlier is less.
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

// chooseLive marks weights that are not dead for eviction, and returns their bytes. The
// weights of list together have at least missing bytes.
func chooseLive(list []candidate, size, missing, spare int64) int64 {
	if size-missing <= spare {
		// A block of exactly the right size saves a free and an allocation by the
		// provider, if there is one among the first weights.
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
	var larger *candidate // the smallest weight that suffices alone
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
	larger.take = true // not nil: all weights suffice and the smaller ones do not
	return larger.size
}

// evict drops the device copies of weights so that missing bytes become free for a block
// of size bytes. It reports whether it dropped any. The caller holds scarce.
func (m *Manager) evict(list []candidate, size, missing int64) bool {
	m.mu.Lock()
	spare := int64(spareShare * float64(m.stats.Adopted))
	m.mu.Unlock()
	given := int64(0)
	for _, c := range choose(list, size, missing, spare) {
		// DropDevice calls Block.Free, which locks mu, so it is called without mu. It
		// returns false if another goroutine has begun to use the buffer meanwhile, or has
		// released it.
		if c.buf.DropDevice() {
			given++
		}
	}
	m.mu.Lock()
	m.stats.Evictions += given
	m.mu.Unlock()
	return given > 0
}
