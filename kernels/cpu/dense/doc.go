// Package dense has products of f32 rows by weights in f32, f16 and bf16, in Go and in assembly,
// and the conversions between these formats.
//
// # Products
//
// The product of a row x and a row w of n elements is the fold of sixteen sums. Element i belongs to
// sum i mod 16, which begins as 0. In ascending order,
//
//	sum[i%16] = fma(x[i], w[i], sum[i%16])
//
// where fma rounds once and w[i] is the exact value of the weight. Then
//
//	sum[i] += sum[i+8] for i < 8;  sum[i] += sum[i+4] for i < 4;  then 2, then 1
//
// and sum[0] is the product. All kernels of all levels have these bits, however the work is divided,
// except that a NaN may have other bits.
//
// Elements lie along the vectors, so that neither operand needs another order in memory.
package dense
