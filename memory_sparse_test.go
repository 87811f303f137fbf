package fucina_test

import (
	"runtime"
	"strconv"

	"github.com/fucina-go/fucina/internal/invariants"
)

// sparseMemory says that memory costs nothing until it is accessed, because it is mapped and
// no check of the build fills it.
const sparseMemory = (runtime.GOOS == "linux" || runtime.GOOS == "darwin") && strconv.IntSize == 64 &&
	!invariants.Enabled && !invariants.RaceEnabled
