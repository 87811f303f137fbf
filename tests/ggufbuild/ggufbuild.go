// Package ggufbuild writes small GGUF images for tests: synthetic models and well-formed
// inputs that a test then damages. It writes the same bytes as ggml, and does not check the
// contents that a test gives.
package ggufbuild

import (
	"encoding/binary"
	"math"

	"github.com/fucina-go/fucina/core/dtype"
)

// The value types of the format (gguf_metadata_value_type).
const (
	typeUint8 = iota
	typeInt8
	typeUint16
	typeInt16
	typeUint32
	typeInt32
	typeFloat32
	typeBool
	typeString
	typeArray
	typeUint64
	typeInt64
	typeFloat64
)

// Builder collects metadata and tensors in the order they are given. The zero
// Builder is ready to use.
type Builder struct {
	// Version is written to the header; 0 means 3.
	Version uint32
	// Alignment pads the data section; 0 means 32. Any other value is also
	// written as general.alignment, before all other keys.
	Alignment uint32

	pairs   []byte
	nPairs  uint64
	tensors []tensor
}

type tensor struct {
	name  string
	id    uint32
	shape []int
	data  []byte
}

func (b *Builder) key(key string, typ uint32) {
	b.pairs = appendString(b.pairs, key)
	b.pairs = binary.LittleEndian.AppendUint32(b.pairs, typ)
	b.nPairs++
}

func (b *Builder) array(key string, elem uint32, n int) {
	b.key(key, typeArray)
	b.pairs = binary.LittleEndian.AppendUint32(b.pairs, elem)
	b.pairs = binary.LittleEndian.AppendUint64(b.pairs, uint64(n))
}

// SetUint8 adds a u8.
func (b *Builder) SetUint8(key string, v uint8) {
	b.key(key, typeUint8)
	b.pairs = append(b.pairs, v)
}

// SetInt8 adds an i8.
func (b *Builder) SetInt8(key string, v int8) {
	b.key(key, typeInt8)
	b.pairs = append(b.pairs, uint8(v))
}

// SetUint16 adds a u16.
func (b *Builder) SetUint16(key string, v uint16) {
	b.key(key, typeUint16)
	b.pairs = binary.LittleEndian.AppendUint16(b.pairs, v)
}

// SetInt16 adds an i16.
func (b *Builder) SetInt16(key string, v int16) {
	b.key(key, typeInt16)
	b.pairs = binary.LittleEndian.AppendUint16(b.pairs, uint16(v))
}

// SetUint32 adds a u32.
func (b *Builder) SetUint32(key string, v uint32) {
	b.key(key, typeUint32)
	b.pairs = binary.LittleEndian.AppendUint32(b.pairs, v)
}

// SetInt32 adds an i32.
func (b *Builder) SetInt32(key string, v int32) {
	b.key(key, typeInt32)
	b.pairs = binary.LittleEndian.AppendUint32(b.pairs, uint32(v))
}

// SetUint64 adds a u64.
func (b *Builder) SetUint64(key string, v uint64) {
	b.key(key, typeUint64)
	b.pairs = binary.LittleEndian.AppendUint64(b.pairs, v)
}

// SetInt64 adds an i64.
func (b *Builder) SetInt64(key string, v int64) {
	b.key(key, typeInt64)
	b.pairs = binary.LittleEndian.AppendUint64(b.pairs, uint64(v))
}

// SetFloat32 adds an f32.
func (b *Builder) SetFloat32(key string, v float32) {
	b.key(key, typeFloat32)
	b.pairs = binary.LittleEndian.AppendUint32(b.pairs, math.Float32bits(v))
}

// SetFloat64 adds an f64.
func (b *Builder) SetFloat64(key string, v float64) {
	b.key(key, typeFloat64)
	b.pairs = binary.LittleEndian.AppendUint64(b.pairs, math.Float64bits(v))
}

// SetBool adds a bool.
func (b *Builder) SetBool(key string, v bool) {
	b.key(key, typeBool)
	b.pairs = appendBool(b.pairs, v)
}

// SetString adds a str.
func (b *Builder) SetString(key, v string) {
	b.key(key, typeString)
	b.pairs = appendString(b.pairs, v)
}

