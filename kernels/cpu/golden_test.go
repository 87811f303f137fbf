package cpu

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/quant"
)

//go:embed testdata/golden_ops_x64.txt
var goldenOps string

var goldenLine = regexp.MustCompile(`^(.*?) +n=(\d+) +sha=([0-9a-f]+) first=\[(.*)\]$`)

// ggmlName is d's name in the goldens.
func ggmlName(d dtype.DType) string {
	if d == dtype.Q2_0_G64 {
		return "q2_0"
	}
	return strings.Replace(d.String(), "_k", "_K", 1)
}

// golden is ggml's result for one operation.
type golden struct {
	n     int
	sha   string // the first 16 digits of the bytes' SHA-256
	first []float64
}

func goldenOf(t *testing.T, label string) golden {
	t.Helper()
	for line := range strings.Lines(goldenOps) {
		m := goldenLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || m[1] != label {
			continue
		}
		g := golden{sha: m[3]}
		g.n, _ = strconv.Atoi(m[2])
		for _, s := range strings.Split(m[4], ", ") {
			v, err := strconv.ParseFloat(strings.Trim(s, "'"), 64)
			if err != nil {
				t.Fatal(err)
			}
			g.first = append(g.first, v)
		}
		return g
	}
	t.Fatalf("no golden %q", label)
	return golden{}
}

// goldenVec generates the goldens' inputs. Each value is the sum of four terms of a linear
// congruential generator.
func goldenVec(n int, seed uint32) []float32 {
	out := make([]float32, n)
	for i := range out {
		x := 0.0
		for range 4 {
			seed = seed*1664525 + 1013904223
			x += float64(seed>>16)/65536 - 0.5
		}
		out[i] = float32(x)
	}
	return out
}

func ones(n int) []float32 { return slices.Repeat([]float32{1}, n) }

// goldenWeight encodes goldenVec in rows of k, with the same importance for all values.
func goldenWeight(t *testing.T, d dtype.DType, n, k int, seed uint32) op.Operand {
	t.Helper()
	o := operand(d, plain, n, k)
	var importance []float32
	if quant.RequiresImportance(d) {
		importance = ones(k)
	}
	if err := quant.EncodeRows(o.Mem.Host, d, goldenVec(n*k, seed), k, importance); err != nil {
		t.Fatal(err)
	}
	return o
}

// ggml rounds the activations to the format of its dot products, which has 8 bits for most
// weights. Here they stay f32. The tolerance is that of ggml's own tests of backends.
func TestGoldenMatMul(t *testing.T) {
	es := executors(t)
	for d := range dtype.Count {
		switch {
		case d == dtype.F32, d == dtype.F16, d == dtype.BF16:
		case !d.SupportsQuantizedMatMulRHS():
			continue
		case d == dtype.Q2_0: // has blocks of 128 elements; ggml 0.23 has blocks of 64
			continue
		}
		tolerance := 5e-4
		if d == dtype.F32 {
			tolerance = 1e-11
		}
		t.Run(d.String(), func(t *testing.T) {
			g := goldenOf(t, "mul_mat "+ggmlName(d)+" x f32 [256x16]@[256x5]")
			a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, 5, 16)}}
			a.In[0], a.In[1] = of(goldenVec(256*5, 2), 5, 256), goldenWeight(t, d, 16, 256, 1)
			got := execute(t, es, op.MatMul, a)
			if len(got) != g.n {
				t.Fatalf("%d values, want %d", len(got), g.n)
			}
			closeTo(t, got[:4], g.first, tolerance)
		})
	}
}

