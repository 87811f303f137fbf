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
	// has an axis B, x is [B, M, K]. With the parameter Chunks, the axis K falls into that
	// many equal chunks of whole blocks. Each chunk is summed by itself, and the sums of the
	// chunks are added as a balanced binary tree: neighbours first.
	MatMul
	// Attention is causal scaled dot-product attention with grouped KV heads: In[0] q
	// [T, H, D] f32, In[1] k [S, HK, D] and In[2] v [S, HK, DV] of f32, f16 or q8_0
	// with free strides above the last axis, In[3] positions [T] of i32 -> Out [T, H, DV]
	// f32. H is a multiple of HK; query head h reads KV head h/(H/HK). Row t sees the keys 0
	// to positions[t]. If Window > 0, it sees only the last Window of them. Scores are
	// Scale * q.k, then SoftCap*tanh(score/SoftCap) if SoftCap > 0.
	//
	// The rows may belong to N sequences whose keys and values lie in pages of R rows. Then k
	// is [pages, R, HK, D] and v [pages, R, HK, DV], In[4] sequences [T] of i32 has the
	// sequence of each row, and row j of the table In[5] [N, P] of i32 lists the pages of
	// sequence j: key i is row i%R of page table[j][i/R]. The entries of the table that no row
	// needs may have any value.
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
	// SetRows writes rows: In[0] x [T, D] f32, In[1] places [T] of i32 -> into the rows
	// places[t] of Out [R, D] or [P, R, D] of f32, f16 or q8_0, converted as Copy converts.
	// Row p of [P, R, D] is row p%R of part p/R. The other rows keep their values. If a
	// place is out of range, it is reported in Args.Status, and its row is not written; without
	// Status, it is an error of Submit. If several rows have one place, the contents of that
	// row are undefined.
	SetRows
	// AddRMSNorm is Add followed by RMSNorm of the sum: In[0] x and In[1] y [..., D] f32,
	// In[2] weight [D] f32 -> Out[0] x + y and Out[1] its norm, both f32 of the shape of x.
	AddRMSNorm
	// Project multiplies by up to three matrices side by side: In[0] x [..., K] f32, In[1] to
	// In[3] w_i [N_i, K], the second and the third optional, as the w of MatMul without an
	// axis B -> Out [..., N_1+N_2+N_3] f32. The columns of w_i are Scales[i] * (x . w_i) +
	// b_i, where b_i [N_i] f32 is In[4] to In[6], optional. With BiasFirst they are
	// Scales[i] * (x . w_i + b_i). Last, In[7] [..., N_1+N_2+N_3] f32, optional, is added.
	// Every step is rounded to f32, as if it were an operation of its own. A step is left out
	// if its operand is absent or its scale is 1.
	Project
	// GatedProject is an activation of one product times another: In[0] x [..., K] f32,
	// In[1] gate and In[2] up [N, K] as the matrices of Project, In[3] and In[4] their biases
	// [N] f32, optional -> Out [..., N] f32, up(x) * act(gate(x)), where act is the parameter
	// Act. gate(x) and up(x) are those of Project, with Scales[0] and Scales[1].
	GatedProject
	// RotateStore takes the queries, keys and values of T tokens, rotates queries and keys,
	// and writes keys and values to a paged cache: In[0] q [T, H, D], In[1] k [T, HK, D] and
	// In[2] v [T, HK, DV] f32, In[3] angles [T, P, 2] f32 as the table of RoPE, In[4] places
	// [T] of i32, and optional In[5] and In[6] the weights [D] f32 of an RMSNorm of each
	// query head and of each key head -> Out[0] [T, H, D] f32, the rotated queries, and into
	// the pages Out[1] [pages, C] of f32, f16 or q8_0. A page has R = C/(HK*(D+DV)) rows of
	// keys [HK, D], then R rows of values [HK, DV]. Token t is row places[t]%R of page
	// places[t]/R; for a place out of range see SetRows. The norm comes before the rotation.
	RotateStore

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
	// closed. An operation that clamps an element of an operand, or skips its row, because the
	// value is out of range, reports it there with Report. Otherwise it does not write to the
	// word.
	Status *atomic.Uint64

	// Exact says that activations are not rounded below f32.
	Exact bool
	// Generated is the number of rows, first along the first axis of In[0], that belong to
	// tokens that were generated. The other rows belong to prompts. A provider may choose its
	// kernel for a row by this, but by nothing else about the rows.
	Generated int
	Params
}

