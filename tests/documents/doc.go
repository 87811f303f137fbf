// Package documents tests that the documents say what the code does: the environment
// variables and build tags, the targets of the Makefile, and the paths of links and files.
//
// The package has no code but its tests.
package documents