func TestGoldenGetRows(t *testing.T) {
	es := executors(t)
	for _, d := range []dtype.DType{dtype.F32, dtype.Q4_0, dtype.Q4_K, dtype.Q6_K} {
		g := goldenOf(t, "get_rows "+ggmlName(d))
		a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, 3, 256)}}
		a.In[0], a.In[1] = goldenWeight(t, d, 16, 256, 8), ofInts(dtype.I32, 15, 0, 7)
		w := withWorkspace(t, es[0], op.GetRows, a)
		if err := es[0].Execute(context.Background(), op.GetRows, &w); err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(a.Out[0].Mem.Host); hex.EncodeToString(sum[:8]) != g.sha {
			t.Errorf("%v: the bytes differ from ggml's: %.6g, want %.6g", d, read(a.Out[0])[:4], g.first)
		}
	}
}

func TestGoldenOps(t *testing.T) {
	es := executors(t)
	ropeArgs := func(mode op.RoPEMode) op.Args {
		a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, 3, 2, 64)}, Params: op.Params{Mode: mode}}
		table := make([]float32, 0, 3*64)
		for _, pos := range []float64{0, 5, 1000} {
			for i := range 32 {
				sin, cos := math.Sincos(pos * math.Pow(10000, -float64(2*i)/64))
				table = append(table, float32(cos), float32(sin))
			}
		}
		a.In[0], a.In[1] = of(goldenVec(384, 7), 3, 2, 64), of(table, 3, 32, 2)
		return a
	}
	tests := []struct {
		label string
		op    op.ID
		args  func() op.Args
	}{
		{"rms_norm eps=1e-5 [64x3]", op.RMSNorm, func() op.Args {
			a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, 3, 64)}, Params: op.Params{Eps: 1e-5}}
			a.In[0], a.In[1] = of(goldenVec(192, 5), 3, 64), of(ones(64), 64)
			return a
		}},
		{"soft_max_ext scale=.35 causal mask", op.Softmax, func() op.Args {
			x := goldenVec(120, 6)
			for i := range x {
				if i%40 > i/40+37 {
					x[i] = float32(math.Inf(-1))
				}
			}
			a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, 3, 40)}, Params: op.Params{Scale: 0.35}}
			a.In[0] = of(x, 3, 40)
			return a
		}},
		{"rope_ext normal d=64 pos 0,5,1000", op.RoPE, func() op.Args { return ropeArgs(op.RoPEInterleaved) }},
		{"rope_ext neox d=64 pos 0,5,1000", op.RoPE, func() op.Args { return ropeArgs(op.RoPENeoX) }},
		{"flash_attn_ext d=64 q3 kv32 GQA2 f32", op.Attention, func() op.Args {
			a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, 3, 4, 64)}, Params: op.Params{Scale: 0.125}}
			// In ggml heads are the outermost axis.
			a.In[0] = headsFirst(goldenVec(64*12, 9), 4, 3, 64)
			a.In[1] = headsFirst(goldenVec(64*64, 10), 2, 32, 64)
			a.In[2] = headsFirst(goldenVec(64*64, 11), 2, 32, 64)
			a.In[3] = positions(29, 3)
			return a
		}},
		{"swiglu_split [64x2]", op.SwiGLU, func() op.Args {
			a := op.Args{Out: [op.MaxOut]op.Operand{operand(dtype.F32, plain, 2, 64)}}
			a.In[0], a.In[1] = of(goldenVec(128, 13), 2, 64), of(goldenVec(128, 12), 2, 64) // the golden has the gate first
			return a
		}},
	}
	for _, test := range tests {
		t.Run(test.label, func(t *testing.T) {
			g := goldenOf(t, test.label)
			got := execute(t, es, test.op, test.args())
			if len(got) != g.n {
				t.Fatalf("%d values, want %d", len(got), g.n)
			}
			// The goldens have six significant digits.
			closeTo(t, got[:4], g.first, 1e-10)
		})
	}
}

// headsFirst views [heads][rows][d] values as [rows heads d].
func headsFirst(values []float32, heads, rows, d int) op.Operand {
	o := of(values, heads, rows, d)
	o.Shape = shape.Must(rows, heads, d)
	o.Strides = shape.Must(d, rows*d, 1)
	return o
}
