package op

import (
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/shape"
)

// ID names an operation. The comment of each operation gives its operands as inputs ->
// output, with their shapes. T is the number of tokens. The last axis is the innermost; the
// contract of the operation says which strides it accepts of an operand.
type ID uint8

const (
	// Copy writes In[0] to Out, which has the same shape. If the dtypes differ, it converts:
	//   - between scalar dtypes, as dtype.Convert does;
	//   - from a block format to f32, by decoding;
	//   - from f32 to q8_0, by encoding. A block becomes NaN if it has a value that is not
	//     finite or that needs a scale too large for the format.
	//
	// Strides are free, with two exceptions: rows that are encoded are contiguous, and so
	// are both operands of a copy between equal block formats.
	Copy ID = iota + 1
	// GetRows gathers rows: In[0] table [R, D] of any dtype that decodes to float, In[1] ids
	// [T] of i32, i64 or u16 -> Out [T, D] f32. If Args.Status is set, an id outside [0, R)
	// is clamped into the range and reported there. Otherwise it is an error of Submit.
	GetRows
	// Add, Sub and Mul are In[0] + In[1], In[0] - In[1] and In[0] * In[1] -> Out, all f32 of
	// one shape. Strides are free, and 0 along an axis that repeats.
	Add
	Sub
	Mul
	// RMSNorm normalises rows: In[0] x [..., D] f32, In[1] weight [D] f32 -> Out [..., D]
	// f32, x * weight / sqrt(mean(x^2) + Eps).
	RMSNorm
	// RoPE rotates pairs of each head: In[0] x [T, H, D] f32, In[1] table
	// [T, P, 2] f32 of (cos, sin) -> Out [T, H, D]. Pair i is (2i, 2i+1) in
	// RoPEInterleaved and (i, i+P) in RoPENeoX; elements from 2P on are copied.
	RoPE
	// MatMul multiplies by rows of the right-hand side: In[0] x [..., M, K] f32,
	// In[1] w [N, K] or [B, N, K] -> Out [..., M, N] f32, with f32 accumulation.
	// w is f32, f16 or bf16 with free strides, or a block format with contiguous rows. If w
	// has an axis B, x is [B, M, K].
	MatMul
	// Attention is scaled dot-product attention with grouped KV heads: In[0] q
	// [T, H, D] f32, In[1] k [S, HK, D] and In[2] v [S, HK, DV] of f32, f16 or q8_0
	// with free strides above the last axis -> Out [T, H, DV] f32. H is a multiple of
	// HK; query head h reads KV head h/(H/HK). Row t sees keys 0 to Past+t, of
	// which the last Window if Window > 0. Scores are Scale * q.k, then
	// SoftCap*tanh(score/SoftCap) if SoftCap > 0.
	Attention
	// SwiGLU is In[0] * silu(In[1]) -> Out, all f32 of one shape, strides free.
	SwiGLU
	// GeGLU is In[0] * gelu(In[1]) -> Out, as SwiGLU, with the tanh
	// approximation of gelu: x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715*x^3))).
	GeGLU
	// Scale is the parameter Scale times In[0] -> Out, both f32 of one shape, strides free.
	Scale
	// SoftCap is c * tanh(In[0]/c) -> Out, as Scale, where c is the parameter SoftCap.
	SoftCap
	// Softmax normalises rows: In[0] x [..., D] f32 -> Out [..., D] f32, the softmax of
	// Scale * x along the last axis. A row with a NaN, or of only -Inf, becomes NaN.
	Softmax
	// Argmax finds the index of the first maximum of each row: In[0] x [..., D] f32 -> Out
	// [...] i32, or [1] if x is a vector. A NaN counts as the maximum.
	Argmax

	// Count is one past the last operation.
	Count
)

// String returns the operation's name, such as "rms_norm".
func (id ID) String() string { return contractOf(id).name }

// RoPEMode says which elements of a head form a pair.
type RoPEMode uint8

const (
	// RoPEInterleaved pairs neighbours (ggml's normal mode).
	RoPEInterleaved RoPEMode = iota
	// RoPENeoX pairs the first half with the second.
	RoPENeoX
)

// MaxIn and MaxOut are the largest numbers of inputs and outputs.
const (
	MaxIn  = 8
	MaxOut = 2
)

