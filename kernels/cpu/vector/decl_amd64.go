//go:build amd64 && !noasm

package vector

//go:generate go run -C ../_asm ./vector -out ../vector/vector_amd64.s

// The functions whose names end with AVX2 need AVX2, FMA and F16C; those with 512 need AVX-512 F,
// BW, DQ and VL. n is the number of elements.

// addAVX2 sets out to x + y.
//
//go:noescape
func addAVX2(out, x, y *float32, n int)

// subAVX2 sets out to x - y.
//
//go:noescape
func subAVX2(out, x, y *float32, n int)

// mulAVX2 sets out to x * y.
//
//go:noescape
func mulAVX2(out, x, y *float32, n int)

// swigluAVX2 sets out to swiglu(x, y).
//
//go:noescape
func swigluAVX2(out, x, y *float32, n int)

// gegluAVX2 sets out to geglu(x, y).
//
//go:noescape
func gegluAVX2(out, x, y *float32, n int)

// scaleAVX2 sets out to x * c.
//
//go:noescape
func scaleAVX2(out, x *float32, n int, c float32)

// softCapAVX2 sets out to c * tanh(x/c).
//
//go:noescape
func softCapAVX2(out, x *float32, n int, c float32)

// weighAVX2 sets out to x * scale * w.
//
//go:noescape
func weighAVX2(out, x, w *float32, n int, scale float32)

// squaresAVX2 adds the squares of x to 16 sums.
//
//go:noescape
func squaresAVX2(sums *float64, x *float32, n int)

// expsAVX2 sets x to exp(x-top), and adds that to 16 sums.
//
//go:noescape
func expsAVX2(sums *float64, x *float32, n int, top float32)

// mostAVX2 returns the largest of x; a NaN is larger than any number.
//
//go:noescape
func mostAVX2(x *float32, n int) float32

// add512 is addAVX2.
//
//go:noescape
func add512(out, x, y *float32, n int)

// sub512 is subAVX2.
//
//go:noescape
func sub512(out, x, y *float32, n int)

// mul512 is mulAVX2.
//
//go:noescape
func mul512(out, x, y *float32, n int)

// swiglu512 is swigluAVX2.
//
//go:noescape
func swiglu512(out, x, y *float32, n int)

// geglu512 is gegluAVX2.
//
//go:noescape
func geglu512(out, x, y *float32, n int)

// scale512 is scaleAVX2.
//
//go:noescape
func scale512(out, x *float32, n int, c float32)

// softCap512 is softCapAVX2.
//
//go:noescape
func softCap512(out, x *float32, n int, c float32)

// weigh512 is weighAVX2.
//
//go:noescape
func weigh512(out, x, w *float32, n int, scale float32)

// squares512 is squaresAVX2.
//
//go:noescape
func squares512(sums *float64, x *float32, n int)

// exps512 is expsAVX2.
//
//go:noescape
func exps512(sums *float64, x *float32, n int, top float32)

// most512 is mostAVX2.
//
//go:noescape
func most512(x *float32, n int) float32
