package llm

import "github.com/fucina-go/fucina"

// Cache returns the keys and the values of block i, {key kv_head d_head}, which stay
// the session's.
func (s *Session) Cache(i int) (k, v fucina.Tensor) { return s.cache[i].k, s.cache[i].v }
