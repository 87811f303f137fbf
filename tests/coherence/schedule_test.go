package coherence

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
)

type kind int

const (
	makeTensor  kind = iota // out = data, in memory of the kind home
	compute                 // out = op(in...)
	copyTo                  // in[0] = in[1]
	makeView                // out = a view of in[0]
	read                    // in[0] must equal want
	abandonRead             // a cancelled read of in[0]; its transfer may continue
	write                   // some of in[0]'s host bytes change
	release                 // release in[0]
	evict                   // drop the device copy of in[0], if the host copy is valid
	hold                    // no work of the device ends until resume
	resume
	spawn  // a background read of in[0], which must equal want
	join   // wait for the background read number out
	derive // attach a shadow to in[0]; Shadow must return only a current one
	fork   // two goroutines, one per queue, which read shared tensors
)

// home is the kind of memory that makeTensor uses.
type home int

const (
	pooled home = iota
	own         // a buffer outside the pool
	stable      // own, and declared stable
	lent        // the caller's bytes
	weight      // lent, read-only and stable
	empty       // memory that the first write allocates; the next steps fill it
	homes
)

var homeNames = [homes]string{"pooled", "own", "stable", "lent", "read-only stable", "empty"}

// reshaping is the kind of view that makeView makes.
type reshaping int

const (
	retain reshaping = iota
	narrow
	permute
	reshape
	broadcast
	window // overlapping parts of a vector
)

// mode is how read, abandonRead and spawn read a tensor.
type mode int

const (
	whole   mode = iota // Bytes; Materialize first if the view is not contiguous
	ranged              // Buffer.ReadAt
	gathers             // Materialize, then Bytes
)

// patch has bytes to write at an offset of a contiguous view.
type patch struct {
	at   int
	data []byte
}

// step is one call of the schedule, or a few that belong together. A tensor is identified by
// its number.
type step struct {
	kind kind
	ctx  int // index of the queue
	in   []int
	out  int

	op    op.ID
	dt    dtype.DType
	shape shape.Shape
	scale float32
	home  home
	data  []byte

	view        reshaping
	order       []int // for permute
	axis, start int   // for narrow; start is also the beginning of a window
	strides     shape.Shape

	mode      mode
	at        int // first byte in the buffer, for a ranged read
	want      []byte
	patches   []patch
	overwrite bool
	cancelled bool // try first with a cancelled context

	branches [2][]step

	text func() string
}

func (s *step) String() string { return s.text() }

// schedule is the sequence of steps that a seed determines.
type schedule struct {
	seed    uint64
	steps   []step
	tensors int // number of tensors
	readers int // number of background reads
}

func (s *schedule) trace(upTo int) string {
	var b strings.Builder
	for i := range s.steps {
		mark := ""
		if i == upTo {
			mark = "   <-- here"
		}
		fmt.Fprintf(&b, "%4d  %s%s\n", i, &s.steps[i], mark)
	}
	return b.String()
}

// generator makes a schedule and runs it on the model.
type generator struct {
	rng     *rand.Rand
	kernels kernels
	out     schedule
	live    []*view
	buffers int
	held    bool
	columns [2]int // row lengths of this schedule
	rows    int    // largest number of rows of a new tensor
}

// rowLengths lie around the borders of the pools' size classes, in f32 elements.
var rowLengths = []int{1, 3, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 127, 128, 129, 255, 256, 257}

// longRows are used in some schedules.
var longRows = []int{511, 512, 513, 1023, 1024, 1025}

const (
	maxElements = 4096
	maxLive     = 12
)

func generate(k kernels, seed uint64) *schedule {
	g := &generator{rng: rand.New(rand.NewPCG(seed, 0xf0c1)), kernels: k}
	g.out.seed = seed
	for i := range g.columns {
		g.columns[i] = pick(g.rng, rowLengths)
	}
	if g.chance(12) {
		g.columns[1] = pick(g.rng, longRows)
	}
	g.rows = 1 + g.rng.IntN(5)
	for range 3 {
		g.make()
	}
	for n := 20 + g.rng.IntN(41); len(g.out.steps) < n; {
		g.one()
		if g.chance(4) {
			g.check(pick(g.rng, g.live))
		}
		for len(g.live) < 3 {
			g.make()
		}
	}
	g.end()
	return &g.out
}

func pick[T any](rng *rand.Rand, list []T) T { return list[rng.IntN(len(list))] }

