package team

// Parked reports whether every worker is parked.
func (t *Team) Parked() bool {
	for i := range t.workers {
		if !t.workers[i].parked.Load() {
			return false
		}
	}
	return true
}
