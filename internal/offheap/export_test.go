package offheap

// PoisonByte is what freed memory holds under invariants.
const PoisonByte = poisonByte

// PageSize returns the page to which large blocks are aligned and rounded.
func PageSize() int { return pageSize }
