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

// The default chain. Accept adds the tokens that penalties count.
func ExampleSampler_Accept() {
	p := sample.DefaultParams()
	p.RepeatPenalty, p.TopK, p.MinP, p.Seed = 1.5, 2, 0, 42
	s, err := sample.New(p)
	if err != nil {
		fmt.Println(err)
		return
	}
	logits := []float32{2, 1.5, 1.4, -3}
	for range 2 {
		d, err := s.Distribution(logits)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, c := range d {
			fmt.Printf("token %d: %.3f\n", c.ID, c.Probability)
		}
		s.Accept(0)
	}
	// Output:
	// token 0: 0.651
	// token 1: 0.349
	// token 1: 0.531
	// token 2: 0.469
}

// With the temperature first, it affects how many tokens top-p keeps.
func ExampleParseStages() {
	stages, err := sample.ParseStages("temperature;top_p")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, stages := range [][]sample.Stage{sample.DefaultStages(), stages} {
		s, err := sample.New(sample.Params{Stages: stages, TopP: 0.9, Temperature: 3})
		if err != nil {
			fmt.Println(err)
			return
		}
		d, err := s.Distribution([]float32{5, 4, 1, 0})
		fmt.Println(len(d), err)
	}
	// Output:
	// 2 <nil>
	// 3 <nil>
}

func ExampleStopMatcher() {
	m, err := sample.NewStopMatcher("\nUser:", "</s>")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, piece := range []string{"Hello", "\n", "Use", "ful.", "\nUs", "er: hi"} {
		text, stopped := m.Next(piece)
		fmt.Printf("%q %v\n", text, stopped)
	}
	// Output:
	// "Hello" false
	// "" false
	// "" false
	// "\nUseful." false
	// "" false
	// "" true
}
