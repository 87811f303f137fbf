package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func mustList(t *testing.T, text string) []entry {
	t.Helper()
	list, err := parseList(text)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// events are the events of a run of three packages: one that passes with two skips, one with
// a failed subtest, and one that panics inside a test.
const events = `go: downloading nothing
{"Action":"start","Package":"github.com/fucina-go/fucina/a"}
{"Action":"run","Package":"github.com/fucina-go/fucina/a","Test":"TestQuiet"}
{"Action":"output","Package":"github.com/fucina-go/fucina/a","Test":"TestQuiet","Output":"=== RUN   TestQuiet\n"}
{"Action":"output","Package":"github.com/fucina-go/fucina/a","Test":"TestQuiet","Output":"    a_test.go:3: a log\n"}
{"Action":"output","Package":"github.com/fucina-go/fucina/a","Test":"TestQuiet","Output":"--- PASS: TestQuiet (0.00s)\n"}
{"Action":"pass","Package":"github.com/fucina-go/fucina/a","Test":"TestQuiet","Elapsed":0}
{"Action":"output","Package":"github.com/fucina-go/fucina/a","Test":"TestModel/big","Output":"=== RUN   TestModel/big\n"}
{"Action":"output","Package":"github.com/fucina-go/fucina/a","Test":"TestModel/big","Output":"    a_test.go:9: no model\n"}
{"Action":"output","Package":"github.com/fucina-go/fucina/a","Test":"TestModel/big","Output":"    --- SKIP: TestModel/big (0.00s)\n"}
{"Action":"skip","Package":"github.com/fucina-go/fucina/a","Test":"TestModel/big","Elapsed":0}
{"Action":"output","Package":"github.com/fucina-go/fucina/a","Test":"TestModel/small","Output":"    a_test.go:9: no model\n"}
{"Action":"skip","Package":"github.com/fucina-go/fucina/a","Test":"TestModel/small","Elapsed":0}
{"Action":"pass","Package":"github.com/fucina-go/fucina/a","Test":"TestModel","Elapsed":0}
{"Action":"output","Package":"github.com/fucina-go/fucina/a","Output":"PASS\n"}
{"Action":"output","Package":"github.com/fucina-go/fucina/a","Output":"ok  \tgithub.com/fucina-go/fucina/a\t0.003s\n"}
{"Action":"pass","Package":"github.com/fucina-go/fucina/a","Elapsed":0.003}
{"Action":"output","Package":"github.com/fucina-go/fucina/b","Test":"TestBad/sub","Output":"=== RUN   TestBad/sub\n"}
{"Action":"output","Package":"github.com/fucina-go/fucina/b","Test":"TestBad/sub","Output":"    b_test.go:5: bad\n"}
{"Action":"output","Package":"github.com/fucina-go/fucina/b","Test":"TestBad/sub","Output":"    --- FAIL: TestBad/sub (0.00s)\n"}
{"Action":"fail","Package":"github.com/fucina-go/fucina/b","Test":"TestBad/sub","Elapsed":0}
{"Action":"output","Package":"github.com/fucina-go/fucina/b","Output":"FAIL\n"}
{"Action":"output","Package":"github.com/fucina-go/fucina/b","Output":"FAIL\tgithub.com/fucina-go/fucina/b\t0.003s\n"}
{"Action":"fail","Package":"github.com/fucina-go/fucina/b","Elapsed":0.003}
{"Action":"output","Package":"github.com/fucina-go/fucina/c","Test":"TestRunning","Output":"panic: in a goroutine\n"}
{"Action":"output","Package":"github.com/fucina-go/fucina/c","Output":"FAIL\tgithub.com/fucina-go/fucina/c\t0.003s\n"}
{"Action":"fail","Package":"github.com/fucina-go/fucina/c","Elapsed":0.003}
{"Action":"output","Package":"github.com/fucina-go/fucina/d","Output":"?   \tgithub.com/fucina-go/fucina/d\t[no test files]\n"}
{"Action":"skip","Package":"github.com/fucina-go/fucina/d","Elapsed":0}
`

// The output is that of go test without -v, without the output of passed tests.
func TestReportPrints(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	if err := r.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	want := `go: downloading nothing
ok  	github.com/fucina-go/fucina/a	0.003s
    b_test.go:5: bad
    --- FAIL: TestBad/sub (0.00s)
FAIL
FAIL	github.com/fucina-go/fucina/b	0.003s
panic: in a goroutine
FAIL	github.com/fucina-go/fucina/c	0.003s
?   	github.com/fucina-go/fucina/d	[no test files]
`
	if out.String() != want {
		t.Errorf("prints\n%s\nwant\n%s", out.String(), want)
	}
}

func TestCompare(t *testing.T) {
	tests := []struct {
		name, list string
		facts      facts
		whole, ok  bool
		says       []string
	}{
		{"listed one by one", "a TestModel/big !shared # x\na TestModel/small !shared # x", facts{"linux": true}, true, true,
			[]string{"2 tests skipped (linux)\n  a TestModel/big: a_test.go:9: no model\n  a TestModel/small: a_test.go:9: no model\n"}},
		{"listed together", "# a remark\n\na TestModel/* !shared # x", facts{}, true, true,
			[]string{"  a TestModel/*, 2 tests: a_test.go:9: no model\n"}},
		{"one is new", "a TestModel/big !shared # x", facts{}, true, false,
			[]string{"  not in tests/skips.txt: a TestModel/small: a_test.go:9: no model\n", "add a line to tests/skips.txt"}},
		{"the condition does not hold", "a TestModel/* !shared # x", facts{"shared": true}, true, false,
			[]string{"not in tests/skips.txt: a TestModel/big"}},
		{"another package's", "b TestModel/* !shared # x", facts{}, false, false,
			[]string{"not in tests/skips.txt: a TestModel/big"}},
		{"a pattern ends at a slash", "a Test* !shared # x", facts{}, true, false,
			[]string{"not in tests/skips.txt: a TestModel/big"}},
		{"a test that is gone", "a TestModel/* race || !shared # x\na TestGone linux # x", facts{"linux": true}, true, false,
			[]string{"tests/skips.txt:2: no test TestGone in a"}},
		{"a test that was not asked for", "a TestModel/* !shared # x\na TestGone linux # x", facts{"linux": true}, false, true, nil},
		{"a test of another build", "a TestModel/* !shared # x\na TestGone race # x", facts{}, true, true, nil},
		{"a test of a package that did not run", "a TestModel/* !shared # x\ne TestGone linux # x", facts{"linux": true}, true, true, nil},
		{"a listed test that runs", "a TestModel/* !shared # x\na TestQuiet linux # x", facts{"linux": true}, true, true, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out)
			if err := r.read(strings.NewReader(events)); err != nil {
				t.Fatal(err)
			}
			out.Reset()
			if ok := r.compare(mustList(t, tt.list), tt.facts, tt.whole); ok != tt.ok {
				t.Errorf("allowed: %v, want %v", ok, tt.ok)
			}
			for _, want := range tt.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("prints\n%s\nwithout\n%s", out.String(), want)
				}
			}
		})
	}
}

