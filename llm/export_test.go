package llm

import "github.com/fucina-go/fucina/llm/internal/kv/page"

// Pools returns the pools of the model's caches.
func (m *Model) Pools() []*page.Pool {
	m.steps.mu.Lock()
	defer m.steps.mu.Unlock()
	var pools []*page.Pool
	for _, c := range m.steps.caches {
		if c.pool != nil {
			pools = append(pools, c.pool)
		}
	}
	return pools
}

// PageStats returns the counters of all pools of the model's caches together.
func (m *Model) PageStats() page.Stats {
	var sum page.Stats
	for _, p := range m.Pools() {
		m.steps.mu.Lock()
		sum.Add(p.Stats())
		m.steps.mu.Unlock()
	}
	return sum
}
