// Package op defines the operations: their names, their arguments of fixed size, and the
// contract of each in one table, which gives the operands that it accepts and its outputs.
//
// [Infer] or [Check] check operands once, and return a [Refusal]. A provider gets only
// operands that passed, and only checks, with [Operand.Fits], that every operand lies
// inside its memory. The formats that a role accepts are listed here and nowhere else.
//
// The package computes nothing, and has no memory, axis names or providers.
package op
