package tags_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/tags"
)

func list(t *testing.T, s string) tags.List {
	t.Helper()
	l, err := tags.Of(strings.Fields(s)...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestOf(t *testing.T) {
	for _, tt := range []struct {
		names []string
		want  string
	}{
		{[]string{"a", "b", "a"}, `axis "a" appears twice`},
		{[]string{"a", ""}, "empty name"},
		{strings.Split("abcdefghi", ""), "9 axes, want at most 8"},
	} {
		if _, err := tags.Of(tt.names...); !errors.Is(err, tags.ErrTag) || err.Error() != tt.want {
			t.Errorf("%q: %v, want %s", tt.names, err, tt.want)
		}
	}
	l := list(t, "a b c")
	if l.Len() != 3 || l.At(1) != "b" || l.Index("c") != 2 || l.Index("d") != -1 || l.Index("") != -1 || l.String() != "{a b c}" {
		t.Errorf("list %v", l)
	}
	if got := l.Describe(shape.Must(2, 3, 4)); got != "{a:2 b:3 c:4}" {
		t.Errorf("described as %s", got)
	}
	var none tags.List
	if got := none.Describe(shape.Must(1)); got != "{}" || none.Len() != 0 {
		t.Errorf("a scalar is described as %s", got)
	}
}

// Lists with the same names are equal, even if they were made in different ways.
func TestRewrites(t *testing.T) {
	l := list(t, "a b c")
	if l.Without(1) != list(t, "a c") || l.Without(2) != list(t, "a b") || list(t, "a").Without(0) != (tags.List{}) {
		t.Error("without an axis")
	}
	if got, err := l.Renamed(1, "x"); err != nil || got != list(t, "a x c") {
		t.Errorf("renamed %v, %v", got, err)
	}
	if got, err := l.Renamed(1, "b"); err != nil || got != l {
		t.Errorf("renamed to itself %v, %v", got, err)
	}
	for name, want := range map[string]string{"a": `axis "a" appears twice`, "": "empty name"} {
		if _, err := l.Renamed(1, name); !errors.Is(err, tags.ErrTag) || err.Error() != want {
			t.Errorf("renamed to %q: %v, want %s", name, err, want)
		}
	}
	if got, err := list(t, "a b").Append("c"); err != nil || got != l {
		t.Errorf("appended %v, %v", got, err)
	}
	for _, tt := range []struct{ names, name, want string }{
		{"a b c", "a", `axis "a" appears twice`},
		{"z", "", "empty name"},
		{"a b c d e f g h", "i", "more than 8 axes"},
	} {
		if _, err := list(t, tt.names).Append(tt.name); !errors.Is(err, tags.ErrTag) || err.Error() != tt.want {
			t.Errorf("%q appended to %s: %v, want %s", tt.name, tt.names, err, tt.want)
		}
		l := list(t, tt.names)
		if err := l.Add(tt.name); err == nil || err.Error() != tt.want || l != list(t, tt.names) {
			t.Errorf("%q added to %s: %v, %v, want %s", tt.name, tt.names, l, err, tt.want)
		}
	}
}

func TestUnion(t *testing.T) {
	for _, tt := range []struct {
		left, right, union string // "" for a union that cannot be
	}{
		{"batch d", "d", "{batch d}"},
		{"d", "batch d", "{d batch}"},
		{"batch", "d", "{batch d}"},
		{"batch m k", "batch k n", "{batch m k n}"},
		{"m b2 b1 k", "n k b1 b2", "{m b2 b1 k n}"},
		{"d", "d", "{d}"},
		{"", "d", "{d}"},
		{"a b c d e f g k", "k h", "{a b c d e f g k h}"},
		{"a b c d e f g k", "k h i", ""},
	} {
		l, r := list(t, tt.left), list(t, tt.right)
		u, err := l.Union(&r)
		switch n := len(strings.Fields(tt.union)); {
		case n == 0 || n > shape.MaxRank:
			if !errors.Is(err, tags.ErrTag) {
				t.Errorf("union of %v and %v: %v, %v", l, r, u, err)
			}
		case err != nil || fmt.Sprint(u) != tt.union:
			t.Errorf("union of %v and %v: %v, %v", l, r, u, err)
		}
	}
}
