// Package process starts a test binary as the program that it tests, for tests that need a
// process.
package process

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// asMain makes a test binary run main instead of its tests.
const asMain = "FUCINA_TEST_MAIN"

// Main is the TestMain of a package main: it runs program in a process that [Command]
// starts, and the tests otherwise.
func Main(m *testing.M, program func()) {
	if os.Getenv(asMain) != "" {
		program()
		return
	}
	os.Exit(m.Run())
}

// Command returns the program with these arguments. It ends with the test.
func Command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, args...)
	cmd.Env = append(os.Environ(), asMain+"=1")
	return cmd
}

// SkipEmulated skips the test if err, from starting a process, says that the system cannot
// start a binary of this architecture.
func SkipEmulated(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, syscall.ENOEXEC) {
		t.Skip("the test binary is emulated: this system cannot start it")
	}
}
