// Package op has the operations: their names, their arguments of fixed size, and the
// contract of each in one table, which says what operands it takes and what it gives.
//
// Operands are checked once, by [Infer] or [Check], which answer with a [Refusal]. A
// provider is asked and given what passed, and checks nothing but that every operand lies
// inside its memory, with [Operand.Fits]. The lists of formats that a role takes are here
// and nowhere else.
//
// The package computes nothing, and knows no memory, axis names or providers.
package op
