package fucina_test

import (
	"runtime"
	"strconv"

	"github.com/fucina-go/fucina/internal/invariants"
)

// sparseMemory says that memory which is never touched costs nothing: it is mapped,
// and no check fills it.
const sparseMemory = (runtime.GOOS == "linux" || runtime.GOOS == "darwin") && strconv.IntSize == 64 &&
	!invariants.Enabled && !invariants.RaceEnabled
