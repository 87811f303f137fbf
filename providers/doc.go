// Package providers chooses where an engine computes. Which providers exist is
// decided by build tags: each tagged file of this package registers one. The CPU
// is always there.
package providers
