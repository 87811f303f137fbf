package leak

import (
	"bytes"
	"os"
	"strconv"
)

// Resident returns the bytes of the process that are in memory, also those of the Go heap. It
// returns false if the system has no /proc/self/statm.
func Resident() (int64, bool) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, false
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0, false
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize()), err == nil
}
