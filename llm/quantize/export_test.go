package quantize

// Access to importance data for tests.

func (m *Importance) File() string                { return m.file }
func (m *Importance) Datasets() []string          { return m.datasets }
func (m *Importance) Chunks() int                 { return m.chunks }
func (m *Importance) Entry(name string) []float32 { return m.entries[name] }
