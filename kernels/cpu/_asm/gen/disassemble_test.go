package gen

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A disassembler reads every register.
func TestEncodeDisassembled(t *testing.T) {
	path, err := exec.LookPath("objdump")
	if err != nil {
		t.Skip("no objdump")
	}
	var code []byte
	var want []string
	for _, op := range []struct {
		code byte
		name string
	}{{0x50, "vpdpbusd"}, {0x52, "vpdpwssd"}} {
		for i := range 16 * 16 * 16 {
			rm, vvvv, r := i%16, i/16%16, i/256
			code = append(code, encode(op.code, rm, vvvv, r)...)
			want = append(want, fmt.Sprintf("{vex} %s %%ymm%d,%%ymm%d,%%ymm%d", op.name, rm, vvvv, r))
		}
	}
	file := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(file, code, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "-D", "-b", "binary", "-m", "i386:x86-64", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range bytes.Lines(out) {
		if f := strings.Split(string(line), "\t"); len(f) == 3 {
			got = append(got, strings.Join(strings.Fields(f[2]), " "))
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d instructions, want %d", len(got), len(want))
	}
	for i, w := range want {
		if got[i] != w {
			t.Fatalf("got %q, want %q", got[i], w)
		}
	}
}
