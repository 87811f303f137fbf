package sigbus_test

import (
	"testing"

	"github.com/fucina-go/fucina/tests/sigbus"
)

// On a system without emulation, tests see the address of the fault of a truncated file.
func TestNeed(t *testing.T) { sigbus.Need(t) }
