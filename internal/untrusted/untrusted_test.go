package untrusted_test

import (
	"strings"
	"testing"

	"github.com/fucina-go/fucina/internal/untrusted"
)

func TestQuoteAndName(t *testing.T) {
	long := strings.Repeat("a", 80)
	for _, tt := range []struct{ s, quoted, name string }{
		{"llama.block_count", `"llama.block_count"`, "llama.block_count"},
		{"", `""`, ""},
		{"a\nb", `"a\nb"`, `"a\nb"`},
		{"\x1b[2J", `"\x1b[2J"`, `"\x1b[2J"`},
		{`a"b`, `"a\"b"`, `"a\"b"`},
		{long, `"` + long + `"`, long},
		{long + "b", `"` + long + `"...`, `"` + long + `"...`},
	} {
		if got := untrusted.Quote(tt.s); got != tt.quoted {
			t.Errorf("Quote(%q) = %s, want %s", tt.s, got, tt.quoted)
		}
		if got := untrusted.Name(tt.s); got != tt.name {
			t.Errorf("Name(%q) = %s, want %s", tt.s, got, tt.name)
		}
	}
}
