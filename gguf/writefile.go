package gguf

import (
	"errors"
	"fmt"
	"io"

	"github.com/fucina-go/fucina/internal/atomicfile"
)

// WriteFile creates or replaces the file at path. fill declares and writes the contents of
// the new file through w. WriteFile writes a temporary file in the same directory, syncs it
// to the disk and renames it, so that path always holds the old file or the whole new one.
// WriteFile closes the Writer. If fill or WriteFile fails, or fill panics, the temporary
// file is removed.
//
// Files that are open keep the old bytes. Windows cannot replace a file that is open or
// mapped, so there a fill that reads the old file must close it before it returns.
//
// If path is a symbolic link, its target is created or replaced, and the temporary file
// lies beside the target. A new file has the system's default permissions. A replaced file
// keeps its permission bits, but not its owner or its other hard links. If path exists and
// is not a regular file, or is read-only, WriteFile fails before it calls fill.
func WriteFile(path string, fill func(w *Writer) error) error {
	var own error // of fill or of the Writer
	err := atomicfile.Write(path, func(out io.Writer) error {
		w := NewWriter(out)
		if own = fill(w); own == nil {
			own = w.Close()
		}
		return own
	})
	var target *atomicfile.TargetError
	switch {
	case err == nil || own != nil:
		return err
	case errors.As(err, &target):
		return misuse("%w", err)
	}
	return fmt.Errorf("gguf: %w", err)
}
