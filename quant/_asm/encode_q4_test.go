package main

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
)

// TestReproduces: the file in the package is what the generator writes, but for the
// first line, which has its arguments.
func TestReproduces(t *testing.T) {
	got, err := exec.Command("go", "run", ".").Output()
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
