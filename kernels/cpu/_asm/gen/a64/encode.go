package a64

import "fmt"

// R is a general register. Its String is its name in Go's notation.
type R uint32

func (r R) String() string { return fmt.Sprintf("R%d", uint32(r)) }

// V is a vector register.
type V uint32

// Lanes is how an instruction divides a vector register.
type Lanes uint32

// A Lanes has the Q bit in bit 2, and the logarithm of the bytes of an element in bits 0 and 1.
const (
	B8  Lanes = 0
	H4  Lanes = 1
	S2  Lanes = 2
	B16 Lanes = 4
	H8  Lanes = 5
	S4  Lanes = 6
	D2  Lanes = 7
)

func (l Lanes) String() string {
	return [...]string{"8b", "4h", "2s", "1d", "16b", "8h", "4s", "2d"}[l]
}

func (l Lanes) q() uint32    { return uint32(l) >> 2 << 30 }
func (l Lanes) size() uint32 { return uint32(l) & 3 }
func (l Lanes) wide() Lanes  { return B16 | Lanes(l.size()+1) } // of the result of a long instruction
func (l Lanes) unit() string { return "bhsd"[l.size() : l.size()+1] }

// check panics if an operand does not fit into its field.
func check(ok bool, name string, operands ...any) {
	if !ok {
		panic(fmt.Sprint(name, operands))
	}
}

// same writes an instruction with three registers of equal lanes.
func same(name string, base uint32, l Lanes, d, n, m V) {
	word(base|l.q()|l.size()<<22|uint32(m)<<16|uint32(n)<<5|uint32(d), "%s v%d.%v, v%d.%v, v%d.%v", name, d, l, n, l, m, l)
}

// float is same for lanes of f32.
func float(name string, base uint32, d, n, m V) {
	word(base|1<<30|uint32(m)<<16|uint32(n)<<5|uint32(d), "%s v%d.4s, v%d.4s, v%d.4s", name, d, n, m)
}

// logic is same for whole registers.
func logic(name string, base uint32, d, n, m V) {
	word(base|1<<30|uint32(m)<<16|uint32(n)<<5|uint32(d), "%s v%d.16b, v%d.16b, v%d.16b", name, d, n, m)
}

func ADD(l Lanes, d, n, m V)   { same("add", 0x0e208400, l, d, n, m) }
func SUB(l Lanes, d, n, m V)   { same("sub", 0x2e208400, l, d, n, m) }
func MLA(l Lanes, d, n, m V)   { same("mla", 0x0e209400, l, d, n, m) }
func MUL(l Lanes, d, n, m V)   { same("mul", 0x0e209c00, l, d, n, m) }
func ADDP(l Lanes, d, n, m V)  { same("addp", 0x0e20bc00, l, d, n, m) }
func CMTST(l Lanes, d, n, m V) { same("cmtst", 0x0e208c00, l, d, n, m) }
func CMEQ(l Lanes, d, n, m V)  { same("cmeq", 0x2e208c00, l, d, n, m) }
func CMHI(l Lanes, d, n, m V)  { same("cmhi", 0x2e203400, l, d, n, m) }
func USHL(l Lanes, d, n, m V)  { same("ushl", 0x2e204400, l, d, n, m) }
func UMAX(l Lanes, d, n, m V)  { same("umax", 0x2e206400, l, d, n, m) }

func UZP1(l Lanes, d, n, m V) { same("uzp1", 0x0e001800, l, d, n, m) }
func UZP2(l Lanes, d, n, m V) { same("uzp2", 0x0e005800, l, d, n, m) }
func TRN1(l Lanes, d, n, m V) { same("trn1", 0x0e002800, l, d, n, m) }
func TRN2(l Lanes, d, n, m V) { same("trn2", 0x0e006800, l, d, n, m) }
func ZIP1(l Lanes, d, n, m V) { same("zip1", 0x0e003800, l, d, n, m) }
func ZIP2(l Lanes, d, n, m V) { same("zip2", 0x0e007800, l, d, n, m) }

func FADD(d, n, m V) { float("fadd", 0x0e20d400, d, n, m) }
func FMUL(d, n, m V) { float("fmul", 0x2e20dc00, d, n, m) }
func FMLA(d, n, m V) { float("fmla", 0x0e20cc00, d, n, m) }
func FMLS(d, n, m V) { float("fmls", 0x0ea0cc00, d, n, m) }

