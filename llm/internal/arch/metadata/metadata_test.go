package metadata

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/gguf"
)

var errBad = errors.New("bad file")

// reader returns a reader of a file of the architecture arch with the given pairs of key, without
// the architecture, and value.
func reader(t *testing.T, arch string, pairs ...any) *Reader {
	t.Helper()
	var image bytes.Buffer
	w := gguf.NewWriter(&image)
	err := w.Set("general.architecture", gguf.NewValue(arch))
	for i := 0; i < len(pairs); i += 2 {
		err = errors.Join(err, w.Set(arch+"."+pairs[i].(string), pairs[i+1].(gguf.Value)))
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(image.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	r, err := NewReader(&f.Metadata, errBad)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Each method accepts the values that its comment allows, in an unknown architecture. Otherwise
// the error names the key.
func TestReader(t *testing.T) {
	const limit = 100
	size := func(def int) func(*Reader) []int {
		return func(r *Reader) []int { return []int{r.Size("key", def, limit)} }
	}
	count := func(def int) func(*Reader) []int {
		return func(r *Reader) []int { return []int{r.Count("key", def, limit)} }
	}
	first := func(def int) func(*Reader) []int {
		return func(r *Reader) []int { return []int{r.First("key", def, limit)} }
	}
	perBlock := func(r *Reader) []int { return r.PerBlock("key", 0, limit, 3) }
	none := gguf.Value{}
	u32, i32 := func(n uint32) gguf.Value { return gguf.NewValue(n) }, func(n ...int32) gguf.Value { return gguf.NewArray(n) }
	for _, tc := range []struct {
		name  string
		read  func(*Reader) []int
		value gguf.Value
		want  []int
		says  string // part of the error; empty if there is none
	}{
		{"size", size(0), u32(100), []int{100}, ""},
		{"size of 0", size(0), u32(0), []int{1}, "x.key is 0, want 1 to 100"},
		{"size of 0 with a default", size(7), u32(0), []int{1}, "x.key is 0, want 1 to 100"},
		{"size over the limit", size(0), u32(101), []int{1}, "x.key is 101, want 1 to 100"},
		{"huge size", size(0), gguf.NewValue(uint64(math.MaxUint64)), []int{1}, "x.key"},
		{"default of a size", size(7), none, []int{7}, ""},
		{"no size", size(0), none, []int{1}, "x.key"},
		{"size in words", size(7), gguf.NewValue("7"), []int{1}, "x.key"},
		{"size in an array", size(7), i32(7), []int{1}, "x.key"},

		{"count of 0", count(7), u32(0), []int{0}, ""},
		{"negative count", count(7), gguf.NewValue(int32(-1)), []int{0}, "x.key is -1, want 0 to 100"},
		{"default of a count", count(0), none, []int{0}, ""},
		{"no count", count(-1), none, []int{0}, "x.key"},

		{"one number for the blocks", perBlock, u32(7), []int{7, 7, 7}, ""},
		{"0 for the blocks", perBlock, u32(0), []int{1, 1, 1}, "x.key is 0, want 1 to 100"},
		{"a number for each block", perBlock, i32(7, 0, 100), []int{7, 0, 100}, ""},
		{"too few numbers", perBlock, i32(7, 7), nil, "x.key has 2 entries, want one for each of 3 blocks"},
		{"too many numbers", perBlock, i32(7, 7, 7, 7), nil, "x.key has 4 entries"},
		{"a number over the limit", perBlock, i32(7, 101, 7), nil, "x.key[1] is 101, want 0 to 100"},
		{"a negative number", perBlock, i32(7, 7, -1), nil, "x.key[2] is -1"},
		{"numbers in words", perBlock, gguf.NewArray([]string{"7", "7", "7"}), nil, "x.key"},
		{"fractions", perBlock, gguf.NewArray([]float32{7, 7, 7}), nil, "x.key"},
		{"flags", perBlock, gguf.NewArray([]bool{true, true, true}), nil, "x.key"},

		{"first of one", first(0), u32(7), []int{7}, ""},
		{"first of many", first(0), i32(7, -1), []int{7}, ""},
		{"first of 0", first(5), i32(0), []int{0}, ""},
		{"first of none", first(0), i32(), []int{0}, "x.key is an empty array"},
		{"negative first", first(0), i32(-1), []int{0}, "x.key[0] is -1, want 0 to 100"},
		{"default of a first", first(5), none, []int{5}, ""},
		{"no first", first(-1), none, []int{0}, "x.key"},
		{"first in words", first(0), gguf.NewArray([]string{"7"}), []int{0}, "x.key"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var pairs []any
			if tc.value != none {
				pairs = []any{"key", tc.value}
			}
			r := reader(t, "x", pairs...)
			got := tc.read(r)
			if tc.want != nil && !slices.Equal(got, tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
			if tc.says == "" {
				if r.Err() != nil {
					t.Error(r.Err())
				}
				return
			}
			if err := r.Err(); !errors.Is(err, errBad) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %v, want one of the reader's that says %q", err, tc.says)
			}
		})
	}
}

// Number and Needed accept finite numbers from their lower bound on.
func TestNumber(t *testing.T) {
	for _, tc := range []struct {
		value gguf.Value
		want  float64
		ok    bool
	}{
		{gguf.NewValue(float32(0.5)), 0.5, true},
		{gguf.NewValue(0.5), 0.5, true},
		{gguf.NewValue(float32(0.25)), 0.5, false},
		{gguf.NewValue(float32(math.NaN())), 0.5, false},
		{gguf.NewValue(math.Inf(1)), 0.5, false},
		{gguf.NewValue(2 * math.MaxFloat32), 0.5, false},
		{gguf.NewValue(uint32(1)), 0.5, false},
	} {
		r := reader(t, "x", "key", tc.value)
		got := r.Number("key", 3, 0.5)
		if got != tc.want || (r.Err() == nil) != tc.ok {
			t.Errorf("%v: %v, %v; want %v", tc.value, got, r.Err(), tc.want)
		}
		if err := r.Err(); err != nil && (!errors.Is(err, errBad) || !strings.Contains(err.Error(), "x.key")) {
			t.Errorf("%v: error %v", tc.value, err)
		}
	}
	r := reader(t, "x")
	if got := r.Number("key", 0.1, 0.5); got != 0.1 || r.Err() != nil {
		t.Errorf("no number: %v, %v, want the default as it is", got, r.Err())
	}
	if got := r.Needed("key", 0.5); got != 0.5 || !errors.Is(r.Err(), gguf.ErrNoKey) {
		t.Errorf("no number that is needed: %v, %v", got, r.Err())
	}
}

func TestText(t *testing.T) {
	r := reader(t, "x", "key", gguf.NewValue("text"), "other", gguf.NewValue(uint32(1)))
	if got := r.Text("key", "none"); got != "text" || r.Err() != nil {
		t.Errorf("%q, %v", got, r.Err())
	}
	if got := r.Text("nothing", "none"); got != "none" || r.Err() != nil {
		t.Errorf("no text: %q, %v", got, r.Err())
	}
	if got := r.Text("other", "none"); got != "none" || !errors.Is(r.Err(), errBad) {
		t.Errorf("a number: %q, %v", got, r.Err())
	}
}

// A reader keeps its first error.
func TestFirstError(t *testing.T) {
	r := reader(t, "x", "one", gguf.NewValue("1"), "two", gguf.NewValue("2"))
	r.Size("one", 0, 10)
	r.Size("two", 0, 10)
	r.Fail(errors.New("three"))
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "x.one") {
		t.Errorf("error %v, want that of x.one", err)
	}
}

// NewReader fails if general.architecture is missing or is not a string.
func TestNoArchitecture(t *testing.T) {
	for name, v := range map[string]gguf.Value{"none": {}, "a number": gguf.NewValue(uint32(1))} {
		var image bytes.Buffer
		w := gguf.NewWriter(&image)
		if v != (gguf.Value{}) {
			if err := w.Set("general.architecture", v); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		f, err := gguf.Parse(image.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewReader(&f.Metadata, errBad); !errors.Is(err, errBad) || !strings.Contains(err.Error(), "general.architecture") {
			t.Errorf("%s: error %v", name, err)
		}
		f.Close()
	}
}

// Errors name keys. An architecture with control characters is quoted, and a long one is
// shortened.
func TestKeysAreQuoted(t *testing.T) {
	if got := reader(t, "x").Key("key"); got != "x.key" {
		t.Errorf("key %s", got)
	}
	for _, arch := range []string{"\x1b[2J", "a\nb", strings.Repeat("k", 1000)} {
		r := reader(t, arch, "key", gguf.NewValue(int32(-1)))
		r.Count("key", 0, 10)
		if err := r.Err(); err == nil || strings.ContainsAny(err.Error(), "\x1b\n") || len(err.Error()) > 200 {
			t.Errorf("error %q", err)
		}
	}
}
