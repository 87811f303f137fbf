// Command floors measures how fast this machine reads and copies memory. Benchmarks print its
// figures beside their own, because the speed of a virtual machine changes with its neighbours.
//
//	floors [-size MEGABYTES] [-seconds S] [THREADS ...]
//
// For each number of threads it prints one JSON object with the gigabytes per second of the
// fastest pass. A copy counts the bytes that it reads and those that it writes.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

// floor is what floors prints for a number of threads.
type floor struct {
	Threads int     `json:"threads"`
	Read    float64 `json:"read"`
	Copy    float64 `json:"copy"`
}

func main() {
	size := flag.Int("size", 512, "`megabytes` to pass over, more than the caches hold")
	seconds := flag.Float64("seconds", 0.3, "time of each measurement")
	flag.Parse()
	if *size < 1 || *seconds <= 0 {
		fail(fmt.Errorf("-size %d -seconds %g: want more than zero", *size, *seconds))
	}
	// Every byte is written, because the pages of fresh memory are all the same page.
	memory := bytes.Repeat([]byte{1}, *size<<20)
	out := json.NewEncoder(os.Stdout)
	for _, arg := range flag.Args() {
		threads, err := strconv.Atoi(arg)
		if err != nil || threads < 1 {
			fail(fmt.Errorf("%q is not a number of threads", arg))
		}
		f := floor{
			Threads: threads,
			Read:    best(*seconds, threads, memory, read),
			Copy:    best(*seconds, threads, memory, half),
		}
		if err := out.Encode(f); err != nil {
			fail(err)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "floors:", err)
	os.Exit(1)
}

// search reads part by searching for a byte that is not there, which the standard library does
// with vectors.
func search(part []byte) {
	if bytes.IndexByte(part, 0) >= 0 {
		panic("a byte that was written is zero")
	}
}

// half copies one half of part to the other.
func half(part []byte) {
	copy(part[len(part)/2:], part[:len(part)/2])
}

// best returns the gigabytes per second of the fastest pass over memory, of which each thread
// gets one part. Threads meet after each pass.
func best(seconds float64, threads int, memory []byte, pass func(part []byte)) float64 {
	part := len(memory) / threads
	fastest := time.Duration(0)
	for start := time.Now(); fastest == 0 || time.Since(start).Seconds() < seconds; {
		var all sync.WaitGroup
		begin := time.Now()
		for i := range threads {
			all.Go(func() { pass(memory[i*part:][:part]) })
		}
		all.Wait()
		if d := time.Since(begin); fastest == 0 || d < fastest {
			fastest = d
		}
	}
	return float64(part*threads) / float64(fastest.Nanoseconds())
}
