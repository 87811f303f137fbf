package quantize_test

import (
	"encoding/binary"
	"math"
)

// legacyBuilder writes importance data in the older format.
type legacyBuilder struct{ body []byte }

func (b *legacyBuilder) int32(v int32) {
	b.body = binary.LittleEndian.AppendUint32(b.body, uint32(v))
}

func (b *legacyBuilder) entry(name string, count int32, sums []float32) {
	b.int32(int32(len(name)))
	b.body = append(b.body, name...)
	b.int32(count)
	b.int32(int32(len(sums)))
	for _, v := range sums {
		b.int32(int32(math.Float32bits(v)))
	}
}

// finish returns the file: the number of entries, the entries, the number of chunks and the
// name of the text.
func (b *legacyBuilder) finish(entries, chunks int32, text string) []byte {
	b.int32(chunks)
	b.int32(int32(len(text)))
	b.body = append(b.body, text...)
	return append(binary.LittleEndian.AppendUint32(nil, uint32(entries)), b.body...)
}
