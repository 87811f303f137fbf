// Package providers opens the provider on which an engine computes. Build tags decide
// which providers exist: each tagged file of this package registers one. The CPU provider
// is in every build.
package providers
