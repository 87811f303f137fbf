// Package simd has the inner loops of products with weights in block formats, in Go and in
// assembly. All variants of a loop have the same bits.
//
// # Activations
//
// A row of activations becomes integers of 8 bits, once for all matrices that multiply it. There
// are two forms, which begin a stretch of 256 activations every [ActBytes] bytes:
//
//   - For formats with super-blocks, 256 activations have one scale d = max|x|/127.
//   - For the other formats, 32 activations have one.
//
// A code is x*(127/max|x|), rounded to the nearest, ties to even. If max|x| is below 2^-119, the
// codes and d are 0. If it is not finite, the codes are 0 and d is not finite, so that the products
// are NaN.
//
// # Products
//
// The sums of products of integers are exact. They become f32 and are scaled as follows, where fma
// rounds once.
//
// Super-block by super-block, in ascending order, from sum = 0:
//
//	t = d*dot;  t = fma(-dmin, mins, t);  sum = fma(dAct, t, sum)
//
// where dot is the sum of scale*code*codeAct, and mins the sum of min*codeAct. A format without
// minima leaves the second step out.
//
// In the other formats, stretch by stretch of eight blocks, in ascending order, from sum = 0:
//
//	part = 0;  part += p of each block;  sum += part
//
// where p = (d*dAct)*dot. With a term m of each element, p = dAct*fma(m, codes, d*dot), where codes
// is the sum of the codes of the activations. With two scales a block, p =
// dAct*fma(d1, dot1, d0*dot0). The last stretch may have fewer blocks.
package simd
