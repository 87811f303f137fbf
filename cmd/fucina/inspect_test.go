package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/tests/ggufbuild"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// inspect accepts and refuses the same files as ggml, except for malformed files that ggml
// accepts and package gguf refuses. The tests of package gguf say why.
func TestInspectVerdicts(t *testing.T) {
	dir := filepath.Join("..", "..", "gguf", "testdata", "malformed")
	data, err := os.ReadFile(filepath.Join(dir, "verdicts.json"))
	if err != nil {
		t.Fatal(err)
	}
	var verdicts []struct {
		File     string `json:"file"`
		LlamaCPP string `json:"llama_cpp"`
	}
	if err := json.Unmarshal(data, &verdicts); err != nil {
		t.Fatal(err)
	}
	if len(verdicts) < 30 {
		t.Fatalf("%d verdicts", len(verdicts))
	}
	for _, v := range verdicts {
		for _, format := range []string{"text", "json"} {
			t.Run(v.File+"/"+format, func(t *testing.T) {
				r := invoke(t, "inspect", filepath.Join(dir, v.File), "-o", format)
				if v.LlamaCPP == "accept" && !strings.HasPrefix(v.File, "bad_") {
					r.ok(t)
					return
				}
				r.failed(t, exitError, v.File)
				if r.stdout != "" {
					t.Errorf("stdout %q", r.stdout)
				}
			})
		}
	}
}

func TestInspectErrors(t *testing.T) {
	dir := t.TempDir()
	invoke(t, "inspect", dir).failed(t, exitError, "regular file")
	invoke(t, "inspect", filepath.Join(dir, "absent")).failed(t, exitError, "absent")
}

// -m names the file, as in other commands.
func TestInspectModelFlag(t *testing.T) {
	model := tinyModel(t)
	if got, want := invoke(t, "inspect", "-m", model).ok(t), invoke(t, "inspect", model).ok(t); got != want {
		t.Errorf("-m FILE prints %q", got)
	}
}

func TestInspectJSON(t *testing.T) {
	model := tinyModel(t)
	out := invoke(t, "inspect", model, "-o", "json").ok(t)
	var object map[string]any
	decodeStrict(t, out, &object)
	keys(t, object, "file", "version", "alignment", "metadata", "tensors", "types", "elements", "bytes", "provider", "placement")
	keys(t, object["tensors"].([]any)[0].(map[string]any), "name", "dtype", "shape", "offset", "size")
	keys(t, object["types"].([]any)[0].(map[string]any), "dtype", "tensors", "elements", "bytes")

	var r inspection
	decodeStrict(t, out, &r)
	if r.File != "tiny.gguf" || r.Version != 3 || r.Alignment != 32 {
		t.Errorf("%q, version %d, alignment %d", r.File, r.Version, r.Alignment)
	}
	want := tinyllama.New(tinyllama.Options{}).Tensors
	if len(r.Tensors) != len(want) {
		t.Fatalf("%d tensors, want %d", len(r.Tensors), len(want))
	}
	image := tinyllama.GGUF(tinyllama.Options{})
	total := int64(0)
	for i, w := range want {
		g := r.Tensors[i]
		if string(g.Name) != w.Name || g.DType != w.DType.String() || !slices.Equal(g.Shape, w.Shape) || g.Size != int64(len(w.Data)) ||
			string(image[g.Offset:g.Offset+g.Size]) != string(w.Data) {
			t.Errorf("tensor %+v, want %s %s %v", g, w.Name, w.DType, w.Shape)
		}
		total += g.Size
	}
	if r.Bytes != total || r.Elements != total/4 || len(r.Types) != 1 || r.Types[0] != (typeTotal{"f32", len(want), total / 4, total}) {
		t.Errorf("%d elements, %d bytes, types %+v", r.Elements, r.Bytes, r.Types)
	}
	i := slices.IndexFunc(r.Metadata, func(m metadatum) bool { return m.Key == "tokenizer.ggml.tokens" })
	if i < 0 {
		t.Fatal("no tokens")
	}
	if m := r.Metadata[i]; m.Type != "arr[str]" || m.Length == nil || *m.Length <= shownElements || len(m.Value.([]any)) != shownElements {
		t.Errorf("tokens %+v, want %d of them", m, shownElements)
	}
}

// inspect prints values of every type, and escapes values that JSON cannot represent or a
// terminal would interpret.
func TestInspectValues(t *testing.T) {
	var b ggufbuild.Builder
	b.SetUint8("u8", 255)
	b.SetInt64("i64", math.MinInt64)
	b.SetUint64("u64", math.MaxUint64)
	b.SetBool("bool", true)
	b.SetFloat32("f32", 0.1)
	b.SetFloat32("nan", float32(math.NaN()))
	b.SetFloat64("inf", math.Inf(-1))
	b.SetFloat32s("floats", []float32{1, float32(math.Inf(1))})
	b.SetInt32s("none", nil)
	b.SetString("esc\x1b[31m", "\x1b]0;title\x07\n")
	b.SetString("bytes", "a\xff\x00")
	b.SetStrings("texts", []string{"a", "\xf0\x9f", ""})
	b.SetString("key \xff", "")
	b.SetString("long", strings.Repeat("<&è>", 1000))
	b.SetString(strings.Repeat("k", 5000), "")
	b.AddTensor("t\x1b\n", dtype.F32, []int{2, 1}, make([]byte, 8))
	b.AddTensor("h", dtype.F16, []int{8}, make([]byte, 16))
	path := filepath.Join(t.TempDir(), "v.gguf")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}

	var r struct {
		Metadata []struct {
			Key    jsonText
			Type   string
			Length *int
			Value  json.RawMessage
		}
	}
	out := invoke(t, "inspect", "-o", "json", path).ok(t)
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"u8":          `255`,
		"i64":         `-9223372036854775808`,
		"u64":         `18446744073709551615`,
		"bool":        `true`,
		"f32":         `0.1`,
		"nan":         `"NaN"`,
		"inf":         `"-Inf"`,
		"floats":      `[1,"+Inf"]`,
		"none":        `[]`,
		"esc\x1b[31m": `"\u001b]0;title\u0007\n"`,
		"bytes":       `[97,255,0]`,
		"texts":       `["a",[240,159],""]`,
		"long":        `"` + strings.Repeat("<&è>", 1000) + `"`,
	} {
		got := ""
		for _, m := range r.Metadata {
			if string(m.Key) == key {
				got = string(m.Value)
			}
		}
		if got != want {
			t.Errorf("%q is %s, want %s", key, got, want)
		}
	}

	text := invoke(t, "inspect", path).ok(t)
	for _, line := range strings.Split(text, "\n") {
		if !isPrintable(line) {
			t.Errorf("line %q", line)
		}
		if n := len([]rune(line)); n > 3*shownRunes {
			t.Errorf("a line of %d", n)
		}
	}
	for _, want := range []string{"esc\\x1b[31m", "t\\x1b\\n  f32", "[2 1]", "elements: 10 in 24 bytes", "f16  1 tensors  8 elements  16 bytes"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}
