// Package vector has the loops of operations that are no products by weights, in Go and in
// assembly. All variants of a loop have the same bits, but for the payload of a NaN.
//
// # Definitions
//
// Additions, multiplications, divisions and fused multiply-adds (fma) of f32 round once. A sum of
// many terms is sixteen sums by index mod 16, each in ascending order from 0. They are folded:
// sums i and i+8 are added, then i and i+4, i and i+2, i and i+1.
//
// exp(x) is 2^n * y, where n is the integer nearest to x*log2(e), r = x - n*log(2) in two fma, and
// y = 1 + (r + r*r*p(r)) with a polynomial p in fma. Its error is below 1.01 units in the
// last place (ulp) of results that are normal numbers. Below -104 it is 0.
//
// With z = exp(-|x|), sigmoid(x)*x is x/(1+z), or x*z/(1+z) if x is negative. The quotient times
// another factor is corrected by what was rounded, so that SwiGLU and GeGLU have errors below
// 1.6 ulp of results from 2^-118 on. tanh(x) is an odd polynomial if |x| is below 0.625, otherwise
// (1-z)/(1+z) with z = exp(-2|x|), with an error below 2 ulp.
//
// Attention goes over blocks of [Keys] keys. A score is the product of a query and a key, a folded sum
// of sixteen chains of fma. The weights of a block are relative to the largest score so far, 0 if
// the score is less by more than 87, and their sum is a folded sum. The values times their weights are added in one chain of fma for each
// element, in the order of the keys.
package vector