// chance is true one time in n.
func (g *generator) chance(n int) bool { return g.rng.IntN(n) == 0 }

func (g *generator) emit(s step, format string, args ...any) {
	s.text = func() string { return fmt.Sprintf(format, args...) }
	g.out.steps = append(g.out.steps, s)
}

func (g *generator) context() int { return g.rng.IntN(2) }

// one emits a step, or several steps that make a special case.
func (g *generator) one() {
	if len(g.live) > maxLive {
		g.release(pick(g.rng, g.live))
		return
	}
	switch n := g.rng.IntN(100); {
	case n < 8:
		g.make()
	case n < 34:
		g.compute(g.context(), nil)
	case n < 40:
		// One queue reads at once what the other has computed.
		ctx := g.context()
		if v := g.compute(ctx, nil); v != nil {
			g.compute(1-ctx, v)
		}
	case n < 46:
		// One queue writes at once what the other reads.
		ctx, v := g.context(), pick(g.rng, g.live)
		if g.compute(ctx, v) != nil {
			g.copyTo(1-ctx, v)
		}
	case n < 49:
		// Both queues run the same operation, on memory of the same sizes.
		ctx := g.context()
		if v := g.compute(ctx, nil); v != nil {
			g.again(1-ctx, v)
		}
	case n < 57:
		g.copyTo(g.context(), pick(g.rng, g.live))
	case n < 67:
		g.view(pick(g.rng, g.live))
	case n < 73:
		g.write(pick(g.rng, g.live))
	case n < 82:
		g.releaseAndReuse()
	case n < 86:
		v := pick(g.rng, g.live)
		g.emit(step{kind: evict, in: []int{v.id}}, "evict %s", v)
	case n < 89:
		g.hold()
	case n < 93:
		v, m := pick(g.rng, g.live), whole
		if !v.contiguous() || g.chance(3) {
			m = ranged
		}
		s := g.reading(abandonRead, v, m)
		g.emit(s, "cancelled read of %s", described{&s, v})
		switch g.rng.IntN(3) { // during the read
		case 0:
			g.copyTo(g.context(), v)
		case 1:
			g.release(v)
			g.make()
			g.compute(g.context(), nil)
		}
	case n < 95:
		v := pick(g.rng, g.live)
		g.spawn(v)
		if g.chance(2) {
			// The device copy is dropped, possibly during the read.
			g.check(v)
			g.emit(step{kind: evict, in: []int{v.id}}, "evict %s", v)
			g.compute(g.context(), nil)
			g.compute(g.context(), nil)
		}
	case n < 97:
		if v := pick(g.rng, g.live); v.contiguous() {
			g.emit(step{kind: derive, in: []int{v.id}}, "derive a shadow of %s", v)
		}
	default:
		g.fork()
	}
}

// fork emits two branches that make new tensors, read, and evict. A branch does not use
// tensors of the other one.
func (g *generator) fork() {
	st := step{kind: fork}
	before, steps := g.live, g.out.steps
	made := [2][]*view{}
	for ctx := range st.branches {
		g.live, g.out.steps = slices.Clone(before), nil
		for range 2 + g.rng.IntN(3) {
			switch v := pick(g.rng, g.live); g.rng.IntN(6) {
			case 0:
				g.emit(step{kind: evict, in: []int{v.id}}, "evict %s", v)
			case 1:
				if v.contiguous() {
					s := g.reading(read, v, whole)
					g.emit(s, "read %s", v)
				}
			default:
				g.compute(ctx, v)
			}
		}
		st.branches[ctx], made[ctx] = g.out.steps, g.live[len(before):]
	}
	g.live, g.out.steps = slices.Concat(before, made[0], made[1]), steps
	g.emit(st, "two goroutines:\n\t%v\n      and\n\t%v", branch(st.branches[0]), branch(st.branches[1]))
}

type branch []step

func (b branch) String() string {
	lines := make([]string, len(b))
	for i := range b {
		lines[i] = b[i].String()
	}
	return strings.Join(lines, "\n\t")
}

// end emits the last reads, the joins and the releases.
func (g *generator) end() {
	g.rng.Shuffle(len(g.live), func(i, j int) { g.live[i], g.live[j] = g.live[j], g.live[i] })
	for _, v := range g.live {
		g.check(v)
	}
	if g.held {
		g.hold()
	}
	for range g.rng.IntN(4) {
		g.compute(g.context(), nil)
	}
	if g.chance(3) {
		g.hold()
	}
	for len(g.live) > 0 {
		g.release(pick(g.rng, g.live))
	}
	if g.held {
		g.hold()
	}
}

