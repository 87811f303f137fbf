package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/providers"
)

// placement says where an operation runs with weights of one format.
type placement struct {
	Op      string `json:"op"`
	DType   string `json:"dtype"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
	Runs    string `json:"runs"`             // the provider; empty if no provider supports the operation
	Reason  string `json:"reason,omitempty"` // why the chosen provider does not run it
}

// planner asks providers which operations they support.
type planner struct {
	device provider.Device // nil if only the CPU computes
	cpu    provider.Provider
}

// openPlanner opens the provider that an engine would choose. The caller closes the result.
func openPlanner(name string) (*planner, error) {
	device, err := providers.Open(name)
	if err != nil {
		return nil, explainProvider(err, name)
	}
	cpu, err := providers.OpenCPU(1)
	if err != nil {
		if device != nil {
			err = errors.Join(err, device.Close())
		}
		return nil, err
	}
	return &planner{device, cpu}, nil
}

func (p *planner) close() error {
	if p.device == nil {
		return p.cpu.Close()
	}
	return errors.Join(p.device.Close(), p.cpu.Close())
}

func (p *planner) name() string {
	if p.device == nil {
		return providers.CPU
	}
	return p.device.Info().Name
}

// place returns where the products and the row gathers of a model's matrices run, the entry
// with the most bytes first. Tensors that are not matrices, such as those of norms, are left
// out.
func (p *planner) place(f *gguf.File) []placement {
	total := make(map[placement]*placement)
	_, untied := f.Tensor("output.weight")
	for _, t := range f.Tensors() {
		if len(t.Shape) < 2 || len(t.Shape) > 3 || t.Size == 0 {
			continue
		}
		ops := []op.ID{op.MatMul}
		if t.Name == "token_embd.weight" {
			ops = []op.ID{op.GetRows}
			if !untied {
				ops = append(ops, op.MatMul)
			}
		}
		for _, id := range ops {
			key := placement{Op: id.String(), DType: t.DType.String()}
			key.Runs, key.Reason = p.where(id, t)
			sum := total[key]
			if sum == nil {
				sum = new(placement)
				*sum = key
				total[key] = sum
			}
			sum.Tensors++
			sum.Bytes += t.Size
		}
	}
	list := []placement{}
	for _, sum := range total {
		list = append(list, *sum)
	}
	slices.SortFunc(list, func(a, b placement) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Op, b.Op), cmp.Compare(a.DType, b.DType), cmp.Compare(a.Runs, b.Runs), cmp.Compare(a.Reason, b.Reason))
	})
	return list
}

// where returns the name of the provider that runs the operation with the weights t for one
// token. If it is not the device, reason says why.
func (p *planner) where(id op.ID, t gguf.TensorInfo) (name, reason string) {
	args, err := planArgs(id, t)
	if err != nil {
		return "", err.Error()
	}
	if p.device != nil {
		plan := p.device.Plan(id, args)
		if plan.Supported {
			return p.name(), ""
		}
		reason = plan.Reason
	}
	plan := p.cpu.Plan(id, args)
	if plan.Supported {
		return providers.CPU, reason
	}
	return "", plan.Reason
}

// planArgs returns the arguments of the operation with the weights t for one token. It returns
// an error if the operation does not take these weights.
func planArgs(id op.ID, t gguf.TensorInfo) (*op.Args, error) {
	s, err := shape.Of(t.Shape...)
	if err != nil {
		return nil, err
	}
	stored, err := s.Storage(t.DType)
	if err != nil {
		return nil, err
	}
	weight := op.Operand{DType: t.DType, Weight: true, Shape: s, Strides: stored.Contiguous()}
	operand := func(d dtype.DType, dims ...int) op.Operand {
		s := shape.Must(dims...)
		return op.Operand{DType: d, Shape: s, Strides: s.Contiguous()}
	}
	a := &op.Args{NIn: 2}
	switch {
	case id == op.GetRows:
		a.In[0], a.In[1] = weight, operand(dtype.I32, 1)
	case s.Rank() == 2:
		a.In[0], a.In[1] = operand(dtype.F32, 1, s.Dim(-1)), weight
	default:
		a.In[0], a.In[1] = operand(dtype.F32, s.Dim(0), 1, s.Dim(-1)), weight
	}
	if r := op.Infer(id, a); !r.OK() {
		return nil, errors.New(r.Text(id))
	}
	return a, nil
}

// printPlacement writes a line for each entry of list. It leaves write errors to w.
func printPlacement(w io.Writer, name string, list []placement) {
	fmt.Fprintf(w, "\nruns on %s:\n", name)
	for _, p := range list {
		where := cmp.Or(p.Runs, "nothing")
		if p.Reason != "" {
			where += " (" + oneLine(p.Reason) + ")"
		}
		fmt.Fprintf(w, "  %s\t%s\t%d tensors\t%d bytes\t%s\n", p.Op, p.DType, p.Tensors, p.Bytes, where)
	}
}
