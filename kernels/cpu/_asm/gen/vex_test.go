package gen

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mmcloughlin/avo/reg"
)

var ymm = [16]reg.VecPhysical{
	reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7, reg.Y8, reg.Y9, reg.Y10, reg.Y11, reg.Y12, reg.Y13, reg.Y14, reg.Y15,
}

// The codes are those that a disassembler reads as the instructions.
func TestVEX(t *testing.T) {
	for _, tt := range []struct {
		op          byte
		c, b, a     int
		want        string
		instruction string
	}{
		{0x50, 2, 1, 0, "c4e27550c2", "{vex} vpdpbusd %ymm2,%ymm1,%ymm0"},
		{0x50, 2, 9, 8, "c4623550c2", "{vex} vpdpbusd %ymm2,%ymm9,%ymm8"},
		{0x52, 15, 14, 3, "c4c20d52df", "{vex} vpdpwssd %ymm15,%ymm14,%ymm3"},
	} {
		code := vex(tt.op, ymm[tt.c], ymm[tt.b], ymm[tt.a])
		if got := fmt.Sprintf("%x", code); got != tt.want {
			t.Errorf("%s is %s, want %s", tt.instruction, got, tt.want)
		}
	}
}

// A disassembler reads every operand.
func TestVEXDisassembled(t *testing.T) {
	path, err := exec.LookPath("objdump")
	if err != nil {
		t.Skip("no objdump")
	}
	var code []byte
	var want []string
	for _, op := range []struct {
		op   byte
		name string
	}{{0x50, "vpdpbusd"}, {0x52, "vpdpwssd"}} {
		for i := range 16 * 16 * 16 {
			c, b, a := i%16, i/16%16, i/256
			v := vex(op.op, ymm[c], ymm[b], ymm[a])
			code = append(code, v[:]...)
			want = append(want, fmt.Sprintf("{vex} %s %%ymm%d,%%ymm%d,%%ymm%d", op.name, c, b, a))
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
