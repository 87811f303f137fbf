package gguf_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/tests/ggufbuild"
)

func parseSample(t *testing.T) *gguf.File {
	t.Helper()
	f, err := gguf.Parse(sample())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestValues(t *testing.T) {
	f := parseSample(t)
	for _, tt := range []struct {
		key  string
		typ  gguf.Type
		elem gguf.Type
		want any
		text string
	}{
		{"u8", gguf.TypeUint8, gguf.TypeUint8, uint8(math.MaxUint8), "255"},
		{"i8", gguf.TypeInt8, gguf.TypeInt8, int8(math.MinInt8), "-128"},
		{"u16", gguf.TypeUint16, gguf.TypeUint16, uint16(math.MaxUint16), "65535"},
		{"i16", gguf.TypeInt16, gguf.TypeInt16, int16(math.MinInt16), "-32768"},
		{"u32", gguf.TypeUint32, gguf.TypeUint32, uint32(math.MaxUint32), "4294967295"},
		{"i32", gguf.TypeInt32, gguf.TypeInt32, int32(math.MinInt32), "-2147483648"},
		{"u64", gguf.TypeUint64, gguf.TypeUint64, uint64(math.MaxUint64), "18446744073709551615"},
		{"i64", gguf.TypeInt64, gguf.TypeInt64, int64(math.MinInt64), "-9223372036854775808"},
		{"f32", gguf.TypeFloat32, gguf.TypeFloat32, float32(1.5), "1.5"},
		{"f64", gguf.TypeFloat64, gguf.TypeFloat64, math.Pi, "3.141592653589793"},
		{"true", gguf.TypeBool, gguf.TypeBool, true, "true"},
		{"false", gguf.TypeBool, gguf.TypeBool, false, "false"},
		{"str", gguf.TypeString, gguf.TypeString, "forge\n", `"forge\n"`},
		{"str.empty", gguf.TypeString, gguf.TypeString, "", `""`},
		{"strs", gguf.TypeArray, gguf.TypeString, []string{"a", "", "\xff\x00"}, `[3]str{"a", "", "\xff\x00"}`},
		{"strs.empty", gguf.TypeArray, gguf.TypeString, []string{}, "[0]str{}"},
		{"i32s", gguf.TypeArray, gguf.TypeInt32, []int32{-1, 0, 1}, "[3]i32{-1, 0, 1}"},
		{"u32s", gguf.TypeArray, gguf.TypeUint32, []uint32{0, math.MaxUint32}, "[2]u32{0, 4294967295}"},
		{"u64s", gguf.TypeArray, gguf.TypeUint64, []uint64{1, math.MaxUint64}, "[2]u64{1, 18446744073709551615}"},
		{"f32s", gguf.TypeArray, gguf.TypeFloat32, []float32{1, 2, 3, 4, 5, 6, 7.25}, "[7]f32{1, 2, 3, 4, 5, 6, ...}"},
		{"f64s", gguf.TypeArray, gguf.TypeFloat64, []float64{math.Inf(1)}, "[1]f64{+Inf}"},
		{"bools", gguf.TypeArray, gguf.TypeBool, []bool{true, false}, "[2]bool{true, false}"},
	} {
		v, ok := f.Value(tt.key)
		if !ok || v.Type() != tt.typ || v.Elem() != tt.elem {
			t.Errorf("%s: present %v, type %s of %s", tt.key, ok, v.Type(), v.Elem())
			continue
		}
		if got := v.Interface(); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s = %#v, want %#v", tt.key, got, tt.want)
		}
		if v.String() != tt.text {
			t.Errorf("%s is printed as %s, want %s", tt.key, v, tt.text)
		}
		n := 1
		if tt.typ == gguf.TypeArray {
			n = reflect.ValueOf(tt.want).Len()
		}
		if v.Len() != n {
			t.Errorf("%s: Len() = %d, want %d", tt.key, v.Len(), n)
		}
	}
	if keys := f.Keys(); len(keys) != 22 || keys[0] != "u8" || keys[21] != "bools" {
		t.Errorf("keys %v", keys)
	}
	if got := gguf.Type(99).String(); got != "type(99)" {
		t.Errorf("unknown type is printed as %s", got)
	}
}

