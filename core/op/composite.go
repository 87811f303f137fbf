package op

import "math"

// first returns the first refusal of the list.
func first(list ...Refusal) Refusal {
	for _, r := range list {
		if !r.OK() {
			return r
		}
	}
	return Refusal{}
}

// rank refuses the operand at p unless it has n axes.
func rank(a *Args, p Place, n int) Refusal {
	if got := a.At(p).Shape.Rank(); got != n {
		return Refusal{Why: WrongRank, Place: p, Got: got, Want: n}
	}
	return Refusal{}
}

func inferAttention(a *Args) (shapes, Refusal) {
	n := 3
	for _, pair := range [...][2]Place{{4, 5}, {5, 4}} {
		if a.Has(pair[0]) {
			if n = 4; !a.Has(pair[1]) {
				return shapes{}, Refusal{Why: Missing, Place: pair[1], Other: pair[0]}
			}
		}
	}
	if r := first(rank(a, 1, n), rank(a, 2, n)); !r.OK() {
		return shapes{}, r
	}
	q, k, v := &a.In[0].Shape, &a.In[1].Shape, &a.In[2].Shape
	if r := sameSize(a, 1, -1, 0, 2); !r.OK() {
		return shapes{}, r
	}
	for i := range n - 1 {
		if r := sameSize(a, 2, i, 1, i); !r.OK() {
			return shapes{}, r
		}
	}
	if heads := k.Dim(-2); q.Dim(1)%heads != 0 {
		return shapes{}, Refusal{Why: NotMultiple, Place: 0, Axis: 1, Other: 1, OtherAxis: axisOf(k, -2), Got: q.Dim(1), Want: heads}
	}
	if r := sameSize(a, 3, 0, 0, 0); !r.OK() {
		return shapes{}, r
	}
	if n == 4 {
		if r := sameSize(a, 4, 0, 0, 0); !r.OK() {
			return shapes{}, r
		}
	}
	if a.Window < 0 {
		return shapes{}, Refusal{Why: WrongParam, Param: WindowParam, Value: float64(a.Window)}
	}
	s := *q
	s.Set(2, v.Dim(-1))
	return only(s)
}

// attentionKeys returns the number of keys that a sequence of Attention has room for.
func attentionKeys(a *Args) int {
	if !a.Has(5) {
		return a.In[1].Shape.Dim(0)
	}
	pages, rows := a.In[5].Shape.Dim(1), a.In[1].Shape.Dim(1)
	if pages > math.MaxInt/rows {
		return math.MaxInt
	}
	return pages * rows
}

func inferSetRows(a *Args) (shapes, Refusal) {
	x, out := &a.In[0].Shape, &a.Out[0].Shape
	if n := out.Rank(); n != 2 && n != 3 {
		return shapes{}, Refusal{Why: WrongRank, Place: FirstOut, Got: n, Want: min(max(2, n), 3)} // the nearest
	}
	if got, want := out.Dim(-1), x.Dim(1); got != want {
		return shapes{}, Refusal{Why: WrongSize, Place: FirstOut, Axis: axisOf(out, -1), Other: 0, OtherAxis: 1, Got: got, Want: want}
	}
	if r := sameSize(a, 1, 0, 0, 0); !r.OK() {
		return shapes{}, r
	}
	return only(*out)
}

func inferAddRMSNorm(a *Args) (shapes, Refusal) {
	x := a.In[0].Shape
	r := first(goodEps(a), sameShape(&a.In[1].Shape, &x, 1, 0), sameSize(a, 2, 0, 0, -1))
	return shapes{x, x}, r
}

