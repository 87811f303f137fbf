package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Type is the type of a metadata value: gguf_metadata_value_type of the format.
type Type uint32

// The value types.
const (
	TypeUint8 Type = iota
	TypeInt8
	TypeUint16
	TypeInt16
	TypeUint32
	TypeInt32
	TypeFloat32
	TypeBool
	TypeString
	TypeArray
	TypeUint64
	TypeInt64
	TypeFloat64

	typeCount
)

// types gives each type's name and encoded size. The size is 0 if it varies.
var types = [typeCount]struct {
	name string
	size int
}{
	TypeUint8:   {"u8", 1},
	TypeInt8:    {"i8", 1},
	TypeUint16:  {"u16", 2},
	TypeInt16:   {"i16", 2},
	TypeUint32:  {"u32", 4},
	TypeInt32:   {"i32", 4},
	TypeFloat32: {"f32", 4},
	TypeBool:    {"bool", 1},
	TypeString:  {"str", 0},
	TypeArray:   {"arr", 0},
	TypeUint64:  {"u64", 8},
	TypeInt64:   {"i64", 8},
	TypeFloat64: {"f64", 8},
}

// String returns ggml's name of t, such as "u32".
func (t Type) String() string {
	if t >= typeCount {
		return "type(" + strconv.FormatUint(uint64(t), 10) + ")"
	}
	return types[t].name
}

func (t Type) isUnsigned() bool {
	return t == TypeUint8 || t == TypeUint16 || t == TypeUint32 || t == TypeUint64
}

func (t Type) isInteger() bool {
	return t.isUnsigned() || t == TypeInt8 || t == TypeInt16 || t == TypeInt32 || t == TypeInt64
}

func (t Type) isFloat() bool { return t == TypeFloat32 || t == TypeFloat64 }

// Value is a metadata value. It is immutable and stays valid after its file is closed.
// [Metadata.Value], [NewValue] and [NewArray] return Values; the zero Value is not valid.
// Two Values of the same type and content are equal with ==.
type Value struct {
	typ  Type
	elem Type // type of an array's elements; equal to typ for a scalar
	n    int  // number of an array's elements; 1 for a scalar
	raw  string
}

// Scalar lists the Go types of metadata values and of the elements of arrays.
type Scalar interface {
	uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64 | float32 | float64 | bool | string
}

// NewValue returns v as a metadata value of the GGUF type that corresponds to T.
func NewValue[T Scalar](v T) Value {
	t := typeOf[T]()
	return Value{typ: t, elem: t, n: 1, raw: string(appendScalars(nil, []T{v}))}
}

// NewArray returns a copy of s as a metadata array of the GGUF type that corresponds to T.
func NewArray[T Scalar](s []T) Value {
	return Value{typ: TypeArray, elem: typeOf[T](), n: len(s), raw: string(appendScalars(nil, s))}
}

func typeOf[T Scalar]() Type {
	switch any(*new(T)).(type) {
	case uint8:
		return TypeUint8
	case int8:
		return TypeInt8
	case uint16:
		return TypeUint16
	case int16:
		return TypeInt16
	case uint32:
		return TypeUint32
	case int32:
		return TypeInt32
	case uint64:
		return TypeUint64
	case int64:
		return TypeInt64
	case float32:
		return TypeFloat32
	case float64:
		return TypeFloat64
	case bool:
		return TypeBool
	}
	return TypeString
}

// appendScalars appends the file encoding of s, without type or length.
func appendScalars[T Scalar](b []byte, s []T) []byte {
	if strs, ok := any(s).([]string); ok {
		for _, x := range strs {
			b = appendString(b, x)
		}
		return b
	}
	b, err := binary.Append(b, binary.LittleEndian, s)
	if err != nil {
		panic(fmt.Sprintf("gguf: encoding a slice of %T: %v", *new(T), err))
	}
	return b
}

func appendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(len(s)))
	return append(b, s...)
}

// valid reports whether v is not the zero Value.
func (v Value) valid() bool { return v != Value{} }

// append appends the file encoding of v: its type and its content.
func (v Value) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(v.typ))
	if v.typ == TypeArray {
		b = binary.LittleEndian.AppendUint32(b, uint32(v.elem))
		b = binary.LittleEndian.AppendUint64(b, uint64(v.n))
	}
	return append(b, v.raw...)
}

// Type returns the value's type.
func (v Value) Type() Type { return v.typ }

// Elem returns the type of an array's elements, or the value's own type if v is not an
// array.
func (v Value) Elem() Type { return v.elem }

// Len returns the number of an array's elements, or 1 if v is not an array.
func (v Value) Len() int { return v.n }

// Interface returns v as the corresponding Go type: uint8 to int64, float32, float64, bool,
// string, or a slice of one of these.
func (v Value) Interface() any {
	switch v.elem {
	case TypeUint8:
		return decode(v, func(i int) uint8 { return v.raw[i] })
	case TypeInt8:
		return decode(v, func(i int) int8 { return int8(v.raw[i]) })
	case TypeUint16:
		return decode(v, func(i int) uint16 { return uint16(v.bits(i)) })
	case TypeInt16:
		return decode(v, func(i int) int16 { return int16(v.bits(i)) })
	case TypeUint32:
		return decode(v, func(i int) uint32 { return uint32(v.bits(i)) })
	case TypeInt32:
		return decode(v, func(i int) int32 { return int32(v.bits(i)) })
	case TypeUint64:
		return decode(v, v.bits)
	case TypeInt64:
		return decode(v, func(i int) int64 { return int64(v.bits(i)) })
	case TypeFloat32:
		return decode(v, func(i int) float32 { return math.Float32frombits(uint32(v.bits(i))) })
	case TypeFloat64:
		return decode(v, v.float)
	case TypeBool:
		return decode(v, func(i int) bool { return v.raw[i] != 0 })
	case TypeString:
		s := v.strings(v.n)
		if v.typ != TypeArray {
			return s[0]
		}
		return s
	}
	panic(fmt.Sprintf("gguf: a Value of the invalid type %s", v.elem))
}

