package gguf

import (
	"errors"
	"fmt"
	"iter"
	"math"
)

// Metadata is the typed key-value list of a file, in file order. It is
// immutable, safe for concurrent use, and outlives the file.
//
// The typed getters return an error that wraps [ErrNoKey], [ErrValueType] or
// [ErrValueRange] and names the key, the wanted type and the type in the file. The
// integer getters take any integer type and check the range. The float getters convert
// f32 to float64. There are no other conversions. The Or getters return def if the key is
// absent, and fail if its value does not fit.
type Metadata struct {
	keys   []string
	values map[string]Value
}

// Keys returns the keys in file order.
func (m *Metadata) Keys() []string {
	return append([]string(nil), m.keys...)
}

// All returns the pairs in file order.
func (m *Metadata) All() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		for _, key := range m.keys {
			if !yield(key, m.values[key]) {
				return
			}
		}
	}
}

// Value returns the value of key and whether there is one.
func (m *Metadata) Value(key string) (Value, bool) {
	v, ok := m.values[key]
	return v, ok
}

// String returns the str value of key.
func (m *Metadata) String(key string) (string, error) {
	v, err := m.scalar(key, "str", func(t Type) bool { return t == TypeString })
	if err != nil {
		return "", err
	}
	return v.raw[minStringSize:], nil
}

// Uint returns the integer value of key, which must not be negative.
func (m *Metadata) Uint(key string) (uint64, error) {
	v, err := m.scalar(key, "unsigned integer", Type.isInteger)
	if err != nil {
		return 0, err
	}
	u := v.bits(0)
	if !v.elem.isUnsigned() && int64(u) < 0 {
		return 0, fmt.Errorf("%w: key %s is %d (%s), want an unsigned integer", ErrValueRange, quote(key), int64(u), v.elem)
	}
	return u, nil
}

// Int returns the integer value of key, which must fit an int64.
func (m *Metadata) Int(key string) (int64, error) {
	v, err := m.scalar(key, "integer", Type.isInteger)
	if err != nil {
		return 0, err
	}
	return v.int(key, 0)
}

// Float returns the f32 or f64 value of key.
func (m *Metadata) Float(key string) (float64, error) {
	v, err := m.scalar(key, "float", Type.isFloat)
	if err != nil {
		return 0, err
	}
	return v.float(0), nil
}

// Bool returns the bool value of key.
func (m *Metadata) Bool(key string) (bool, error) {
	v, err := m.scalar(key, "bool", func(t Type) bool { return t == TypeBool })
	if err != nil {
		return false, err
	}
	return v.raw[0] != 0, nil
}

// StringOr is [Metadata.String] with a value for an absent key.
func (m *Metadata) StringOr(key, def string) (string, error) {
	return or(def)(m.String(key))
}

// UintOr is [Metadata.Uint] with a value for an absent key.
func (m *Metadata) UintOr(key string, def uint64) (uint64, error) {
	return or(def)(m.Uint(key))
}

// IntOr is [Metadata.Int] with a value for an absent key.
func (m *Metadata) IntOr(key string, def int64) (int64, error) {
	return or(def)(m.Int(key))
}

// FloatOr is [Metadata.Float] with a value for an absent key.
func (m *Metadata) FloatOr(key string, def float64) (float64, error) {
	return or(def)(m.Float(key))
}

// BoolOr is [Metadata.Bool] with a value for an absent key.
func (m *Metadata) BoolOr(key string, def bool) (bool, error) {
	return or(def)(m.Bool(key))
}

// Strings returns the str array of key. The slice belongs to the caller; the
// strings share the value's bytes.
func (m *Metadata) Strings(key string) ([]string, error) {
	v, err := m.array(key, "str", func(t Type) bool { return t == TypeString })
	if err != nil {
		return nil, err
	}
	return v.strings(v.n), nil
}

// Ints returns the integer array of key, whose elements must fit an int64.
func (m *Metadata) Ints(key string) ([]int64, error) {
	v, err := m.array(key, "integer", Type.isInteger)
	if err != nil {
		return nil, err
	}
	s := make([]int64, v.n)
	for i := range s {
		if s[i], err = v.int(key, i); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Floats returns the f32 or f64 array of key.
func (m *Metadata) Floats(key string) ([]float64, error) {
	v, err := m.array(key, "float", Type.isFloat)
	if err != nil {
		return nil, err
	}
	s := make([]float64, v.n)
	for i := range s {
		s[i] = v.float(i)
	}
	return s, nil
}

func or[T any](def T) func(T, error) (T, error) {
	return func(v T, err error) (T, error) {
		if errors.Is(err, ErrNoKey) {
			return def, nil
		}
		return v, err
	}
}

func (m *Metadata) scalar(key, want string, ok func(Type) bool) (Value, error) {
	v, err := m.lookup(key, want)
	if err == nil && !ok(v.typ) {
		err = fmt.Errorf("%w: key %s is %s, want %s", ErrValueType, quote(key), v.describe(), want)
	}
	return v, err
}

func (m *Metadata) array(key, want string, ok func(Type) bool) (Value, error) {
	v, err := m.lookup(key, "arr of "+want)
	if err == nil && (v.typ != TypeArray || !ok(v.elem)) {
		err = fmt.Errorf("%w: key %s is %s, want arr of %s", ErrValueType, quote(key), v.describe(), want)
	}
	return v, err
}

func (m *Metadata) lookup(key, want string) (Value, error) {
	v, ok := m.values[key]
	if !ok {
		return Value{}, fmt.Errorf("%w: %s, want %s", ErrNoKey, quote(key), want)
	}
	return v, nil
}

// int returns element i of an integer value as an int64. The error names key.
func (v Value) int(key string, i int) (int64, error) {
	u := v.bits(i)
	if v.elem == TypeUint64 && u > math.MaxInt64 {
		return 0, fmt.Errorf("%w: key %s holds %d (u64), want at most %d", ErrValueRange, quote(key), u, int64(math.MaxInt64))
	}
	return int64(u), nil
}

// readMetadata reads n pairs.
func (r *reader) readMetadata(n int) (Metadata, error) {
	m := Metadata{keys: make([]string, 0, n), values: make(map[string]Value, n)}
	for i := range n {
		key, err := r.name(fmt.Sprintf("key %d", i), math.MaxUint16)
		if err != nil {
			return m, err
		}
		if key == "" {
			return m, malformed("key %d is empty", i)
		}
		if _, dup := m.values[key]; dup {
			return m, malformed("key %d repeats %s", i, quote(key))
		}
		if m.values[key], err = r.readValue(key); err != nil {
			return m, err
		}
		m.keys = append(m.keys, key)
	}
	return m, nil
}