// Args are the arguments of one operation. They have a fixed size, so that a queue can hold
// them by value.
type Args struct {
	In   [MaxIn]Operand
	NIn  int
	Out  [MaxOut]Operand
	NOut int
	// Workspace is scratch memory of the size that Plan asked for. Its contents are undefined
	// before and after the operation.
	Workspace Mem
	// Status, if set, is a status word in host memory that stays allocated until the queue is
	// closed. An operation that clamps an element of an operand, because its value is out of
	// range, reports it there with Report. Otherwise it does not write to the word.
	Status *atomic.Uint64

	// Exact says that activations are not rounded below f32.
	Exact bool
	Params
}

// Params are the parameters of an operation. The comment of each field names the operations
// that read it.
type Params struct {
	Eps     float32     // RMSNorm
	Scale   float32     // Attention, Softmax, Scale
	SoftCap float32     // Attention, where 0 means none; SoftCap
	Past    int         // Attention
	Window  int         // Attention; 0 means none
	Mode    RoPEMode    // RoPE
	To      dtype.DType // Copy: the dtype of the output
}

// Report records in a status word that the operation clamped the element of an operand at
// index, which was value. Of several reports, in any order, the one with the lowest index
// stays.
func Report(status *atomic.Uint64, index int, value int64) {
	report := uint64(^uint32(index))<<32 | uint64(uint32(int32(min(max(value, math.MinInt32), math.MaxInt32))))
	for {
		old := status.Load()
		if old >= report || status.CompareAndSwap(old, report) {
			return
		}
	}
}

// Reported returns the index and the value that Report recorded in a status word, which must
// not be 0. A value that does not fit 32 bits was replaced by the nearest that does.
func Reported(status uint64) (index int, value int64) {
	return int(^uint32(status >> 32)), int64(int32(uint32(status)))
}

// Operand describes a tensor to a kernel. Shape is logical; Strides and Offset
// count storage elements of DType from the start of Mem.
type Operand struct {
	DType   dtype.DType
	Weight  bool // stable for the engine's life: residency may keep it on the device
	Shape   shape.Shape
	Strides shape.Shape
	Offset  int
	Mem     Mem
}

// Has reports whether the operand's strides are of the layout.
func (o *Operand) Has(l Layout) bool {
	switch l {
	case Rows:
		n := o.Shape.Rank()
		return n > 0 && o.Strides.Rank() == n && (o.Strides.Dim(-1) == 1 || o.Shape.Dim(-1) == o.DType.BlockSize())
	case Contiguous:
		st, err := o.Shape.Storage(o.DType)
		return err == nil && st.IsContiguous(&o.Strides)
	}
	return true
}

// Fits reports whether every element of the operand lies inside its memory. A provider
// checks each operand with it before a kernel accesses the memory.
func (o *Operand) Fits() bool {
	reach, ok := o.reach()
	if !ok || o.Offset < 0 || o.Mem.Len < 0 {
		return false
	}
	hi, end := bits.Mul64(uint64(o.Offset)+uint64(reach)+1, uint64(o.DType.Size()))
	return hi == 0 && end <= uint64(o.Mem.Len)
}

// reach returns the number of storage elements from the operand's first to its furthest. It
// returns false if no tensor has the shape, or if the strides are not valid for it.
func (o *Operand) reach() (int, bool) {
	if _, err := o.Shape.StorageElements(o.DType); err != nil {
		return 0, false
	}
	for _, s := range o.Strides.Slice() {
		if s < 0 {
			return 0, false
		}
	}
	s := &o.Shape
	if !o.DType.IsScalar() {
		st, _ := o.Shape.Storage(o.DType)
		s = &st
	}
	reach, err := s.Reach(&o.Strides)
	return reach, err == nil
}

// Mem is a range of memory: host bytes for a provider that computes in host memory, and
// otherwise a part of an allocation that only the provider can address.
type Mem struct {
	Host []byte // the range itself; nil for device memory
	ID   uint64 // the provider's name for the allocation; 0 for host memory
	Off  int    // first byte of the range in the allocation
	Len  int    // bytes of the range
}

// IsZero reports whether m names no memory.
func (m Mem) IsZero() bool { return m.Host == nil && m.ID == 0 }

// Slice returns the n bytes of m from off on. It panics if they are not inside m.
func (m Mem) Slice(off, n int) Mem {
	if off < 0 || n < 0 || off > m.Len-n {
		panic("op: slice outside memory")
	}
	if m.Host != nil {
		m.Host = m.Host[off:][:n:n]
	}
	m.Off, m.Len = m.Off+off, n
	return m
}
