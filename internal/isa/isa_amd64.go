//go:build amd64 && !noasm

package isa

import "golang.org/x/sys/cpu"

func supported() (list []Level) {
	x := &cpu.X86
	add := func(l Level, ok bool) {
		if ok {
			list = append(list, l)
		}
	}
	avx2 := x.HasAVX2 && x.HasBMI2 && x.HasFMA && x.HasF16C
	avx512 := avx2 && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512VNNI
	add(AVX2, avx2)
	add(AVXVNNI, avx2 && x.HasAVXVNNI)
	add(AVX512, avx512)
	add(AVX512VBMI, avx512 && x.HasAVX512VBMI && x.HasAVX512GFNI)
	return list
}
