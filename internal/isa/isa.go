// Package isa says which instruction sets the kernels for the CPU may use. A Level is a set of
// extensions that kernels are written for.
package isa

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// Env is the environment variable that names a level.
const Env = "FUCINA_CPU"

// Level is a set of extensions of the instruction set.
type Level uint8

const (
	// Generic is Go code without assembly.
	Generic Level = iota
	// AVX2 has AVX2, BMI2, FMA and F16C.
	AVX2
	// AVXVNNI has also VPDPBUSD in its VEX form.
	AVXVNNI
	// AVX512 has AVX2's extensions and AVX-512 F, BW, DQ, VL and VNNI.
	AVX512
	// AVX512VBMI has also AVX-512 VBMI and GFNI.
	AVX512VBMI
	// NEON is the base of arm64.
	NEON
	// DotProd has also SDOT and UDOT.
	DotProd
	// I8MM has also SMMLA and USDOT.
	I8MM

	// Count is one more than the last level.
	Count
)

var names = [Count]string{"generic", "avx2", "avxvnni", "avx512", "avx512vbmi", "neon", "dotprod", "i8mm"}

// String returns the name that Env has for the level.
func (l Level) String() string { return names[l] }

// Supported returns the levels that this processor and this build support, the best one last.
func Supported() []Level { return append([]Level{Generic}, supported()...) }

// Choose returns the level with the given name, or the best one if the name is "". It fails if
// the level does not exist, or is not supported here.
func Choose(name string) (Level, error) {
	have := Supported()
	if name == "" {
		return have[len(have)-1], nil
	}
	i := slices.Index(names[:], name)
	if i >= 0 && slices.Contains(have, Level(i)) {
		return Level(i), nil
	}
	list := make([]string, len(have))
	for i, l := range have {
		list[i] = l.String()
	}
	what := "is unknown"
	if i >= 0 {
		what = "is not supported by this processor or this build"
	}
	return Generic, fmt.Errorf("instruction set %q %s; supported here: %s", name, what, strings.Join(list, ", "))
}

// Current returns the level that Env names. It looks once.
var Current = sync.OnceValues(func() (Level, error) {
	l, err := Choose(os.Getenv(Env))
	if err != nil {
		err = fmt.Errorf("%s: %w", Env, err)
	}
	return l, err
})
