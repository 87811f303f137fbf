package repo

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

const document = "Words.\n\n| a | b |\n| --- | --- |\n| `x` | 1 |\n|  | 2 |\n\n| a | c |\n| --- | --- |\n| 3 | 4 |\n"

func TestTable(t *testing.T) {
	for _, tt := range []struct {
		text   string
		header []string
		want   [][]string
		err    string
	}{
		{document, []string{"a", "b"}, [][]string{{"`x`", "1"}, {"", "2"}}, ""},
		{document, []string{"a", "c"}, [][]string{{"3", "4"}}, ""},
		{document, []string{"b", "a"}, nil, "no table"},
		{"| a |\n| --- |\n", []string{"a"}, nil, "no table"},
		{"| a |\n| --- |\n| b | c |\n", []string{"a"}, nil, "has 2 cells"},
	} {
		got, err := Table(tt.text, tt.header...)
		if tt.err == "" && (err != nil || !reflect.DeepEqual(got, tt.want)) {
			t.Errorf("%q: %q, %v, want %q", tt.header, got, err, tt.want)
		}
		if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%q: error %v, want one that says %q", tt.header, err, tt.err)
		}
	}
}

func TestCode(t *testing.T) {
	if got := Code("`a`, b, `c d` and `e"); !slices.Equal(got, []string{"a", "c d"}) {
		t.Errorf("spans %q", got)
	}
}

// Files returns the files of every build, and skips the same files as the go command.
func TestFiles(t *testing.T) {
	names := Files(t, ".go", ".s")
	for _, want := range []string{"doc.go", "tests/repo/repo_test.go", "residency/manager.go", "quant/encode_q4_amd64.s"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s", want)
		}
	}
	for _, name := range names {
		if strings.Contains(name, "testdata/") || strings.Contains(name, "/_asm/") {
			t.Errorf("%s is not a file of the module's packages", name)
		}
	}
}