func TestGetters(t *testing.T) {
	f := parseSample(t)
	get := func(v any, err error) []any { return []any{v, err} }
	for _, tt := range []struct {
		name string
		got  []any
		want any
		is   error
		text string
	}{
		{"uint u8", get(f.Uint("u8")), uint64(255), nil, ""},
		{"uint u64", get(f.Uint("u64")), uint64(math.MaxUint64), nil, ""},
		{"uint i8", get(f.Uint("i8")), uint64(0), gguf.ErrValueRange, `key "i8" is -128 (i8), want an unsigned integer`},
		{"uint f32", get(f.Uint("f32")), uint64(0), gguf.ErrValueType, `key "f32" is f32, want unsigned integer`},
		{"int u32", get(f.Int("u32")), int64(math.MaxUint32), nil, ""},
		{"int i16", get(f.Int("i16")), int64(math.MinInt16), nil, ""},
		{"int i64", get(f.Int("i64")), int64(math.MinInt64), nil, ""},
		{"int u64", get(f.Int("u64")), int64(0), gguf.ErrValueRange, `key "u64" holds 18446744073709551615 (u64)`},
		{"int bool", get(f.Int("true")), int64(0), gguf.ErrValueType, "is bool, want integer"},
		{"int array", get(f.Int("i32s")), int64(0), gguf.ErrValueType, "is arr of i32, want integer"},
		{"int absent", get(f.Int("no")), int64(0), gguf.ErrNoKey, `"no", want integer`},
		{"float f32", get(f.Float("f32")), 1.5, nil, ""},
		{"float f64", get(f.Float("f64")), math.Pi, nil, ""},
		{"float i32", get(f.Float("i32")), 0.0, gguf.ErrValueType, "is i32, want float"},
		{"bool", get(f.Bool("true")), true, nil, ""},
		{"bool u8", get(f.Bool("u8")), false, gguf.ErrValueType, "is u8, want bool"},
		{"string", get(f.String("str")), "forge\n", nil, ""},
		{"string empty", get(f.String("str.empty")), "", nil, ""},
		{"string u8", get(f.String("u8")), "", gguf.ErrValueType, "is u8, want str"},
		{"strings", get(f.Strings("strs")), []string{"a", "", "\xff\x00"}, nil, ""},
		{"strings none", get(f.Strings("strs.empty")), []string{}, nil, ""},
		{"strings of one", get(f.Strings("str")), []string(nil), gguf.ErrValueType, "is str, want arr of str"},
		{"ints i32", get(f.Ints("i32s")), []int64{-1, 0, 1}, nil, ""},
		{"ints u32", get(f.Ints("u32s")), []int64{0, math.MaxUint32}, nil, ""},
		{"ints u64", get(f.Ints("u64s")), []int64(nil), gguf.ErrValueRange, "18446744073709551615"},
		{"ints f32", get(f.Ints("f32s")), []int64(nil), gguf.ErrValueType, "is arr of f32, want arr of integer"},
		{"floats f32", get(f.Floats("f32s")), []float64{1, 2, 3, 4, 5, 6, 7.25}, nil, ""},
		{"floats f64", get(f.Floats("f64s")), []float64{math.Inf(1)}, nil, ""},
		{"floats absent", get(f.Floats("no")), []float64(nil), gguf.ErrNoKey, `"no", want arr of float`},

		{"uint or", get(f.UintOr("no", 7)), uint64(7), nil, ""},
		{"int or", get(f.IntOr("no", -7)), int64(-7), nil, ""},
		{"float or", get(f.FloatOr("no", 0.5)), 0.5, nil, ""},
		{"bool or", get(f.BoolOr("no", true)), true, nil, ""},
		{"string or", get(f.StringOr("no", "x")), "x", nil, ""},
		{"or with a value", get(f.UintOr("u8", 7)), uint64(255), nil, ""},
		{"or with a wrong type", get(f.UintOr("str", 7)), uint64(0), gguf.ErrValueType, "is str"},
	} {
		err, _ := tt.got[1].(error)
		if !reflect.DeepEqual(tt.got[0], tt.want) || !errors.Is(err, tt.is) {
			t.Errorf("%s: %#v, %v, want %#v, %v", tt.name, tt.got[0], err, tt.want, tt.is)
		}
		if tt.is != nil && !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: error %q, want %q in it", tt.name, err, tt.text)
		}
	}
}

