package main

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
)

// generateEnv makes the test binary the generator.
const generateEnv = "QUANT_ASM_GENERATE"

func TestMain(m *testing.M) {
	if os.Getenv(generateEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The file in the package is the output of the generator, except for the first line, which
// has the generator's arguments.
func TestReproduces(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), generateEnv+"=1")
	got, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("../encode_q4_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	_, got, _ = bytes.Cut(got, []byte("\n"))
	_, want, _ = bytes.Cut(want, []byte("\n"))
	if len(got) == 0 || !bytes.Equal(got, want) {
		t.Error("encode_q4_amd64.s is not what the generator writes: run go generate in package quant")
	}
}
