// Package tagged computes on tensors whose axes have names: it aligns operands by name,
// lowers named operations to the positional ones of package exec, and takes views.
//
// A [Call] is one operation with its operands and attributes. Every operation, views
// included, goes through [Call.Run], so that code that records operations sees all of them.
// An operand is lent to the call, or the call takes a reference of its own. The caller of Run
// owns the results, which stay in the call until the next Run.
//
// An error names the operation, the roles and axes of its operands, and what was expected.
// It wraps the sentinel of its kind. The package knows no contexts, handles or scopes.
package tagged
