// Package documents tests that the documents agree with the code: the environment
// variables and build tags, the targets of the Makefile, and the paths of links and files.
//
// The package has no code but its tests.
package documents
