package tinyllama

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/quant"
	"github.com/fucina-go/fucina/tests/ggufbuild"
)

// Options describe a model. A zero field means its default.
type Options struct {
	Seed        uint64
	Layers      int // 2
	Embedding   int // 64
	FeedForward int // 160
	Heads       int // 4
	KVHeads     int // 2
	Context     int // 256
	// DType is the format of all matrices: f32 (the default), f16, bf16 or one whose
	// blocks divide the rows. Norms are f32.
	DType dtype.DType
	// Tied leaves out the output matrix, so that the embedding is used as the output matrix.
	Tied bool
}

func (o Options) withDefaults() Options {
	o.Layers = cmp.Or(o.Layers, 2)
	o.Embedding = cmp.Or(o.Embedding, 64)
	o.FeedForward = cmp.Or(o.FeedForward, 160)
	o.Heads = cmp.Or(o.Heads, 4)
	o.KVHeads = cmp.Or(o.KVHeads, 2)
	o.Context = cmp.Or(o.Context, 256)
	o.DType = cmp.Or(o.DType, dtype.F32)
	return o
}

// Model has the metadata and tensors of a file in order. A test may change them before it
// writes the file.
type Model struct {
	Meta    []Pair
	Tensors []Tensor
}

// Pair is an entry of the metadata. Value is a bool, string, uint32, int32,
// float32, []string, []float32 or []int32.
type Pair struct {
	Key   string
	Value any
}

// Tensor is an encoded tensor; Shape is outermost first.
type Tensor struct {
	Name  string
	DType dtype.DType
	Shape []int
	Data  []byte
}

// The spread of the elements. A matrix of n columns is uniform with variance
// gain²/n, so that it multiplies the root mean square of its input by gain.
const (
	// embedGain is small compared to the outputs of the blocks. Otherwise the next token
	// would depend only on the last one, and repeat it if the matrices are tied.
	embedGain = 2
	blockGain = 1.5
	// Queries and keys have a larger gain, so that attention is not an average.
	attnGain = 2.5
	// outputGain sets the spread of the logits.
	outputGain = 4
	// The output rows of byte, control and unknown tokens have a smaller gain, so that
	// most of the text is letters.
	quiet = 0.5
)

// New returns the model that opt describes. It panics if the dimensions are not valid or the
// dtype has no encoder, because options are constants of tests.
func New(opt Options) *Model {
	o := opt.withDefaults()
	if o.Embedding%o.Heads != 0 || o.Embedding/o.Heads%2 != 0 || o.Heads%o.KVHeads != 0 {
		panic(fmt.Sprintf("tinyllama: width %d over %d heads over %d KV heads", o.Embedding, o.Heads, o.KVHeads))
	}
	return Shape{
		Layers: o.Layers, Embedding: o.Embedding, FeedForward: o.FeedForward, Heads: o.Heads, KVHeads: o.KVHeads,
		HeadLength: o.Embedding / o.Heads, Context: o.Context, DType: o.DType, Output: !o.Tied,
		seed: o.Seed, name: "tinyllama",
	}.model()
}

// GGUF returns the file that opt describes. See [New].
func GGUF(opt Options) []byte { return New(opt).Bytes() }

// WriteFile writes the file that opt describes to path. See [New].
func WriteFile(path string, opt Options) error {
	return os.WriteFile(path, GGUF(opt), 0o644)
}

