package cpu

import (
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/pbnjay/memory"
)

// cgroupLimits are the files with the limit of a container's memory, in version 2 and in
// version 1 of Linux control groups.
var cgroupLimits = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// hostMemory returns the bytes of memory that the process may use: those of the machine, or
// the limit of the container. It returns 0 if the system does not tell.
func hostMemory(limits []string) int64 {
	n := int64(min(memory.TotalMemory(), math.MaxInt64))
	for _, path := range limits {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		// Without a limit, version 2 has the word max, and version 1 has a huge number.
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && limit > 0 && (n == 0 || limit < n) {
			n = limit
		}
	}
	return n
}
