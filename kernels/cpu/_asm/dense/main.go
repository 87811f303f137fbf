// Command dense generates the assembly of package dense. The comments of the stubs in decl_amd64.go
// define the results.
package main

import (
	. "github.com/mmcloughlin/avo/build"
)

func main() {
	ConstraintExpr("amd64,!noasm")
	for n := 1; n <= 3; n++ {
		tile512(n, nil)
		for _, f := range formats[1:] {
			tile512(n, &f)
		}
	}
	for _, f := range formats {
		rows512(f)
	}
	for n := 1; n <= 2; n++ {
		tile2(n, nil)
		for _, f := range formats[1:] {
			tile2(n, &f)
		}
	}
	for _, f := range formats {
		rows2(f)
	}
	convert512()
	convert2()
	probes()
	Generate()
}