// File writes the model's file under name into a directory of the test's own, and returns
// its path.
func (m *Model) File(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, m.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Set gives key a value, at the end of the metadata if it is new.
func (m *Model) Set(key string, value any) {
	i := slices.IndexFunc(m.Meta, func(p Pair) bool { return p.Key == key })
	if i < 0 {
		m.Meta = append(m.Meta, Pair{})
		i = len(m.Meta) - 1
	}
	m.Meta[i] = Pair{key, value}
}

// Delete removes the metadata entry or the tensor of that name.
func (m *Model) Delete(name string) {
	m.Meta = slices.DeleteFunc(m.Meta, func(p Pair) bool { return p.Key == name })
	m.Tensors = slices.DeleteFunc(m.Tensors, func(t Tensor) bool { return t.Name == name })
}

// Tensor returns the tensor called name, which may be changed in place, or nil.
func (m *Model) Tensor(name string) *Tensor {
	i := slices.IndexFunc(m.Tensors, func(t Tensor) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return &m.Tensors[i]
}

// Add appends a tensor of zeros. d must be f32 or a format whose blocks divide
// the last dimension.
func (m *Model) Add(name string, d dtype.DType, shape ...int) {
	n := 1
	for _, s := range shape {
		n *= s
	}
	data := make([]byte, n/d.BlockSize()*d.Size())
	m.Tensors = append(m.Tensors, Tensor{name, d, shape, data})
}

// Bytes returns the file. It panics if a metadata value has a type that [Pair] does not
// allow.
func (m *Model) Bytes() []byte {
	var b ggufbuild.Builder
	for _, p := range m.Meta {
		switch v := p.Value.(type) {
		case bool:
			b.SetBool(p.Key, v)
		case string:
			b.SetString(p.Key, v)
		case uint32:
			b.SetUint32(p.Key, v)
		case int32:
			b.SetInt32(p.Key, v)
		case float32:
			b.SetFloat32(p.Key, v)
		case []string:
			b.SetStrings(p.Key, v)
		case []float32:
			b.SetFloat32s(p.Key, v)
		case []int32:
			b.SetInt32s(p.Key, v)
		default:
			panic(fmt.Sprintf("tinyllama: %s holds a %T", p.Key, v))
		}
	}
	for _, t := range m.Tensors {
		b.AddTensor(t.Name, t.DType, t.Shape, t.Data)
	}
	return b.Bytes()
}

// generator adds tensors to a model.
type generator struct {
	m     *Model
	seed  uint64
	dtype dtype.DType // of matrices
}

// matrix adds rows x cols elements of variance gain²/cols. The rows below
// quietRows are scaled down.
func (g *generator) matrix(name string, rows, cols int, gain float64, quietRows int) {
	// A uniform number of [-1, 1) has variance 1/3.
	scale := float32(gain * math.Sqrt(3/float64(cols)))
	values := g.uniform(name, rows*cols)
	for i := range values {
		if i < quietRows*cols {
			values[i] *= quiet // exact, because quiet is a power of two
		}
		values[i] *= scale
	}
	g.add(name, g.dtype, []int{rows, cols}, values)
}

func (g *generator) norm(name string, n int) {
	values := g.uniform(name, n)
	for i := range values {
		values[i] = 1 + values[i]*0.25 // the product is exact
	}
	g.add(name, dtype.F32, []int{n}, values)
}

func (g *generator) add(name string, d dtype.DType, shape []int, values []float32) {
	data := make([]byte, len(values)/d.BlockSize()*d.Size())
	if last := shape[len(shape)-1]; last%d.BlockSize() != 0 {
		panic(fmt.Sprintf("tinyllama: %s has rows of %d, want whole blocks of %s (%d)", name, last, d, d.BlockSize()))
	}
	var importance []float32
	if quant.RequiresImportance(d) {
		importance = slices.Repeat([]float32{1}, shape[len(shape)-1])
	}
	if err := quant.EncodeRows(data, d, values, shape[len(shape)-1], importance); err != nil {
		panic(fmt.Sprintf("tinyllama: %s: %v", name, err))
	}
	g.m.Tensors = append(g.m.Tensors, Tensor{name, d, shape, data})
}

// uniform returns n numbers of [-1, 1), multiples of 2^-23.
func (g *generator) uniform(name string, n int) []float32 {
	h := fnv.New64a()
	h.Write([]byte(name))
	state := g.seed ^ h.Sum64()
	values := make([]float32, n)
	for i := range values {
		state += 0x9E3779B97F4A7C15
		z := state
		z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		z ^= z >> 31
		values[i] = float32(int32(z>>40)-1<<23) / (1 << 23)
	}
	return values
}
