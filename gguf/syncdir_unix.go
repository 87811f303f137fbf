//go:build unix

package gguf

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// syncDir makes a rename in dir durable, so that it survives a crash of the system. The
// current directory is "".
func syncDir(dir string) error {
	if dir == "" {
		dir = "."
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("gguf: %w", err)
	}
	defer d.Close()
	// Some file systems cannot sync a directory, and return one of these errors.
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("gguf: %w", err)
	}
	return nil
}
