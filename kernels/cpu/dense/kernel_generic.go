//go:build (!amd64 && !arm64) || noasm

package dense

import "github.com/fucina-go/fucina/internal/isa"

// vectorise sets the functions of the level. There are none.
func (*Kernel) vectorise(isa.Level) {}