// Params are the parameters of an operation. The comment of each field names the operations
// that read it.
type Params struct {
	Eps     float32     // RMSNorm, AddRMSNorm, RotateStore
	Scale   float32     // Attention, Softmax, Scale
	SoftCap float32     // Attention, where 0 means none; SoftCap
	Window  int         // Attention; 0 means none
	Mode    RoPEMode    // RoPE, RotateStore
	To      dtype.DType // Copy: the dtype of the output

	Scales    [3]float32 // Project, GatedProject: the factor of each product; 1 means none
	BiasFirst bool       // Project, GatedProject: add the bias before the scale is applied
	// Chunks is the number of chunks of a sum of MatMul, Project or GatedProject: 1, 2, 4 or
	// 8; 0 means 1. It is a matter of exact mode: without Args.Exact, a provider may sum in any
	// order.
	Chunks int
	Act    Activation // GatedProject
}

// ChunksOf returns the number of chunks of a sum along an axis of k elements of a matrix of
// format d, if a model may be split along that axis: the largest of 8, 4, 2 and 1 that leaves
// equal chunks of whole blocks.
func ChunksOf(k int, d dtype.DType) int {
	n := MaxChunks
	for n > 1 && k%(n*d.BlockSize()) != 0 {
		n /= 2
	}
	return n
}

// MaxChunks is the largest value of the parameter Chunks.
const MaxChunks = 8

// Activation is the activation of the gate of GatedProject.
type Activation uint8

const (
	// SiLU is that of SwiGLU.
	SiLU Activation = iota
	// GELU is that of GeGLU.
	GELU
)

// indexBits is the number of bits of a report for the index of an element.
const indexBits = 29

// Report records in a status word that the element at index of the input at place p was out
// of range, and had the value value. Of several reports, in any order, the one with the
// lowest place stays, and of these the one with the lowest index. The index is that of the
// element in row-major order, and above 2^29-1 is recorded as 2^29-1.
func Report(status *atomic.Uint64, p Place, index int, value int64) {
	at := uint32(p)<<indexBits | uint32(min(index, 1<<indexBits-1))
	report := uint64(^at)<<32 | uint64(uint32(int32(min(max(value, math.MinInt32), math.MaxInt32))))
	for {
		old := status.Load()
		if old >= report || status.CompareAndSwap(old, report) {
			return
		}
	}
}

// Reported returns the place, the index and the value that Report recorded in a status word,
// which must not be 0. A value that does not fit 32 bits was replaced by the nearest that
// does.
func Reported(status uint64) (p Place, index int, value int64) {
	at := ^uint32(status >> 32)
	return Place(at >> indexBits), int(at & (1<<indexBits - 1)), int64(int32(uint32(status)))
}

var _ [1 << (32 - indexBits)]struct{} = [MaxIn]struct{}{} // a report has bits for every place

// Operand describes a tensor to a kernel. Shape is logical; Strides and Offset
// count storage elements of DType from the start of Mem. The zero Operand stands for an
// optional operand that is absent.
type Operand struct {
	DType   dtype.DType
	Weight  bool // stable for the engine's life: residency may keep it on the device
	Shape   shape.Shape
	Strides shape.Shape
	Offset  int
	Mem     Mem
}

// IsZero reports whether the operand is absent.
func (o *Operand) IsZero() bool { return o.DType == dtype.Invalid }

// Has reports whether the input at place p is present.
func (a *Args) Has(p Place) bool { return int(p) < a.NIn && !a.In[p].IsZero() }

// At returns the operand at place p.
func (a *Args) At(p Place) *Operand {
	if p >= FirstOut {
		return &a.Out[p-FirstOut]
	}
	return &a.In[p]
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
