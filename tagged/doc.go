// Package tagged computes on tensors whose axes have names: it aligns operands by name,
// lowers named operations to the positional ones of package exec, and takes views.
//
// A [Call] describes one operation: what it does, its operands and its attributes.
// [Call.Run] is the only way in, so that whoever records operations sees all of them,
// views included. Run takes no ownership of the operands; its result is a tensor of the
// caller's.
//
// An error names the operation, the roles and the axes of the operands, and what was
// expected, and wraps the sentinel of its kind. Contexts, handles and scopes are not
// known here.
package tagged