func (g *generator) hold() {
	if g.held = !g.held; g.held {
		g.emit(step{kind: hold}, "hold the device")
	} else {
		g.emit(step{kind: resume}, "resume the device")
	}
}

// add gives a new view its number.
func (g *generator) add(v *view) *view {
	v.id = g.out.tensors
	g.out.tensors++
	g.live = append(g.live, v)
	return v
}

// fresh returns a new contiguous tensor over memory of its own.
func (g *generator) fresh(d dtype.DType, s shape.Shape, p []byte) *view {
	m := &memory{id: g.buffers, bytes: p}
	g.buffers++
	return g.add(&view{mem: m, dt: d, shape: s, strides: s.Contiguous()})
}

// values returns n elements that differ from earlier contents.
func (g *generator) values(d dtype.DType, n int) []byte {
	p := alignedBytes(n * d.Size())
	small := g.chance(2)
	for i := range n {
		x := float32(g.rng.IntN(256)-128) / 8
		switch d {
		case dtype.F32:
			elements[float32](p)[i] = x
		case dtype.F16:
			elements[uint16](p)[i] = uint16(dtype.F16FromFloat32(x))
		case dtype.I32:
			if elements[int32](p)[i] = int32(g.rng.IntN(256) - 128); small { // may be used as ids
				elements[int32](p)[i] &= 3
			}
		}
	}
	return p
}

func (g *generator) shape(d dtype.DType) shape.Shape {
	rows, columns := 1+g.rng.IntN(g.rows), g.columns[g.rng.IntN(2)]
	switch n := g.rng.IntN(8); {
	case d == dtype.I32 && n < 4:
		return shape.Must(rows)
	case n == 4:
		return shape.Must(columns)
	case n == 5:
		return shape.Must(1, columns)
	}
	return shape.Must(rows, columns)
}

func (g *generator) make() *view {
	d := pick(g.rng, []dtype.DType{dtype.F32, dtype.F32, dtype.F32, dtype.F16, dtype.I32})
	return g.makeAs(d, g.shape(d))
}

func (g *generator) makeAs(d dtype.DType, s shape.Shape) *view {
	n, err := s.Elements()
	if err != nil {
		panic(err)
	}
	h := home(g.rng.IntN(int(homes)))
	data := g.values(d, n)
	v := g.fresh(d, s, slices.Clone(data))
	v.mem.readOnly, v.mem.lent = h == weight, h == lent || h == weight
	st := step{kind: makeTensor, ctx: g.context(), out: v.id, dt: d, shape: s, home: h, data: data}
	g.emit(st, "ctx%d %s = %s memory", st.ctx, v, homeNames[h])
	if h == empty {
		g.fill(v)
	}
	return v
}

// fill writes every element of a tensor whose contents are undefined.
func (g *generator) fill(v *view) {
	for _, src := range g.live {
		if src.mem != v.mem && src.shape == v.shape && g.fits(v.dt, src) && g.chance(2) {
			if rows := v.shape.Dim(0); rows > 1 && g.chance(2) {
				// Another queue fills each half.
				cut, ctx := 1+g.rng.IntN(rows-1), g.context()
				g.copyRows(ctx, v, src, 0, cut)
				g.copyRows(1-ctx, v, src, cut, rows-cut)
			} else {
				g.copy(g.context(), v, src)
			}
			return
		}
	}
	g.overwrite(v)
}

func (g *generator) copyRows(ctx int, dst, src *view, start, count int) {
	d, s := g.narrow(dst, 0, start, count), g.narrow(src, 0, start, count)
	g.copy(ctx, d, s)
	g.release(d)
	g.release(s)
}

// fits reports whether src's values, converted to d, stay moderate.
func (g *generator) fits(d dtype.DType, src *view) bool {
	p, err := g.kernels.compute(op.Copy, d, src.shape, 0, src)
	return err == nil && moderate(d, p)
}

// copy emits dst = src. The caller has checked with fits.
func (g *generator) copy(ctx int, dst, src *view) {
	p, err := g.kernels.compute(op.Copy, dst.dt, src.shape, 0, src)
	if err != nil {
		panic(err)
	}
	g.joinReaders(dst.mem)
	dst.scatter(p)
	s := step{kind: copyTo, ctx: ctx, in: []int{dst.id, src.id}, cancelled: g.chance(16)}
	g.emit(s, "ctx%d copy %s into %s%s", ctx, src, dst, ifCancelled(&s))
}

