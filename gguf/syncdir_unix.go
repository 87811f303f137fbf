//go:build unix

package gguf

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// syncDir makes a rename in dir, "" for the current directory, last past a crash of
// the system.
func syncDir(dir string) error {
	if dir == "" {
		dir = "."
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("gguf: %w", err)
	}
	defer d.Close()
	// Some file systems cannot, and say so in one of these ways.
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("gguf: %w", err)
	}
	return nil
}
