package sample_test

import (
	"fmt"

	"github.com/fucina-go/fucina/llm/sample"
)

func Example() {
	logits := []float32{0.1, 2.5, -1, 2.5}
	s, err := sample.New(sample.Params{Temperature: 0})
	if err != nil {
		fmt.Println(err)
		return
	}
	id, err := s.Sample(logits)
	fmt.Println(id, err)
	// Output: 1 <nil>
}

func ExampleSampler_Sample_error() {
	s, err := sample.New(sample.Params{Temperature: 0.8, Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = s.Sample(nil)
	fmt.Println(err)
	// Output: sample: invalid logits: 0 logits, want 1..2147483647
}
