package exec

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/fucina-go/fucina/core/op"
)

// gates are the least costs, by op, for which an op runs on the device although no
// operand but weights is newest there. The table starts from provider.Info.MinCost.
// FUCINA_GPU_MIN_WORK replaces every entry; FUCINA_GPU_MIN_WORK_<OP>, such as
// FUCINA_GPU_MIN_WORK_MATMUL, replaces the entry of one op. All are in the units of
// op.Cost.
type gates [op.Count]int64

func newGates(defaults *[op.Count]int64) (gates, error) {
	var g gates
	if defaults != nil {
		g = *defaults
	}
	const env = "FUCINA_GPU_MIN_WORK"
	all, err := envCost(env)
	if err != nil {
		return g, err
	}
	for id := op.ID(1); id < op.Count; id++ {
		if all >= 0 {
			g[id] = all
		}
		one, err := envCost(env + "_" + strings.ToUpper(id.String()))
		if err != nil {
			return g, err
		}
		if one >= 0 {
			g[id] = one
		}
	}
	return g, nil
}

// envCost returns the variable's value, or -1 if it is not set.
func envCost(name string) (int64, error) {
	s, ok := os.LookupEnv(name)
	if !ok || s == "" {
		return -1, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s is %q, want a count of at least 0", name, s)
	}
	return n, nil
}

func (g *gates) pass(id op.ID, a *op.Args) bool { return g[id] == 0 || op.Cost(id, a) >= g[id] }