func TestBadList(t *testing.T) {
	for _, line := range []string{
		"a # no test", "a TestX # no condition", "a TestX race", "a TestX race #", "a TestX race && # x", "a Test[ race # x",
	} {
		if _, err := parseList("\n" + line); err == nil || !strings.Contains(err.Error(), "tests/skips.txt:2: ") {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func TestFacts(t *testing.T) {
	root := filepath.Join(t.TempDir(), "module")
	env := map[string]string{"GOOS": "linux", "GOARCH": "arm64"}
	for _, tt := range []struct {
		args     string
		yes, no  []string
		selected bool
	}{
		{"./...", []string{"linux", "arm64"}, []string{"race", "short", "shared", "exec", "amd64"}, false},
		{"-race -tags=invariants,accel ./...", []string{"race", "invariants", "accel"}, []string{"short"}, false},
		{"--test.short -race=false -tags noasm -exec qemu .", []string{"short", "noasm", "exec"}, []string{"race"}, false},
		{"-run X ./quant", nil, nil, true},
		{"-skip=X ./quant", nil, nil, true},
	} {
		args := strings.Fields(tt.args)
		f := factsOf(args, root, env)
		for _, name := range tt.yes {
			if !f[name] {
				t.Errorf("%s: not %s", tt.args, name)
			}
		}
		for _, name := range tt.no {
			if f[name] {
				t.Errorf("%s: %s", tt.args, name)
			}
		}
		if selects(args) != tt.selected {
			t.Errorf("%s: selects tests: %v", tt.args, !tt.selected)
		}
	}
	if err := os.Mkdir(filepath.Join(filepath.Dir(root), "shared"), 0o700); err != nil {
		t.Fatal(err)
	}
	if f := factsOf(nil, root, env); !f["shared"] {
		t.Errorf("facts %q beside shared", f)
	}
	if s := (facts{"b": true, "a": true, "c": false}).String(); s != "a b" {
		t.Errorf("facts print as %q", s)
	}
}

// The exit status is that of go test, or 1 if only the list disagrees.
func TestStatus(t *testing.T) {
	t.Setenv("GOARCH", "") // if this test is emulated, it still runs the system's go command
	t.Setenv("GOFLAGS", "")
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":            "module " + module + "\n\ngo 1.26\n",
		"bad/bad_test.go":   "package bad\n\nfunc\n",
		"skip/skip_test.go": "package skip\n\nimport \"testing\"\n\nfunc TestSkips(t *testing.T) { t.Skip(\"no reason\") }\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "tests"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	for _, tt := range []struct {
		list, args string
		code       int
		says       string
	}{
		{"skip TestSkips !never # x", "./skip", 0, "ok  \t" + module + "/skip\t"},
		{"", "./skip", 1, "not in tests/skips.txt: skip TestSkips: skip_test.go:5: no reason"},
		{"", "./bad", 1, "FAIL\t" + module + "/bad [setup failed]"},
		{"", "./skip -tags", 2, ""},
		{"broken", "./skip", 1, ""},
	} {
		if err := os.WriteFile(filepath.Join(root, "tests", "skips.txt"), []byte(tt.list), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errOut strings.Builder
		code, err := run(strings.Fields(tt.args), &out, &errOut)
		if code != tt.code || !strings.Contains(out.String(), tt.says) {
			t.Errorf("%q with the list %q: status %d, %v, want %d; prints\n%s%s", tt.args, tt.list, code, err, tt.code, out.String(), errOut.String())
		}
	}
}
