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
	for generator, file := range map[string]string{
		"dense":     "dense/dense_amd64.s",
		"simd":      "simd/simd_amd64.s",
		"simdarm64": "simd/simd_arm64.s",
		"vector":    "vector/vector_amd64.s",
	} {
		t.Run(generator, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command("go", "run", "./"+generator)
			cmd.Stderr = os.Stderr
			got, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile("../" + file)
			if err != nil {
				t.Fatal(err)
			}
			_, got, _ = bytes.Cut(got, []byte("\n"))
			_, want, _ = bytes.Cut(want, []byte("\n"))
			if len(got) == 0 || !bytes.Equal(got, want) {
				t.Errorf("%s is not what the generator writes: run go generate in its package", file)
			}
		})
	}
}