func AND(d, n, m V) { logic("and", 0x0e201c00, d, n, m) }
func BIC(d, n, m V) { logic("bic", 0x0e601c00, d, n, m) }
func EOR(d, n, m V) { logic("eor", 0x2e201c00, d, n, m) }
func ORR(d, n, m V) { logic("orr", 0x0ea01c00, d, n, m) }
func BIT(d, n, m V) { logic("bit", 0x2ea01c00, d, n, m) }

// TBL sets the bytes of d to those of n that the bytes of m index, or to 0.
func TBL(d, n, m V) {
	word(0x4e000000|uint32(m)<<16|uint32(n)<<5|uint32(d), "tbl v%d.16b, {v%d.16b}, v%d.16b", d, n, m)
}

// unary writes an instruction with one source, whose lanes are those of the result.
func unary(name string, base uint32, l Lanes, d, n V) {
	word(base|l.q()|uint32(n)<<5|uint32(d), "%s v%d.%v, v%d.%v", name, d, l, n, l)
}

func SCVTF(d, n V)  { unary("scvtf", 0x0e21d800, S4, d, n) }
func FCVTNS(d, n V) { unary("fcvtns", 0x0e21a800, S4, d, n) }

// FCVTL widens the lower four halves of n.
func FCVTL(d, n V) { word(0x0e217800|uint32(n)<<5|uint32(d), "fcvtl v%d.4s, v%d.4h", d, n) }

// pairs writes an instruction that adds neighbours of the lanes l of n to lanes of twice their size.
func pairs(name string, base uint32, l Lanes, d, n V) {
	w := l + 1 // as many bytes in all
	word(base|l.q()|l.size()<<22|uint32(n)<<5|uint32(d), "%s v%d.%v, v%d.%v", name, d, w, n, l)
}

func SADDLP(l Lanes, d, n V) { pairs("saddlp", 0x0e202800, l, d, n) }
func SADALP(l Lanes, d, n V) { pairs("sadalp", 0x0e206800, l, d, n) }

// XTN narrows the lanes, of twice the size of those of l. The lanes B16, H8 and S4 stand for the
// upper half of d, as in XTN2.
func XTN(l Lanes, d, n V) {
	word(0x0e212800|l.q()|l.size()<<22|uint32(n)<<5|uint32(d), "xtn%s v%d.%v, v%d.%v", second(l), d, l, n, l.wide())
}

func second(l Lanes) string {
	if l >= B16 {
		return "2"
	}
	return ""
}

// long writes an instruction whose result has lanes of twice the size. With the lanes B16, H8 and S4
// the sources are the upper halves.
func long(name string, base uint32, l Lanes, d, n, m V) {
	word(base|l.q()|l.size()<<22|uint32(m)<<16|uint32(n)<<5|uint32(d), "%s%s v%d.%v, v%d.%v, v%d.%v", name, second(l), d, l.wide(), n, l, m, l)
}

func SMULL(l Lanes, d, n, m V) { long("smull", 0x0e20c000, l, d, n, m) }
func SMLAL(l Lanes, d, n, m V) { long("smlal", 0x0e208000, l, d, n, m) }

// SMLALElement multiplies by lane i of m, a half, where m is below 16.
func SMLALElement(l Lanes, d, n, m V, i int) {
	check(l.size() == 1 && m < 16 && i < 8, "smlal", l, m, i)
	e := uint32(i)
	word(0x0f402000|l.q()|(e&3)<<20|e>>2<<11|uint32(m)<<16|uint32(n)<<5|uint32(d),
		"smlal%s v%d.4s, v%d.%v, v%d.h[%d]", second(l), d, n, l, m, i)
}

// element writes an instruction with lanes of words, the last source being lane i of m.
func element(name string, base uint32, d, n, m V, i int) {
	check(i < 4, name, i)
	e := uint32(i)
	word(base|(e&1)<<21|e>>1<<11|uint32(m)<<16|uint32(n)<<5|uint32(d), "%s v%d.4s, v%d.4s, v%d.s[%d]", name, d, n, m, i)
}

func MLAElement(d, n, m V, i int)  { element("mla", 0x6f800000, d, n, m, i) }
func FMLAElement(d, n, m V, i int) { element("fmla", 0x4f801000, d, n, m, i) }
func FMULElement(d, n, m V, i int) { element("fmul", 0x4f809000, d, n, m, i) }

// SDOT needs the extension of dot products.
func SDOT(d, n, m V) {
	word(0x4e809400|uint32(m)<<16|uint32(n)<<5|uint32(d), "sdot v%d.4s, v%d.16b, v%d.16b", d, n, m)
}

