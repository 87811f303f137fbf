// Package conformance runs the suite of core/conformance on the providers of this module.
package conformance
