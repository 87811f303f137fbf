package quant

// GGML_COMMON_H names a copy of src/ggml-common.h of ggml 0.23.
//go:generate go run ./internal/gentables "-header=$GGML_COMMON_H" -o tables.go

// The test of module _asm tells whether the assembly is what its generator writes.
//go:generate go run -C _asm . -out ../encode_q4_amd64.s
