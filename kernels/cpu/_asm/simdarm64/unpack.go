package main

import (
	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen/a64"
)

// The registers of the functions that unpack. They take four rows at a time.
const (
	uW, uRowBytes, uRows = R(0), R(1), R(2)
	uLanes               = R(3) // the panel, at the four rows
	uCodes               = R(4) // its codes, at the four rows
	uRow                 = R(5) // the first of four registers
)

var (
	uTmp      = []V{16, 17, 18, 19}
	uTurn     = [4]V{20, 21, 22, 23} // what transpose changes
	uRowsList = []R{uRow, uRow + 1, uRow + 2, uRow + 3}
)

// transpose makes the four words of four registers four registers of one word each.
func transpose(v [4]V) {
	t := uTurn
	TRN1(S4, t[0], v[0], v[1])
	TRN2(S4, t[1], v[0], v[1])
	TRN1(S4, t[2], v[2], v[3])
	TRN2(S4, t[3], v[2], v[3])
	ZIP1(D2, v[0], t[0], t[2])
	ZIP1(D2, v[1], t[1], t[3])
	ZIP2(D2, v[2], t[0], t[2])
	ZIP2(D2, v[3], t[1], t[3])
}

// storeCodes stores 16 codes of four rows, whose activations are at the given position.
func storeCodes(v [4]V, position int, wide bool) {
	if !wide {
		transpose(v)
		for s, x := range v {
			StoreQ(x, uCodes, (position/4+s)*stepBytes)
		}
		return
	}
	for s, zip := range []func(Lanes, V, V, V){ZIP1, ZIP2} {
		zip(D2, uTurn[0], v[0], v[1])
		zip(D2, uTurn[1], v[2], v[3])
		StoreQ(uTurn[0], uCodes, (position/8+s)*2*stepBytes)
		StoreQ(uTurn[1], uCodes, (position/8+s)*2*stepBytes+16)
	}
}

// unpack writes a function that makes a panel of 32 rows. four does so for the four rows at
// uRowsList.
func unpack(name string, wide bool, constants func(), four func()) {
	layout := "Step4"
	codes := 16
	if wide {
		layout = "Step8"
		codes = 32
	}
	Text(name+"Unpack"+layout, 24)
	Go("MOVD panel+0(FP), %v", uLanes)
	Go("MOVD %v, %v", uLanes, uCodes)
	Go("MOVD w+8(FP), %v", uW)
	Go("MOVD rowBytes+16(FP), %v", uRowBytes)
	Go("MOVD $%d, %v", panelRows/4, uRows)
	if constants != nil {
		constants()
	}
	Label("four")
	for i, r := range uRowsList {
		if i == 0 {
			Go("MOVD %v, %v", uW, r)
		} else {
			Go("ADD %v, %v, %v", uRowBytes, r-1, r)
		}
	}
	Go("ADD %v<<2, %v", uRowBytes, uW)
	four()
	Go("ADD $16, %v", uLanes)
	Go("ADD $%d, %v", codes, uCodes)
	Go("SUB $1, %v", uRows)
	Go("CBNZ %v, four", uRows)
	Go("RET")
}

// unpack writes the function of the format.
func (f *super) unpack(wide bool) {
	unpack(f.name, wide, f.constants, func() {
		for run := range f.runs {
			// Register 4*r+i has group i of the row r.
			groups := f.groups(run)
			for r, p := range uRowsList {
				out := []V{V(4 * r), V(4*r + 1), V(4*r + 2), V(4*r + 3)}
				f.codes(p, run, out, uTmp)
			}
			if f.bias > 0 {
				MOVI(uTmp[0], byte(f.bias))
			}
			for i, g := range groups {
				v := [4]V{V(i), V(4 + i), V(8 + i), V(12 + i)}
				if f.bias > 0 {
					for _, x := range v {
						SUB(B16, x, x, uTmp[0])
					}
				}
				storeCodes(v, f.position(g), wide)
			}
		}
		f.unpackScales()
	})
}

// unpackScales writes the scales, the minima and the factors of four rows. Without a bias, the pairs
// of a format without minima are 0.
func (f *super) unpackScales() {
	n := 256 / f.group
	parts := n / 8
	for r, p := range uRowsList {
		if f.scales != nil {
			f.scales(p, [2]V{V(r), V(4 + r)}, [2]V{V(8 + r), V(12 + r)}, uTmp)
			continue
		}
		MOVI(V(r), 1)
		USHR(H8, V(r), V(r), 8)
	}
	for part := range n / 4 {
		var v [4]V
		for r := range v {
			v[r] = uTmp[r]
			from := V(part/2*4 + r)
			if part%2 == 0 {
				SSHLL(H4, v[r], from, 0)
			} else {
				SSHLL(H8, v[r], from, 0)
			}
		}
		transpose(v)
		for i, x := range v {
			at := 4*part + i // a group of f.group
			if f.group == 16 {
				at = 2*f.order[at/2] + at%2
			} else {
				at = f.order[at]
			}
			StoreQ(x, uLanes, panelCodes+128*at)
		}
	}
	pairs := panelCodes + 128*n
	for part := range parts {
		v := [4]V{}
		for r := range v {
			v[r] = V(8 + 4*part + r)
			if !f.mins {
				MOVI(v[r], 0)
			}
		}
		if f.mins {
			transpose(v)
		}
		for i, x := range v {
			StoreQ(x, uLanes, pairs+128*(4*part+i))
		}
	}
	ds := pairs + 128*n/2
	var v [4]V
	for r, p := range uRowsList {
		v[r] = V(r)
		f.factors(p, v[r])
	}
	transpose(v)
	StoreQ(v[0], uLanes, ds)
	if !f.mins {
		MOVI(v[1], 0)
	}
	StoreQ(v[1], uLanes, ds+128)
}

// unpack writes the function of the format.
func (f *small) unpack(wide bool) {
	unpack(f.name, wide, f.constants, func() {
		offs := make([]int, 4)
		for b := range 8 {
			base, part := uRowsList, b%f.parts
			for r, p := range base {
				f.codes(p, 0, part, V(2*r), V(2*r+1), uTmp)
			}
			if f.bias > 0 {
				MOVI(uTmp[0], byte(f.bias))
			}
			for half := range 2 {
				v := [4]V{V(half), V(2 + half), V(4 + half), V(6 + half)}
				if f.bias > 0 {
					for _, x := range v {
						SUB(B16, x, x, uTmp[0])
					}
				}
				storeCodes(v, 32*b+16*half, wide)
			}
			parts := []int{part, part, part, part}
			f.scales(8, base, offs, parts, false, uTmp)
			StoreQ(8, uLanes, panelCodes+128*b)
			switch {
			case f.term > 0:
				gather(8, base, offs, f.term, uTmp)
			case f.two:
				f.scales(8, base, offs, parts, true, uTmp)
			default:
				MOVI(8, 0)
			}
			StoreQ(8, uLanes, panelCodes+8*128+128*b)
			if part < f.parts-1 {
				continue
			}
			for _, p := range base {
				Go("ADD $%d, %v", f.bytes, p)
			}
		}
	})
}

// unpackers writes the functions that unpack.
func unpackers() {
	for _, wide := range []bool{false, true} {
		for _, f := range supers() {
			f.unpack(wide)
		}
		for _, f := range smalls() {
			f.unpack(wide)
		}
	}
}