// SDOTElement multiplies by the four bytes of word i of m.
func SDOTElement(d, n, m V, i int) {
	check(i < 4, "sdot", i)
	e := uint32(i)
	word(0x4f80e000|(e&1)<<21|e>>1<<11|uint32(m)<<16|uint32(n)<<5|uint32(d), "sdot v%d.4s, v%d.16b, v%d.4b[%d]", d, n, m, i)
}

// SMMLA needs the extension of products of matrices of 8 bits.
func SMMLA(d, n, m V) {
	word(0x4e80a400|uint32(m)<<16|uint32(n)<<5|uint32(d), "smmla v%d.4s, v%d.16b, v%d.16b", d, n, m)
}

// across writes an instruction that reduces all lanes to a scalar.
func across(name string, base uint32, unit string, l Lanes, d, n V) {
	word(base|l.q()|l.size()<<22|uint32(n)<<5|uint32(d), "%s %s%d, v%d.%v", name, unit, d, n, l)
}

func ADDV(l Lanes, d, n V)   { across("addv", 0x0e31b800, l.unit(), l, d, n) }
func UMAXV(l Lanes, d, n V)  { across("umaxv", 0x2e30a800, l.unit(), l, d, n) }
func SADDLV(l Lanes, d, n V) { across("saddlv", 0x0e303800, l.wide().unit(), l, d, n) }

// shift writes a shift by a constant, which field encodes.
func shift(name string, base uint32, l Lanes, d, n V, by, field int) {
	bits := 8 << l.size()
	check(by >= 0 && by <= bits, name, l, by)
	word(base|l.q()|uint32(field)<<16|uint32(n)<<5|uint32(d), "%s v%d.%v, v%d.%v, #%d", name, d, l, n, l, by)
}

func USHR(l Lanes, d, n V, by int) { shift("ushr", 0x2f000400, l, d, n, by, 16<<l.size()-by) }
func SHL(l Lanes, d, n V, by int) {
	check(by < 8<<l.size(), "shl", by)
	shift("shl", 0x0f005400, l, d, n, by, 8<<l.size()+by)
}

// lengthen writes a shift to lanes of twice the size.
func lengthen(name string, base uint32, l Lanes, d, n V, by int) {
	check(by >= 0 && by < 8<<l.size(), name, by)
	word(base|l.q()|uint32(8<<l.size()+by)<<16|uint32(n)<<5|uint32(d), "%s%s v%d.%v, v%d.%v, #%d", name, second(l), d, l.wide(), n, l, by)
}

func SSHLL(l Lanes, d, n V, by int) { lengthen("sshll", 0x0f00a400, l, d, n, by) }
func USHLL(l Lanes, d, n V, by int) { lengthen("ushll", 0x2f00a400, l, d, n, by) }

// MOVI sets all bytes.
func MOVI(d V, b byte) {
	word(0x4f00e400|uint32(b>>5)<<16|uint32(b&31)<<5|uint32(d), "movi v%d.16b, #%d", d, b)
}

// DUP sets all lanes to lane i of n.
func DUP(l Lanes, d, n V, i int) {
	word(0x0e000400|l.q()|lane(l, i)<<16|uint32(n)<<5|uint32(d), "dup v%d.%v, v%d.%s[%d]", d, l, n, l.unit(), i)
}

// DUPScalar sets the scalar d, a word, to lane i of n.
func DUPScalar(d, n V, i int) {
	word(0x5e000400|lane(S4, i)<<16|uint32(n)<<5|uint32(d), "dup s%d, v%d.s[%d]", d, n, i)
}

// DUPGeneral sets all words to r.
func DUPGeneral(d V, r R) {
	word(0x4e040c00|uint32(r)<<5|uint32(d), "dup v%d.4s, w%d", d, uint32(r))
}

// INS sets lane i of d to lane j of n.
func INS(l Lanes, d V, i int, n V, j int) {
	word(0x6e000400|lane(l, i)<<16|uint32(j)<<(l.size()+11)|uint32(n)<<5|uint32(d), "ins v%d.%s[%d], v%d.%s[%d]", d, l.unit(), i, n, l.unit(), j)
}

// lane encodes the lane i of an element of the size of those of l.
func lane(l Lanes, i int) uint32 {
	check(i < 16>>l.size(), "lane", l, i)
	return (uint32(i)<<1 | 1) << l.size()
}

// scalar writes an instruction of scalars of f32.
func scalar(name string, base uint32, d, n, m V) {
	word(base|uint32(m)<<16|uint32(n)<<5|uint32(d), "%s s%d, s%d, s%d", name, d, n, m)
}

