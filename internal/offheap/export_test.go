package offheap

// PoisonByte is what freed memory holds under invariants.
const PoisonByte = poisonByte
