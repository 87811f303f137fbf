package asm

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
)

// The files in the packages are the output of their generators, except for the first line, which
// has the generator's arguments.
func TestReproduces(t *testing.T) {
	for _, name := range []string{"dense", "simd", "vector"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command("go", "run", "./"+name)
			cmd.Stderr = os.Stderr
			got, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile("../" + name + "/" + name + "_amd64.s")
			if err != nil {
				t.Fatal(err)
			}
			_, got, _ = bytes.Cut(got, []byte("\n"))
			_, want, _ = bytes.Cut(want, []byte("\n"))
			if len(got) == 0 || !bytes.Equal(got, want) {
				t.Errorf("%s_amd64.s is not what the generator writes: run go generate in package %s", name, name)
			}
		})
	}
}