// copyTo emits a copy into a part of v's memory.
func (g *generator) copyTo(ctx int, v *view) {
	if v.shared || v.mem.readOnly {
		return
	}
	var sources []*view
	for _, src := range g.live {
		if src.shape.Rank() == v.shape.Rank() {
			sources = append(sources, src)
		}
	}
	src := pick(g.rng, sources)
	if g.chance(3) {
		// Use another part of the same buffer, if there is one.
		for _, s := range sources {
			if s.mem == v.mem {
				src = s
			}
		}
	}
	if !g.fits(v.dt, src) {
		return
	}
	var temps []*view
	dst := v
	for axis := range v.shape.Rank() {
		n := min(dst.shape.Dim(axis), src.shape.Dim(axis))
		if g.chance(3) {
			n = 1 + g.rng.IntN(n)
		}
		for _, p := range []**view{&dst, &src} {
			if d := (*p).shape.Dim(axis); d != n {
				*p = g.narrow(*p, axis, g.rng.IntN(d-n+1), n)
				temps = append(temps, *p)
			}
		}
	}
	g.copy(ctx, dst, src)
	for _, t := range temps {
		if g.chance(2) || len(g.live) > maxLive {
			g.release(t)
		}
	}
}

// compute emits an operation and returns its result, or nil if it finds no suitable
// operation. If v is not nil, v is one of the inputs.
func (g *generator) compute(ctx int, v *view) *view {
	for range 6 {
		a := v
		if a == nil {
			a = pick(g.rng, g.live)
		}
		b := pick(g.rng, g.live)
		if g.chance(2) {
			a, b = b, a
		}
		if out := g.try(ctx, a, b); out != nil {
			return out
		}
	}
	if v == nil {
		return nil
	}
	return g.operation(ctx, op.Copy, v.dt, v.shape, 0, v)
}

// again repeats the last step, the operation that made v, on ctx.
func (g *generator) again(ctx int, v *view) {
	st := g.out.steps[len(g.out.steps)-1]
	var in []*view
	for _, id := range st.in {
		i := slices.IndexFunc(g.live, func(o *view) bool { return o.id == id })
		in = append(in, g.live[i])
	}
	g.operation(ctx, st.op, st.dt, v.shape, st.scale, in...)
}

// try chooses an operation, and emits it on a, or on a and b, if it accepts them.
func (g *generator) try(ctx int, a, b *view) *view {
	switch g.rng.IntN(8) {
	case 0, 1, 2:
		if a.dt != dtype.F32 || b.dt != dtype.F32 {
			return nil
		}
		s, err := together(&a.shape, &b.shape)
		if err != nil {
			return nil
		}
		id := op.Add
		if g.chance(3) {
			id = op.Mul
		}
		return g.operation(ctx, id, dtype.F32, s, 0, a, b)
	case 3:
		d := pick(g.rng, []dtype.DType{a.dt, dtype.F32, dtype.F16, dtype.I32})
		return g.operation(ctx, op.Copy, d, a.shape, 0, a)
	case 4:
		if a.dt != dtype.F32 {
			return nil
		}
		if a.shape.Rank() > 1 && g.chance(2) {
			return g.operation(ctx, op.Argmax, dtype.I32, a.shape.Without(a.shape.Rank()-1), 0, a)
		}
		return g.operation(ctx, op.Softmax, dtype.F32, a.shape, 0.25, a)
	case 5, 6:
		inner := b.shape.Rank() == 2 && (b.strides.Dim(1) == 1 || b.contiguous())
		if a.dt != dtype.F32 || b.dt == dtype.I32 || !inner || a.shape.Dim(-1) != b.shape.Dim(-1) || b.shape.Dim(0) > 64 {
			return nil // with a strided weight, kernels may sum in another order
		}
		s := a.shape
		s.Set(s.Rank()-1, b.shape.Dim(0))
		return g.operation(ctx, op.MatMul, dtype.F32, s, 0, a, b)
	default:
		if a.dt == dtype.I32 || a.shape.Rank() != 2 {
			return nil
		}
		rows := int32(a.shape.Dim(0))
		for _, ids := range g.live {
			if ids.dt != dtype.I32 || ids.shape.Rank() != 1 || ids.len() > 16 {
				continue
			}
			outside := func(id int32) bool { return id < 0 || id >= rows }
			if !slices.ContainsFunc(elements[int32](ids.gather()), outside) {
				return g.operation(ctx, op.GetRows, dtype.F32, shape.Must(ids.len(), a.shape.Dim(1)), 0, a, ids)
			}
		}
		return nil
	}
}