func FADDScalar(d, n, m V) { scalar("fadd", 0x1e202800, d, n, m) }
func FMULScalar(d, n, m V) { scalar("fmul", 0x1e200800, d, n, m) }
func FDIVScalar(d, n, m V) { scalar("fdiv", 0x1e201800, d, n, m) }

// FMADD sets d to n*m + a.
func FMADD(d, n, m, a V) {
	word(0x1f000000|uint32(m)<<16|uint32(a)<<10|uint32(n)<<5|uint32(d), "fmadd s%d, s%d, s%d, s%d", d, n, m, a)
}

// scalarElement writes an instruction of a scalar and lane i of m.
func scalarElement(name string, base uint32, d, n, m V, i int) {
	check(i < 4, name, i)
	e := uint32(i)
	word(base|(e&1)<<21|e>>1<<11|uint32(m)<<16|uint32(n)<<5|uint32(d), "%s s%d, s%d, v%d.s[%d]", name, d, n, m, i)
}

func FMULScalarElement(d, n, m V, i int) { scalarElement("fmul", 0x5f809000, d, n, m, i) }
func FMLSScalarElement(d, n, m V, i int) { scalarElement("fmls", 0x5f805000, d, n, m, i) }

// FMOVToGeneral sets r to the word n, and FMOVToScalar d to the word r.
func FMOVToGeneral(r R, n V) {
	word(0x1e260000|uint32(n)<<5|uint32(r), "fmov w%d, s%d", uint32(r), n)
}

func FMOVToScalar(d V, r R) {
	word(0x1e270000|uint32(r)<<5|uint32(d), "fmov s%d, w%d", d, uint32(r))
}

// units has the names of the scalars of a size, and the fields of their loads and stores.
var units = [...]struct {
	name              string
	size              int
	load, near, store uint32
}{
	{"b", 1, 0x3d400000, 0x3c400000, 0x3d000000},
	{"h", 2, 0x7d400000, 0x7c400000, 0x7d000000},
	{"s", 4, 0xbd400000, 0xbc400000, 0xbd000000},
	{"d", 8, 0xfd400000, 0xfc400000, 0xfd000000},
	{"q", 16, 0x3dc00000, 0x3cc00000, 0x3d800000},
}

// load loads a scalar or a register from r + off.
func load(unit int, d V, r R, off int) {
	u := &units[unit]
	if off >= 0 && off%u.size == 0 && off/u.size < 1<<12 {
		word(u.load|uint32(off/u.size)<<10|uint32(r)<<5|uint32(d), "ldr %s%d, [x%d, #%d]", u.name, d, uint32(r), off)
		return
	}
	check(off >= -256 && off < 256, "ldur", off)
	word(u.near|uint32(off)&0x1ff<<12|uint32(r)<<5|uint32(d), "ldur %s%d, [x%d, #%d]", u.name, d, uint32(r), off)
}

func LoadB(d V, r R, off int) { load(0, d, r, off) }
func LoadH(d V, r R, off int) { load(1, d, r, off) }
func LoadS(d V, r R, off int) { load(2, d, r, off) }
func LoadD(d V, r R, off int) { load(3, d, r, off) }
func LoadQ(d V, r R, off int) { load(4, d, r, off) }

func store(unit int, d V, r R, off int) {
	u := &units[unit]
	check(off >= 0 && off%u.size == 0 && off/u.size < 1<<12, "str", off)
	word(u.store|uint32(off/u.size)<<10|uint32(r)<<5|uint32(d), "str %s%d, [x%d, #%d]", u.name, d, uint32(r), off)
}

func StoreH(d V, r R, off int) { store(1, d, r, off) }
func StoreS(d V, r R, off int) { store(2, d, r, off) }
func StoreQ(d V, r R, off int) { store(4, d, r, off) }

// LoadPair loads two registers from r + off.
func LoadPair(d, e V, r R, off int) { pair("ldp", 0xad400000, d, e, r, off) }

// StorePair stores two registers at r + off.
func StorePair(d, e V, r R, off int) { pair("stp", 0xad000000, d, e, r, off) }

func pair(name string, base uint32, d, e V, r R, off int) {
	check(off%16 == 0 && off >= -1024 && off < 1024, name, off)
	word(base|uint32(off/16)&0x7f<<15|uint32(e)<<10|uint32(r)<<5|uint32(d), "%s q%d, q%d, [x%d, #%d]", name, d, e, uint32(r), off)
}