func TestPairErrors(t *testing.T) {
	for _, tt := range []struct {
		name  string
		build func(*ggufbuild.Builder)
		want  string
	}{
		{"repeated key", func(b *ggufbuild.Builder) { b.SetBool("k", true); b.SetUint8("k", 1) }, `key 1 repeats "k"`},
		{"empty key", func(b *ggufbuild.Builder) { b.SetUint32("", 1) }, "key 0 is empty"},
		{"NUL in a key", func(b *ggufbuild.Builder) { b.SetBool("k\x00", true) }, "NUL"},
		{"key of 65536", func(b *ggufbuild.Builder) { b.SetBool(strings.Repeat("k", 65536), true) }, "65536 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b ggufbuild.Builder
			tt.build(&b)
			_, err := gguf.Parse(b.Bytes())
			if !errors.Is(err, gguf.ErrMalformed) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
	var b ggufbuild.Builder
	b.SetBool(strings.Repeat("k", 65535), true)
	b.SetBools("bools", []bool{true})
	image := b.Bytes()
	if _, err := gguf.Parse(image); err != nil {
		t.Error(err)
	}
	image[len(image)-1] = 2
	if _, err := gguf.Parse(image); !strings.Contains(fmt.Sprint(err), "bool of 2") {
		t.Errorf("bool 2 in an array: error %v", err)
	}
}

// An error message shows a hostile key escaped and truncated.
func TestErrorsQuoteNames(t *testing.T) {
	var b ggufbuild.Builder
	key := "\x1b[2J\n" + strings.Repeat("k", 1000)
	b.SetBool(key, true)
	b.SetBool(key, true)
	_, err := gguf.Parse(b.Bytes())
	if err == nil || strings.ContainsAny(err.Error(), "\x1b\n") || len(err.Error()) > 200 {
		t.Errorf("error %q", err)
	}

	// Values are escaped and truncated too.
	long := strings.Repeat("\x1b", 1000)
	for name, values := range map[string][2]gguf.Value{
		"strings": {gguf.NewValue(long + "a"), gguf.NewValue(long + "b")},
		"arrays":  {gguf.NewArray([]string{long, long, "a"}), gguf.NewArray([]string{long, long, "b"})},
		"mixed":   {gguf.NewValue(long), gguf.NewArray(make([]float64, 1000))},
	} {
		parts := make([][]byte, 2)
		for no, v := range values {
			var out bytes.Buffer
			w := gguf.NewWriter(&out)
			err := errors.Join(
				w.Set("split.no", gguf.NewValue(uint16(no))),
				w.Set("split.count", gguf.NewValue(uint16(2))),
				w.Set("general.name", v),
				w.Close())
			if err != nil {
				t.Fatal(err)
			}
			parts[no] = out.Bytes()
		}
		_, err := gguf.ParseSplit(parts...)
		if err == nil || !strings.Contains(err.Error(), `"general.name"`) || strings.ContainsAny(err.Error(), "\x1b\n") || len(err.Error()) > 1000 {
			t.Errorf("%s: error %q", name, err)
		}
	}
}
