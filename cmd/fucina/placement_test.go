package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/providers"
	"github.com/fucina-go/fucina/tests/ggufbuild"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// picky is a device that only supports products with q8_0 weights.
type picky struct{ provider.Device }

func (picky) Info() provider.Info { return provider.Info{Name: "picky"} }

func (picky) Plan(id op.ID, a *op.Args) provider.Plan {
	if id == op.MatMul && a.In[1].DType == dtype.Q8_0 && a.In[0].Shape.Dim(-1) == a.In[1].Shape.Dim(-1) {
		return provider.Plan{Supported: true}
	}
	return provider.Decline("not to my taste")
}

func TestPlacement(t *testing.T) {
	var b ggufbuild.Builder
	b.AddTensor("token_embd.weight", dtype.Q8_0, []int{4, 32}, make([]byte, 4*34))
	b.AddTensor("a.weight", dtype.Q8_0, []int{8, 32}, make([]byte, 8*34))
	b.AddTensor("experts.weight", dtype.Q8_0, []int{2, 8, 32}, make([]byte, 16*34))
	b.AddTensor("b.weight", dtype.Q4_0, []int{8, 32}, make([]byte, 8*18))
	b.AddTensor("odd.weight", dtype.I32, []int{2, 8}, make([]byte, 64))
	b.AddTensor("norm.weight", dtype.F32, []int{8}, make([]byte, 32))
	f, err := gguf.Parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	cpu, err := providers.OpenCPU(1)
	if err != nil {
		t.Fatal(err)
	}
	p := &planner{device: picky{}, cpu: cpu}
	got := p.place(f)
	// The reasons for i32 come from the CPU.
	for i := range got {
		if got[i].DType == "i32" && got[i].Reason != "" {
			got[i].Reason = "some"
		}
	}
	want := []placement{
		{"matmul", "q8_0", 3, (4 + 8 + 16) * 34, "picky", ""},
		{"matmul", "q4_0", 1, 8 * 18, "cpu", "not to my taste"},
		{"get_rows", "q8_0", 1, 4 * 34, "cpu", "not to my taste"},
		{"matmul", "i32", 1, 64, "", "some"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if err := cpu.Close(); err != nil {
		t.Error(err)
	}
}

func TestInspectPlacement(t *testing.T) {
	path := tinyllama.New(tinyllama.Options{DType: dtype.Q8_0}).File(t, "q8.gguf")
	for _, name := range providers.Names() {
		out := invoke(t, "inspect", path, "--provider", name).ok(t)
		if !strings.Contains(out, "\nruns on "+name+":\n") || !strings.Contains(out, "  get_rows  q8_0  1 tensors ") {
			t.Errorf("%s: prints\n%s", name, out)
		}
	}
	invoke(t, "inspect", path, "--provider", "abacus").failed(t, exitError, "abacus")
}
