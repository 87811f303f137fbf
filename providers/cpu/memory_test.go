package cpu

import (
	"os"
	"path/filepath"
	"testing"
)

// The memory of the process is that of the machine, or the limit of a container if that is
// smaller. A file that has no number is no limit.
func TestHostMemory(t *testing.T) {
	machine := hostMemory(nil)
	if machine < 64<<20 {
		t.Fatalf("the machine has %d bytes of memory", machine)
	}
	for _, tt := range []struct {
		text string
		want int64
	}{
		{"max\n", machine}, {"1048576\n", 1 << 20}, {"9223372036854771712\n", machine}, {"0\n", machine}, {"-1\n", machine}, {"", machine},
	} {
		path := filepath.Join(t.TempDir(), "memory.max")
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := hostMemory([]string{path + ".missing", path}); got != tt.want {
			t.Errorf("with the limit %q: %d bytes, want %d", tt.text, got, tt.want)
		}
	}
}
