//go:build amd64 && !noasm

package simd

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// evex matches what the assembler encodes with EVEX: zmm, masks, the registers from 16 on, broadcasts
// of operands and of general registers, and instructions that exist in no other form.
var evex = regexp.MustCompile(`\bZ\d|\bK[0-7]\b|\b[XY](1[6-9]|2\d|3[01])\b|\.(BCST|Z)\b|VPBROADCAST[BWDQ]\s+(R\d+|[A-DS][XIL]|BP),|` +
	`\bV(P(AND|ANDN|OR|XOR)[DQ]|MOVDQ[AU](8|16|32|64)|PTERNLOG.|PDP(BUSD|WSSD)S?|P?BLENDM..?|PRO[LR]V?[DQ]|PERM[BW]|PERM[IT]2.+|PSRAV?Q|PMULLQ|PMULTISHIFTQB|` +
	`PMOV(U?S)?[WDQ][BWD]|PMOV.2M|PMOVM2.|PTESTN?M.|PCMPU?[BWDQ]|P(ABS|MAX[SU]|MIN[SU])Q|PSLLVW|PSR[LA]VW|PSH[LR]D.+|GF2P8.+|ALIGN[DQ]|PCOMPRESS.|PEXPAND.|` +
	`(INSERT|EXTRACT|BROADCAST)[FI](32|64)X[248]|SHUF[FI](32|64)X[24]|RANGE..|REDUCE..|GETEXP..|GETMANT..|RNDSCALE..|SCALEF..|CVT.*U(DQ|QQ).*|CVT.*QQ.*)\s`)

// The functions for processors without AVX-512 have VEX instructions only.
func TestVEX(t *testing.T) {
	text, err := os.ReadFile("simd_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	name, functions, others := "", 0, 0
	seen := make(map[string]bool) // the matches of lines, which repeat
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "TEXT ·"); ok {
			name, _, _ = strings.Cut(rest, "(")
			if vexOnly(name) {
				functions++
			}
		}
		line, _, _ = strings.Cut(line, "//")
		if !strings.HasPrefix(line, "\t") {
			continue
		}
		found, ok := seen[line]
		if !ok {
			found = evex.MatchString(line)
			seen[line] = found
		}
		if !found {
			continue
		}
		if vexOnly(name) {
			t.Errorf("%s: %s", name, strings.TrimSpace(line))
		}
		others++
	}
	if functions < 10 || others < 10 {
		t.Errorf("%d functions of AVX2, and %d EVEX instructions of others", functions, others)
	}
}

func vexOnly(name string) bool {
	return strings.HasSuffix(name, "AVX2") || strings.HasSuffix(name, "AVXVNNI")
}
