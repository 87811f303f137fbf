package offheap

// PoisonByte fills freed memory under invariants.
const PoisonByte = poisonByte

// PageSize returns the page to which large blocks are aligned and rounded.
func PageSize() int { return pageSize }
