package a64

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// all writes every instruction, with registers and constants at both ends of their fields.
func all() {
	Begin("test", "arm64")
	for _, r := range [][3]V{{0, 0, 0}, {31, 0, 0}, {0, 31, 0}, {0, 0, 31}, {1, 18, 12}} {
		d, n, m := r[0], r[1], r[2]
		for _, l := range []Lanes{B8, H4, S2, B16, H8, S4, D2} {
			for _, f := range []func(Lanes, V, V, V){ADD, SUB, ADDP, CMTST, CMEQ, CMHI, USHL, UZP1, UZP2, TRN1, TRN2, ZIP1, ZIP2} {
				f(l, d, n, m)
			}
			if l == D2 {
				continue
			}
			MLA(l, d, n, m)
			MUL(l, d, n, m)
			UMAX(l, d, n, m)
			SADDLP(l, d, n)
			SADALP(l, d, n)
			XTN(l, d, n)
			SMULL(l, d, n, m)
			SMLAL(l, d, n, m)
			for _, by := range []int{0, 1, 8<<l.size() - 1} {
				SHL(l, d, n, by)
				USHR(l, d, n, by+1)
				SSHLL(l, d, n, by)
				USHLL(l, d, n, by)
			}
			if l == S2 {
				continue
			}
			ADDV(l, d, n)
			UMAXV(l, d, n)
			SADDLV(l, d, n)
		}
		for _, f := range []func(V, V, V){FADD, FMUL, FMLA, FMLS, AND, BIC, EOR, ORR, BIT, TBL, SDOT, SMMLA, FADDScalar, FMULScalar, FDIVScalar} {
			f(d, n, m)
		}
		for _, f := range []func(V, V){SCVTF, FCVTNS, FCVTL} {
			f(d, n)
		}
		for i := range 4 {
			for _, f := range []func(V, V, V, int){MLAElement, FMLAElement, FMULElement, SDOTElement, FMULScalarElement, FMLSScalarElement} {
				f(d, n, m, i)
			}
			DUPScalar(d, n, i)
		}
		for i := range 8 {
			SMLALElement(H4, d, n, m%16, i)
			SMLALElement(H8, d, n, m%16, i)
		}
		FMADD(d, n, m, 0)
		FMADD(d, n, m, 31)
		for _, l := range []Lanes{B16, H8, S4, D2} {
			last := 16>>l.size() - 1
			DUP(l, d, n, 0)
			DUP(l, d, n, last)
			INS(l, d, 0, n, last)
			INS(l, d, last, n, 0)
		}
	}
	for _, r := range []R{0, 15} {
		for _, v := range []V{0, 31} {
			DUPGeneral(v, r)
			FMOVToGeneral(r, v)
			FMOVToScalar(v, r)
			for _, b := range []byte{0, 1, 31, 32, 255} {
				MOVI(v, b)
			}
			for i, f := range []func(V, R, int){LoadB, LoadH, LoadS, LoadD, LoadQ} {
				for _, off := range []int{0, 4095 << i, -1, -256} {
					f(v, r, off)
				}
			}
			LoadH(v, r, 255)
			LoadQ(v, r, 255)
			StoreH(v, r, 8190)
			StoreS(v, r, 16380)
			StoreQ(v, r, 65520)
			for _, off := range []int{0, 1008, -1024} {
				LoadPair(v, 31-v, r, off)
				StorePair(v, 31-v, r, off)
			}
		}
	}
}

var instruction = regexp.MustCompile(`WORD \$0x([0-9a-f]{8}) // ((\w+) .*)`)

// GNU as 2.40 assembled the notation of every instruction to the words of testdata/gnu.txt.
func TestWords(t *testing.T) {
	data, err := os.ReadFile("testdata/gnu.txt")
	if err != nil {
		t.Fatal(err)
	}
	want, mnemonics := make(map[string]string), make(map[string]bool)
	for line := range strings.Lines(string(data)) {
		w, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		want[text] = w
		name, _, _ := strings.Cut(text, " ")
		mnemonics[name] = true
	}
	all()
	list := instruction.FindAllStringSubmatch(string(Bytes()), -1)
	if len(list) < 1000 {
		t.Fatalf("%d instructions", len(list))
	}
	for _, m := range list {
		if want[m[2]] != m[1] {
			t.Errorf("%s is %s, want %q", m[2], m[1], want[m[2]])
		}
	}
	// What is not here, the generators must not use.
	for _, path := range []string{"../../../simd/simd_arm64.s"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range instruction.FindAllStringSubmatch(string(text), -1) {
			if !mnemonics[m[3]] {
				t.Errorf("%s has %s, whose word no test compares", path, m[2])
				mnemonics[m[3]] = true
			}
		}
	}
}

// An operand that does not fit into its field is refused.
func TestOperands(t *testing.T) {
	for name, f := range map[string]func(){
		"smlal register": func() { SMLALElement(H4, 0, 0, 16, 0) },
		"smlal lane":     func() { SMLALElement(H4, 0, 0, 0, 8) },
		"word lane":      func() { MLAElement(0, 0, 0, 4) },
		"byte lane":      func() { DUP(B16, 0, 0, 16) },
		"shl":            func() { SHL(B16, 0, 0, 8) },
		"ushr":           func() { USHR(S4, 0, 0, 33) },
		"ldr":            func() { LoadQ(0, 0, 264) },
		"str":            func() { StoreS(0, 0, 2) },
		"ldp":            func() { LoadPair(0, 1, 0, 1024) },
	} {
		t.Run(name, func(t *testing.T) {
			Begin("test", "arm64")
			defer func() {
				if recover() == nil {
					t.Errorf("wrote %s", Bytes())
				}
			}()
			f()
		})
	}
}
