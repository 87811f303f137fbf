//go:build accel

package fucina_test

// providerNames are the providers that the tests of operations run on.
var providerNames = []string{"cpu", "discrete"}
