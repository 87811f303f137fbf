package vector

// Turn sets out to x with its pairs of neighbours rotated: (a, b) becomes (a*cos - b*sin,
// a*sin + b*cos), where each product is rounded. table has the cosine and the sine of each pair. The
// length of out is even.
func (l *Loops) Turn(out, x, table []float32) {
	x, table = x[:len(out)], table[:len(out)]
	if l.turn != nil {
		for len(out) >= 16 {
			n := min(len(out)&^15, longest)
			l.turn(&out[0], &x[0], &table[0], n)
			out, x, table = out[n:], x[n:], table[n:]
		}
	}
	for i := 0; i < len(out); i += 2 {
		out[i], out[i+1] = rotate(x[i], x[i+1], table[i], table[i+1])
	}
}

// TurnNeoX is Turn for pairs of an element of x0 and one of x1, which become those of o0 and o1.
func (l *Loops) TurnNeoX(o0, o1, x0, x1, table []float32) {
	o1, x0, x1, table = o1[:len(o0)], x0[:len(o0)], x1[:len(o0)], table[:2*len(o0)]
	if l.turnNeoX != nil {
		for len(o0) >= 16 {
			n := min(len(o0)&^15, longest)
			l.turnNeoX(&o0[0], &o1[0], &x0[0], &x1[0], &table[0], n)
			o0, o1, x0, x1, table = o0[n:], o1[n:], x0[n:], x1[n:], table[2*n:]
		}
	}
	for i := range o0 {
		o0[i], o1[i] = rotate(x0[i], x1[i], table[2*i], table[2*i+1])
	}
}

func rotate(a, b, cos, sin float32) (float32, float32) {
	return float32(a*cos) - float32(b*sin), float32(a*sin) + float32(b*cos)
}
