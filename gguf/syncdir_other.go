//go:build !unix

package gguf

// syncDir does nothing: directories cannot be synced here.
func syncDir(string) error { return nil }
