// Command ops runs single operations through the public API and says how long they take. bench.py
// starts it and compares it with other programs.
//
// Each line of standard input is a JSON object that describes an operation, and is answered by a
// line of standard output with the seconds of its fastest call. Between requests the program uses
// no processor time.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/providers"
	"github.com/fucina-go/fucina/quant"
)

// request is an operation: the product of m rows of k values with n rows of k values. The n rows
// are a weight in a format, or another f32 tensor if there is no format.
type request struct {
	M       int     `json:"m"`
	N       int     `json:"n"` // 0 for the rows of a weight of so many bytes
	Bytes   int     `json:"bytes"`
	K       int     `json:"k"`
	Format  string  `json:"format"`
	Threads int     `json:"threads"`
	Seconds float64 `json:"seconds"` // the time to repeat the call for, after one that does not count
}

type answer struct {
	Seconds float64 `json:"seconds"`
	Bytes   int     `json:"bytes"` // of the weight
}

func main() {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var r request
		err := in.Decode(&r)
		if errors.Is(err, io.EOF) {
			return
		}
		var a answer
		if err == nil {
			err = r.run(&a)
		}
		if err == nil {
			err = out.Encode(a)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "ops:", err)
			os.Exit(1)
		}
	}
}

// run sets the answer to the request.
func (r *request) run(a *answer) (err error) {
	e, err := fucina.Open(fucina.WithProvider(providers.CPU), fucina.WithThreads(r.Threads))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	c, err := e.NewContext()
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(1, 2))
	x := c.Normal(random, 1, fucina.Ax("row", r.M), fucina.Ax("in", r.K))
	var w fucina.Tensor
	if r.Format == "" {
		w = c.Normal(random, 1, fucina.Ax("out", r.N), fucina.Ax("in", r.K))
	} else {
		if w, a.Bytes, err = r.weight(e, random); err != nil {
			return err
		}
		defer w.Release()
	}
	call := func() (float64, error) {
		f := c.Frame()
		defer f.Close()
		start := time.Now()
		err := errors.Join(x.Dot(w, "in").Err(), c.Sync())
		return time.Since(start).Seconds(), err
	}
	if _, err := call(); err != nil {
		return err
	}
	for start := time.Now(); a.Seconds == 0 || time.Since(start).Seconds() < r.Seconds; {
		seconds, err := call()
		if err != nil {
			return err
		}
		if a.Seconds == 0 || seconds < a.Seconds {
			a.Seconds = seconds
		}
	}
	return nil
}

// weight returns a matrix in the format of the request, and its bytes. Its rows are a few random
// ones, repeated.
func (r *request) weight(e *fucina.Engine, random *rand.Rand) (w fucina.Tensor, bytes int, err error) {
	d, err := dtype.Parse(r.Format)
	if err != nil {
		return w, 0, err
	}
	if d.BlockSize() < 1 || r.K%d.BlockSize() != 0 {
		return w, 0, fmt.Errorf("rows of %d values of %s", r.K, d)
	}
	size := r.K / d.BlockSize() * d.Size()
	const tile = 16
	values, importance := make([]float32, tile*r.K), make([]float32, r.K)
	for i := range values {
		values[i] = float32(random.NormFloat64())
	}
	for i := range importance {
		importance[i] = 1
	}
	rows := make([]byte, tile*size)
	if err := quant.EncodeRows(rows, d, values, r.K, importance); err != nil {
		return w, 0, err
	}
	n := r.N
	if n == 0 {
		n = r.Bytes / size
	}
	data := make([]byte, n*size)
	for done := 0; done < len(data); {
		done += copy(data[done:], rows)
	}
	w, err = e.Weight(storage.Borrow(data, storage.BorrowOptions{}), d, fucina.Ax("out", n), fucina.Ax("in", r.K))
	return w, len(data), err
}