// SetStrings adds an array of str.
func (b *Builder) SetStrings(key string, v []string) {
	b.array(key, typeString, len(v))
	for _, s := range v {
		b.pairs = appendString(b.pairs, s)
	}
}

// SetUint32s adds an array of u32.
func (b *Builder) SetUint32s(key string, v []uint32) {
	b.array(key, typeUint32, len(v))
	for _, x := range v {
		b.pairs = binary.LittleEndian.AppendUint32(b.pairs, x)
	}
}

// SetInt32s adds an array of i32.
func (b *Builder) SetInt32s(key string, v []int32) {
	b.array(key, typeInt32, len(v))
	for _, x := range v {
		b.pairs = binary.LittleEndian.AppendUint32(b.pairs, uint32(x))
	}
}

// SetUint64s adds an array of u64.
func (b *Builder) SetUint64s(key string, v []uint64) {
	b.array(key, typeUint64, len(v))
	for _, x := range v {
		b.pairs = binary.LittleEndian.AppendUint64(b.pairs, x)
	}
}

// SetFloat32s adds an array of f32.
func (b *Builder) SetFloat32s(key string, v []float32) {
	b.array(key, typeFloat32, len(v))
	for _, x := range v {
		b.pairs = binary.LittleEndian.AppendUint32(b.pairs, math.Float32bits(x))
	}
}

// SetFloat64s adds an array of f64.
func (b *Builder) SetFloat64s(key string, v []float64) {
	b.array(key, typeFloat64, len(v))
	for _, x := range v {
		b.pairs = binary.LittleEndian.AppendUint64(b.pairs, math.Float64bits(x))
	}
}

// SetBools adds an array of bool.
func (b *Builder) SetBools(key string, v []bool) {
	b.array(key, typeBool, len(v))
	for _, x := range v {
		b.pairs = appendBool(b.pairs, x)
	}
}

// AddTensor adds a tensor. shape is outermost first, as everywhere in this
// module, and is written in the format's order, innermost first. data holds the
// encoded elements and is not copied.
func (b *Builder) AddTensor(name string, d dtype.DType, shape []int, data []byte) {
	b.AddRawTensor(name, uint32(d.GGUF()), shape, data)
}

// AddRawTensor is [Builder.AddTensor] with the ggml_type of the file, for types that this
// module does not have.
func (b *Builder) AddRawTensor(name string, id uint32, shape []int, data []byte) {
	b.tensors = append(b.tensors, tensor{name, id, append([]int(nil), shape...), data})
}

// Bytes returns the image. Every tensor, the last one included, is padded to
// the alignment.
func (b *Builder) Bytes() []byte {
	version, align, nPairs := b.Version, b.Alignment, b.nPairs
	var own []byte
	if version == 0 {
		version = 3
	}
	if align == 0 {
		align = 32
	} else {
		var a Builder
		a.SetUint32("general.alignment", align)
		own = a.pairs
		nPairs++
	}

	out := []byte("GGUF")
	out = binary.LittleEndian.AppendUint32(out, version)
	out = binary.LittleEndian.AppendUint64(out, uint64(len(b.tensors)))
	out = binary.LittleEndian.AppendUint64(out, nPairs)
	out = append(append(out, own...), b.pairs...)

	var offset uint64
	for _, t := range b.tensors {
		out = appendString(out, t.name)
		out = binary.LittleEndian.AppendUint32(out, uint32(len(t.shape)))
		for i := range t.shape {
			out = binary.LittleEndian.AppendUint64(out, uint64(t.shape[len(t.shape)-1-i]))
		}
		out = binary.LittleEndian.AppendUint32(out, t.id)
		out = binary.LittleEndian.AppendUint64(out, offset)
		offset += uint64(len(t.data) + padding(len(t.data), align))
	}
	if len(b.tensors) > 0 {
		out = append(out, make([]byte, padding(len(out), align))...)
	}
	for _, t := range b.tensors {
		out = append(out, t.data...)
		out = append(out, make([]byte, padding(len(t.data), align))...)
	}
	return out
}

// padding returns the bytes from n to the next multiple of align.
func padding(n int, align uint32) int {
	a := int(align)
	return (a - n%a) % a
}

func appendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(len(s)))
	return append(b, s...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}
