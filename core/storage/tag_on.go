//go:build cuda || metal || accel

package storage

// HasAccelerator reports whether this build can place buffers on a device.
const HasAccelerator = true
