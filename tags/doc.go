// Package tags names tensor axes and computes what follows from names alone: which
// axis a name is, and which axes the result of an operation has. Names are data;
// they carry no built-in meaning, and no list repeats one.
package tags