// goodProducts checks the matrices at the places 1 to n, where they are present, and their
// biases at the places from bias on. It returns the columns of all products.
func goodProducts(a *Args, n int, bias Place) (columns int, r Refusal) {
	for i := range n {
		w, b := Place(1+i), bias+Place(i)
		if !a.Has(w) {
			if a.Has(b) {
				return 0, Refusal{Why: Missing, Place: w, Other: b}
			}
			continue
		}
		if r := first(sameSize(a, int(w), 1, 0, -1), goodChunks(a, w)); !r.OK() {
			return 0, r
		}
		if a.Has(b) {
			if r := sameSize(a, int(b), 0, int(w), 0); !r.OK() {
				return 0, r
			}
		}
		if s := float64(a.Scales[i]); math.IsNaN(s) || math.IsInf(s, 0) {
			return 0, Refusal{Why: WrongParam, Param: ScaleParam, Value: s}
		}
		size := a.In[w].Shape.Dim(0)
		if columns > math.MaxInt-size {
			return 0, Refusal{Why: Overflow, Place: FirstOut}
		}
		columns += size
	}
	return columns, Refusal{}
}

// goodChunks checks that the parameter Chunks divides the rows of the matrix at p into whole
// blocks.
func goodChunks(a *Args, p Place) Refusal {
	n, w := a.Chunks, &a.In[p]
	if n == 0 || n > 0 && n <= MaxChunks && n&(n-1) == 0 && w.Shape.Dim(-1)%(n*w.DType.BlockSize()) == 0 {
		return Refusal{}
	}
	return Refusal{Why: WrongParam, Place: p, Param: ChunksParam, Value: float64(n)}
}

func inferProject(a *Args) (shapes, Refusal) {
	n, r := goodProducts(a, 3, 4)
	if !r.OK() {
		return shapes{}, r
	}
	s := a.In[0].Shape
	s.Set(s.Rank()-1, n)
	if a.Has(7) {
		return shapes{s}, sameShape(&a.In[7].Shape, &s, 7, NoPlace)
	}
	return only(s)
}

func inferGatedProject(a *Args) (shapes, Refusal) {
	if a.Act > GELU {
		return shapes{}, Refusal{Why: WrongParam, Param: ActParam, Value: float64(a.Act)}
	}
	if _, r := goodProducts(a, 2, 3); !r.OK() {
		return shapes{}, r
	}
	if r := sameSize(a, 2, 0, 1, 0); !r.OK() {
		return shapes{}, r
	}
	s := a.In[0].Shape
	s.Set(s.Rank()-1, a.In[1].Shape.Dim(0))
	return only(s)
}

func inferRotateStore(a *Args) (shapes, Refusal) {
	q, k, v := a.In[0].Shape, &a.In[1].Shape, &a.In[2].Shape
	r := first(
		sameSize(a, 1, 0, 0, 0), sameSize(a, 1, 2, 0, 2), sameSize(a, 2, 0, 0, 0), sameSize(a, 2, 1, 1, 1),
		goodAngles(a, 3), sameSize(a, 4, 0, 0, 0),
	)
	if !r.OK() {
		return shapes{}, r
	}
	for p := Place(5); p < 7; p++ {
		if !a.Has(p) {
			continue
		}
		if r := first(goodEps(a), sameSize(a, int(p), 0, 0, 2)); !r.OK() {
			return shapes{}, r
		}
	}
	cache := &a.Out[1]
	block := cache.DType.BlockSize()
	for p := Place(1); p < 3; p++ {
		if n := a.In[p].Shape.Dim(2); n%block != 0 {
			return shapes{}, Refusal{Why: NotMultiple, Place: p, Axis: 2, Other: NoPlace, Got: n, Want: block}
		}
	}
	// The sizes in bytes of k and v fit an int, and so does the sum of their elements.
	row := k.Dim(1) * (k.Dim(2) + v.Dim(2))
	if n := cache.Shape.Dim(1); n%row != 0 {
		return shapes{}, Refusal{Why: NotMultiple, Place: FirstOut + 1, Axis: 1, Other: NoPlace, Got: n, Want: row}
	}
	return shapes{q, cache.Shape}, Refusal{}
}

// PageRows returns the number of rows of a page of the cache of RotateStore.
func (a *Args) PageRows() int {
	k, v := &a.In[1].Shape, &a.In[2].Shape
	return a.Out[1].Shape.Dim(1) / (k.Dim(1) * (k.Dim(2) + v.Dim(2)))
}