// operation emits op and returns its result, or nil if that is too large or not
// moderate.
func (g *generator) operation(ctx int, id op.ID, d dtype.DType, s shape.Shape, scale float32, in ...*view) *view {
	if n, err := s.Elements(); err != nil || n > maxElements {
		return nil
	}
	args := slices.Clone(in)
	switch {
	case id == op.Add || id == op.Mul:
		for i := range args {
			args[i] = args[i].broadcast(s)
		}
	case id == op.MatMul && in[0].shape.Rank() == 1:
		row := *in[0]
		row.shape, row.strides = shape.Must(1, row.shape.Dim(0)), shape.Must(1, max(1, row.strides.Dim(0)))
		if in[0].strides.Dim(0) == 0 {
			return nil
		}
		args[0] = &row
	}
	result := s
	if id == op.MatMul && s.Rank() == 1 {
		result = shape.Must(1, s.Dim(0))
	}
	p, err := g.kernels.compute(id, d, result, scale, args...)
	if err != nil || !moderate(d, p) {
		return nil
	}
	st := step{kind: compute, ctx: ctx, op: id, dt: d, scale: scale, cancelled: g.chance(16)}
	for _, v := range in {
		st.in = append(st.in, v.id)
	}
	v := g.fresh(d, s, p)
	st.out = v.id
	g.emit(st, "ctx%d %s = %s of %s%s", ctx, v, id, in, ifCancelled(&st))
	return v
}

func ifCancelled(s *step) string {
	if s.cancelled {
		return ", cancelled at first"
	}
	return ""
}

// view emits a random view of v.
func (g *generator) view(v *view) {
	rank := v.shape.Rank()
	w := *v
	st := step{kind: makeView, in: []int{v.id}}
	text := ""
	switch reshaping(g.rng.IntN(6)) {
	case retain:
		st.view, text = retain, "retain"
	case narrow:
		axis := g.rng.IntN(rank)
		d := v.shape.Dim(axis)
		n := 1 + g.rng.IntN(d)
		g.narrow(v, axis, g.rng.IntN(d-n+1), n)
		return
	case permute:
		if rank < 2 {
			return
		}
		st.view, st.order = permute, g.rng.Perm(rank)
		for i, a := range st.order {
			w.shape.Set(i, v.shape.Dim(a))
			w.strides.Set(i, v.strides.Dim(a))
		}
		text = fmt.Sprintf("permute %v", st.order)
	case reshape:
		if !v.contiguous() {
			return
		}
		n := v.len()
		w.shape = shape.Must(n)
		if k := 2 + g.rng.IntN(3); n%k == 0 && g.chance(2) {
			w.shape = shape.Must(k, n/k)
		}
		w.strides = w.shape.Contiguous()
		st.view, text = reshape, "reshape"
	case broadcast:
		if rank > 2 || v.len() > maxElements/4 {
			return
		}
		if rank == 2 && v.shape.Dim(0) == 1 {
			w.shape.Set(0, 2+g.rng.IntN(3))
		} else {
			w.shape = shape.Must(append([]int{2}, v.shape.Slice()...)...)
		}
		w = *v.broadcast(w.shape)
		w.shared = true
		st.view, text = broadcast, "broadcast"
	case window:
		n := v.len()
		if !v.contiguous() || n < 4 {
			return
		}
		width := 2 + g.rng.IntN(n/2-1)
		by := 1 + g.rng.IntN(width)
		st.start = g.rng.IntN(n - width + 1)
		count := 1 + min(4, (n-width-st.start)/by)
		w.shape, w.strides = shape.Must(count, width), shape.Must(by, 1)
		w.off += st.start
		w.shared = true
		st.view, text = window, fmt.Sprintf("window at %d, strides %s", st.start, w.strides)
	}
	st.shape, st.strides = w.shape, w.strides
	g.addView(st, v, w, text)
}

func (g *generator) narrow(v *view, axis, start, count int) *view {
	w := *v
	w.shape.Set(axis, count)
	w.off += start * v.strides.Dim(axis)
	return g.addView(step{kind: makeView, view: narrow, in: []int{v.id}, axis: axis, start: start, shape: w.shape},
		v, w, fmt.Sprintf("narrow axis %d from %d", axis, start))
}

