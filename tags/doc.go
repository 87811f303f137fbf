// Package tags computes with the names of tensor axes: it finds an axis by its name, and
// the names of the axes of a result. Names have no built-in meaning, and the names in a
// list differ.
package tags
