//go:build !amd64 || noasm

package simd

import "github.com/fucina-go/fucina/internal/isa"

func peak(isa.Level) (round func(n int), ops int) { return nil, 0 }