func (g *generator) addView(st step, from *view, w view, text string) *view {
	v := g.add(&w)
	st.out = v.id
	g.emit(st, "%s = %s of %s", v, text, from)
	return v
}

// write emits a host write through v.
func (g *generator) write(v *view) {
	if v.mem.readOnly || !v.contiguous() || v.shared {
		return
	}
	if g.chance(2) {
		g.overwrite(v)
		return
	}
	size := v.dt.Size()
	st := step{kind: write, in: []int{v.id}, cancelled: g.chance(4)}
	for range 1 + g.rng.IntN(3) {
		at := g.rng.IntN(v.len())
		n := 1 + g.rng.IntN(min(8, v.len()-at))
		st.patches = append(st.patches, patch{at * size, g.values(v.dt, n)})
	}
	g.joinReaders(v.mem)
	for _, p := range st.patches {
		copy(v.mem.bytes[v.off*size+p.at:], p.data)
	}
	g.emit(st, "update %s in %d places%s", v, len(st.patches), ifCancelled(&st))
}

func (g *generator) overwrite(v *view) {
	data := g.values(v.dt, v.len())
	g.joinReaders(v.mem)
	v.scatter(data)
	st := step{kind: write, in: []int{v.id}, overwrite: true, patches: []patch{{0, data}}, cancelled: g.chance(4)}
	g.emit(st, "overwrite %s%s", v, ifCancelled(&st))
}

func (g *generator) release(v *view) {
	g.live = slices.DeleteFunc(g.live, func(o *view) bool { return o == v })
	g.emit(step{kind: release, in: []int{v.id}}, "release %s", v)
}

// releaseAndReuse emits a release and usually, on the other queue, an operation that may
// reuse the released memory.
func (g *generator) releaseAndReuse() {
	v := pick(g.rng, g.live)
	ctx := g.context()
	if g.chance(2) {
		g.compute(ctx, v) // reads v during the release
	}
	g.release(v)
	if len(g.live) == 0 || g.chance(4) {
		return
	}
	for _, src := range g.live {
		if src.dt == v.dt && src.len() == v.len() {
			g.operation(1-ctx, op.Copy, src.dt, src.shape, 0, src)
			return
		}
	}
	g.makeAs(v.dt, v.shape)
}

// reading returns a step that reads v.
func (g *generator) reading(k kind, v *view, m mode) step {
	s := step{kind: k, ctx: g.context(), in: []int{v.id}, mode: m}
	if m != ranged {
		s.want = v.gather()
		return s
	}
	// Bytes outside the view may belong to no tensor any more, and are then undefined.
	reach, err := v.shape.Reach(&v.strides)
	if err != nil {
		panic(err)
	}
	size := v.dt.Size()
	n := (reach + 1) * size
	from := g.rng.IntN(n)
	s.at = v.off*size + from
	s.want = bytes.Clone(v.mem.bytes[s.at : s.at+1+g.rng.IntN(n-from)])
	return s
}

// described returns the bytes of a view that a step reads.
type described struct {
	s *step
	v *view
}

func (d described) String() string {
	switch d.s.mode {
	case ranged:
		return fmt.Sprintf("bytes %d to %d of %s", d.s.at, d.s.at+len(d.s.want), d.v)
	case gathers:
		return fmt.Sprintf("%s by a copy on ctx%d", d.v, d.s.ctx)
	}
	return d.v.String()
}

// check emits a read.
func (g *generator) check(v *view) {
	m := mode(g.rng.IntN(3))
	if m == whole && !v.contiguous() {
		m = gathers
	}
	s := g.reading(read, v, m)
	g.emit(s, "read %s", described{&s, v})
}

// spawn emits a background read.
func (g *generator) spawn(v *view) {
	m := whole
	if !v.contiguous() || g.chance(3) {
		m = ranged
	}
	s := g.reading(spawn, v, m)
	s.out = g.out.readers
	g.out.readers++
	v.mem.readers = append(v.mem.readers, s.out)
	g.emit(s, "background read %d of %s", s.out, described{&s, v})
}

// joinReaders emits the joins that are needed before a write to m, which would otherwise be
// a race.
func (g *generator) joinReaders(m *memory) {
	for _, r := range m.readers {
		g.emit(step{kind: join, out: r}, "join background read %d", r)
	}
	m.readers = nil
}