// decode returns the results of at for the elements of v: a slice for an array, the only
// element otherwise.
func decode[T any](v Value, at func(i int) T) any {
	if v.typ != TypeArray {
		return at(0)
	}
	s := make([]T, v.n)
	for i := range s {
		s[i] = at(i)
	}
	return s
}

// String formats v: numbers in decimal, strings quoted in full, and a long array as its
// length and first elements.
func (v Value) String() string { return v.render(6, strconv.Quote) }

// brief is [Value.String] with a bounded length, for error messages.
func (v Value) brief() string { return v.render(1, quote) }

// render formats v with at most the first shown elements of an array, and quotes strings
// with quote.
func (v Value) render(shown int, quote func(string) string) string {
	var b strings.Builder
	if v.typ != TypeArray {
		v.format(&b, 1, quote)
		return b.String()
	}
	fmt.Fprintf(&b, "[%d]%s{", v.n, v.elem)
	v.format(&b, min(v.n, shown), quote)
	if v.n > shown {
		b.WriteString(", ...")
	}
	b.WriteByte('}')
	return b.String()
}

// format appends the first n elements.
func (v Value) format(b *strings.Builder, n int, quote func(string) string) {
	var strs []string
	if v.elem == TypeString {
		strs = v.strings(n)
	}
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		switch {
		case v.elem == TypeString:
			b.WriteString(quote(strs[i]))
		case v.elem == TypeBool:
			b.WriteString(strconv.FormatBool(v.raw[i] != 0))
		case v.elem == TypeFloat32:
			b.WriteString(strconv.FormatFloat(v.float(i), 'g', -1, 32))
		case v.elem == TypeFloat64:
			b.WriteString(strconv.FormatFloat(v.float(i), 'g', -1, 64))
		case v.elem.isUnsigned():
			b.WriteString(strconv.FormatUint(v.bits(i), 10))
		default:
			b.WriteString(strconv.FormatInt(int64(v.bits(i)), 10))
		}
	}
}

// describe names v's type for an error message.
func (v Value) describe() string {
	if v.typ == TypeArray {
		return "arr of " + v.elem.String()
	}
	return v.typ.String()
}

// bits returns element i of an integer value, sign-extended to 64 bits if its type is
// signed.
func (v Value) bits(i int) uint64 {
	size := types[v.elem].size
	var b [8]byte
	copy(b[:], v.raw[i*size:(i+1)*size])
	u := binary.LittleEndian.Uint64(b[:])
	switch v.elem {
	case TypeInt8:
		return uint64(int8(u))
	case TypeInt16:
		return uint64(int16(u))
	case TypeInt32:
		return uint64(int32(u))
	}
	return u
}

// float returns element i of an f32 or f64 value.
func (v Value) float(i int) float64 {
	if v.elem == TypeFloat32 {
		return float64(math.Float32frombits(uint32(v.bits(i))))
	}
	return math.Float64frombits(v.bits(i))
}

// strings returns the first n elements of a str value. They share the bytes of v.
func (v Value) strings(n int) []string {
	s := make([]string, n)
	raw := v.raw
	for i := range s {
		var b [8]byte
		copy(b[:], raw)
		end := minStringSize + int(binary.LittleEndian.Uint64(b[:]))
		s[i], raw = raw[minStringSize:end], raw[end:]
	}
	return s
}

// readValue reads the type and the encoding of the value of key.
func (r *reader) readValue(key string) (Value, error) {
	what := "value of key " + quote(key)
	t, err := r.u32(what)
	if err != nil {
		return Value{}, err
	}
	v := Value{typ: Type(t), elem: Type(t), n: 1}
	if v.typ == TypeArray {
		if t, err = r.u32(what); err != nil {
			return Value{}, err
		}
		v.elem = Type(t)
		n, err := r.u64(what)
		if err != nil {
			return Value{}, err
		}
		if v.elem == TypeArray {
			return Value{}, malformed("%s is an array of arrays", what)
		}
		if n > uint64(r.remaining()) { // every element takes at least one byte
			return Value{}, malformed("%s has %d elements, the file has %d bytes left", what, n, r.remaining())
		}
		v.n = int(n)
	}
	if v.elem >= typeCount {
		return Value{}, malformed("%s has type %d, known are 0 to %d", what, v.elem, typeCount-1)
	}

	start := r.off
	if v.elem == TypeString {
		for range v.n {
			if _, err := r.str(what); err != nil {
				return Value{}, err
			}
		}
	} else if _, err := r.take(uint64(v.n)*uint64(types[v.elem].size), what); err != nil {
		return Value{}, err
	}
	v.raw = string(r.data[start:r.off])

	if v.elem == TypeBool {
		for i := range v.n {
			if v.raw[i] > 1 {
				return Value{}, malformed("%s holds a bool of %d, neither 0 nor 1", what, v.raw[i])
			}
		}
	}
	return v, nil
}
