package sigbus_test

import (
	"testing"

	"github.com/fucina-go/fucina/tests/sigbus"
)

// Where tests run on the system itself, they see the faults of files that were cut.
func TestNeed(t *testing.T) { sigbus.Need(t) }
