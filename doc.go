// Package fucina runs tensor programs on the CPU and on devices with memory of
// their own.
package fucina
