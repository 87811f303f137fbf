package op

import (
	"math"
	"sync/atomic"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/shape"
)

// ID names an operation. The comment of each gives its operands as In -> Out; T
// counts tokens (rows), and all layouts are row-major with the last axis innermost
// unless strides are said to be free.
type ID uint8

const (
	// Copy writes In[0] to Out, both of any strides and the same shape. If the
	// dtypes differ it converts: between scalar dtypes as dtype.Convert does, from
	// a block format to f32 by decoding, from f32 with contiguous rows to q8_0 by
	// encoding, where a value that is not finite or whose scale is too large for
	// the format makes its block NaN. A copy between equal block formats needs both
	// contiguous.
	Copy ID = iota + 1
	// GetRows gathers rows: In[0] table [R, D] of any dtype that decodes to
	// float, rows strided, In[1] ids [T] of i32, i64 or u16 -> Out [T, D] f32. An
	// id outside [0, R) is an error of Submit; where Args.Status is set, it is clamped
	// into the range and reported there.
	GetRows
	// Add, Sub and Mul combine f32 In[0] and In[1] elementwise -> Out f32: In[0] +
	// In[1], In[0] - In[1] and In[0] * In[1]. The operands' strides are free and
	// already broadcast to Out's shape.
	Add
	Sub
	Mul
	// RMSNorm normalises rows: In[0] x [..., D] f32, In[1] weight [D] f32 ->
	// Out [..., D] with x * weight / sqrt(mean(x^2) + Eps).
	RMSNorm
	// RoPE rotates pairs of each head: In[0] x [T, H, D] f32, In[1] table
	// [T, P, 2] f32 of (cos, sin) -> Out [T, H, D]. Pair i is (2i, 2i+1) in
	// RoPEInterleaved and (i, i+P) in RoPENeoX; elements from 2P on are copied.
	RoPE
	// MatMul multiplies by rows of the right-hand side: In[0] x [..., M, K] f32,
	// In[1] w [N, K] or [B, N, K] -> Out [..., M, N] f32, with f32 accumulation.
	// w is f32, f16, bf16 with free strides, or a block format with contiguous
	// rows. A batched w has x of rank 3 with the same leading size.
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
	// Scale is Scale * In[0] -> Out, and SoftCap SoftCap * tanh(In[0]/SoftCap)
	// -> Out, f32 of one shape, strides free.
	Scale
	SoftCap
	// Softmax normalises rows: In[0] x [..., D] f32 -> Out, softmax(Scale * x)
	// along the last axis. A NaN makes its row NaN; so does a row of -Inf only.
	Softmax
	// Argmax finds the place of the first maximum of each row: In[0] x [..., D]
	// f32 -> Out [...] i32 (of shape [1] for a vector). A NaN counts as the
	// maximum.
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

// Args are the arguments of one operation. They are plain data of fixed size, so
// that a queue can hold them by value.
type Args struct {
	In   [MaxIn]Operand
	NIn  int
	Out  [MaxOut]Operand
	NOut int
	// Workspace is scratch memory of the size that Plan asked for, undefined
	// before and after.
	Workspace Mem
	// Status, if set, is where an operation that can be wrong only at run time reports
	// that it clamped an element of an operand, with Report: host memory that stays
	// allocated until the queue is closed. An operation writes it only if it clamped.
	Status *atomic.Uint64

	// Exact says that activations are not rounded below f32.
	Exact bool
	Params
}

// Params are the numbers of an operation beside its operands.
type Params struct {
	Eps     float32     // RMSNorm
	Scale   float32     // Attention, Softmax, Scale
	SoftCap float32     // Attention, where 0 is none; SoftCap
	Past    int         // Attention
	Window  int         // Attention; 0 is none
	Mode    RoPEMode    // RoPE
	To      dtype.DType // Copy: of the output
}

// Report records in a status word that element index of an operand had the value
// value, which the operation clamped. Of several reports the one with the lowest index
// stays, whatever their order.
func Report(status *atomic.Uint64, index int, value int64) {
	report := uint64(^uint32(index))<<32 | uint64(uint32(int32(min(max(value, math.MinInt32), math.MaxInt32))))
	for {
		old := status.Load()
		if old >= report || status.CompareAndSwap(old, report) {
			return
		}
	}
}

// Reported returns the index and the value that a status word holds, which is not 0. A
// value outside of 32 bits is the nearest inside.
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

// Fits reports whether every element of the operand lies inside its memory. It is what a
// provider checks of each operand before it lets a kernel loose on the memory.
func (o *Operand) Fits() bool {
	reach, ok := o.reach()
	if !ok || o.Offset < 0 {
		return false
	}
	have := o.Mem.Len / o.DType.Size()
	return o.Offset < have && reach < have-o.Offset
}

// reach returns the number of storage elements from the operand's first to the furthest
// that its strides lead to. It returns false if the shape is no tensor's, or the strides
// no view's.
func (o *Operand) reach() (int, bool) {
	st, err := o.Shape.Storage(o.DType)
	if err != nil {
		return 0, false
	}
	for _, s := range o.Strides.Slice() {
		if s < 0 {
			return 0, false
		}
	}
	reach, err := st.Reach(&o.Strides)
	return reach, err == nil
}

// Mem is memory of a provider: a range of host bytes for a provider that computes
// in host memory, else a range of an allocation that only the provider can address.
type Mem struct {
	Host []byte // the range itself; nil for device memory
	ID   uint64 // the provider's name for the allocation; 0 for host memory
	Off  int    // first byte of the range in the allocation
	Len  int    // bytes of the range
}

// IsZero reports whether m names no memory.
func (m Mem) IsZero() bool { return m.Host == nil && m.ID == 0 }

// Slice returns the n bytes of m from off on.
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
