package fucina_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/x448/float16"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/quant"
)

// on runs f with a context on each provider of the build.
func on(t *testing.T, f func(t *testing.T, c *fucina.Context), opts ...fucina.Option) {
	for _, name := range providerNames {
		t.Run(name, func(t *testing.T) {
			c, end := open(t, append(opts[:len(opts):len(opts)], fucina.WithProvider(name), fucina.WithThreads(2))...)
			if got := c.Engine().Provider(); got != name {
				t.Fatalf("provider %q, want %q", got, name)
			}
			f(t, c)
			end()
		})
	}
}

// dense is a model of a tensor without a layout: it gives the value of an element for the
// index along each named axis.
type dense struct {
	axes   []fucina.Axis
	values []float32 // row-major
}

func (d dense) at(index map[string]int) float32 {
	i := 0
	for _, a := range d.axes {
		i = i*a.Size + index[a.Name]
	}
	return d.values[i]
}

// indices calls f with each index of axes.
func indices(axes []fucina.Axis, f func(map[string]int)) {
	n := count(axes)
	index := make(map[string]int)
	for i := range n {
		for k, rest := len(axes)-1, i; k >= 0; k-- {
			index[axes[k].Name] = rest % axes[k].Size
			rest /= axes[k].Size
		}
		f(index)
	}
}

// random returns a tensor of the given axes and its model. The tensor is a permuted view of a
// narrowed tensor, so its layout differs from the order of its axes.
func random(t *testing.T, c *fucina.Context, r *rand.Rand, axes []fucina.Axis) (fucina.Tensor, dense) {
	t.Helper()
	stored := append([]fucina.Axis(nil), axes...)
	r.Shuffle(len(stored), func(i, j int) { stored[i], stored[j] = stored[j], stored[i] })
	cut, start := -1, 0
	if len(stored) > 0 && r.IntN(2) == 0 {
		cut, start = r.IntN(len(stored)), r.IntN(3)
		stored[cut].Size += start + r.IntN(2)
	}
	x := make([]float32, count(stored))
	for i := range x {
		x[i] = float32(r.IntN(17) - 8)
	}
	y := fucina.FromSlice(c, x, stored...)
	if cut >= 0 {
		size := 0
		for _, a := range axes {
			if a.Name == stored[cut].Name {
				size = a.Size
			}
		}
		y = y.Narrow(stored[cut].Name, start, size)
	}
	names := make([]string, len(axes))
	for i, a := range axes {
		names[i] = a.Name
	}
	v := y.Permute(names...)
	return v, dense{axes, values[float32](t, v)}
}

func same(t *testing.T, what string, x fucina.Tensor, wantAxes []fucina.Axis, f func(map[string]int) float32) {
	t.Helper()
	if got := x.Axes(); fmt.Sprint(got) != fmt.Sprint(wantAxes) {
		t.Fatalf("%s: axes %v, want %v", what, got, wantAxes)
	}
	got := dense{wantAxes, values[float32](t, x)}
	indices(wantAxes, func(index map[string]int) {
		if g, w := got.at(index), f(index); !(math.Abs(float64(g-w)) <= 1e-5*math.Max(1, math.Abs(float64(w)))) {
			t.Fatalf("%s: %v at %v, want %v", what, g, index, w)
		}
	})
}

// subset returns some of the axes in a random order.
func subset(r *rand.Rand, axes []fucina.Axis) []fucina.Axis {
	var out []fucina.Axis
	for _, i := range r.Perm(len(axes)) {
		if r.IntN(2) == 0 {
			out = append(out, axes[i])
		}
	}
	return out
}

func has(axes []fucina.Axis, name string) bool {
	for _, a := range axes {
		if a.Name == name {
			return true
		}
	}
	return false
}

// Operations on tensors of random axes and layouts agree with sums over named indices.
func TestOpsByName(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		seed := uint64(20260728)
		r := rand.New(rand.NewPCG(seed, 1))
		t.Logf("seed %d", seed)
		all := []fucina.Axis{{Name: "a", Size: 2}, {Name: "b", Size: 3}, {Name: "c", Size: 1}, {Name: "d", Size: 4}, {Name: "e", Size: 2}}
		for range c.Frames(150) {
			left, right := subset(r, all), subset(r, all)
			x, xm := random(t, c, r, left)
			y, ym := random(t, c, r, right)
			union := append([]fucina.Axis(nil), left...)
			for _, a := range right {
				if !has(left, a.Name) {
					union = append(union, a)
				}
			}
			what := fmt.Sprintf("%v and %v", left, right)
			sum, difference, product := x.Add(y), x.Sub(y), x.Mul(y)
			gated := x.SwiGLU(y)
			same(t, "add "+what, sum, union, func(i map[string]int) float32 { return xm.at(i) + ym.at(i) })
			same(t, "sub "+what, difference, union, func(i map[string]int) float32 { return xm.at(i) - ym.at(i) })
			same(t, "mul "+what, product, union, func(i map[string]int) float32 { return xm.at(i) * ym.at(i) })
			same(t, "swiglu "+what, gated, union, func(i map[string]int) float32 {
				g := float64(ym.at(i))
				return float32(g / (1 + math.Exp(-g)) * float64(xm.at(i)))
			})
			gelu := x.GeGLU(y)
			same(t, "geglu "+what, gelu, union, func(i map[string]int) float32 {
				g := float64(ym.at(i))
				return float32(g / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(g+0.044715*g*g*g))) * float64(xm.at(i)))
			})
			scaled, capped := x.Scale(-1.5), x.SoftCap(0.75)
			same(t, "scale "+what, scaled, left, func(i map[string]int) float32 { return -1.5 * xm.at(i) })
			same(t, "soft_cap "+what, capped, left, func(i map[string]int) float32 {
				return float32(0.75 * math.Tanh(float64(xm.at(i))/0.75))
			})

			for _, k := range all {
				if !has(left, k.Name) || !has(right, k.Name) {
					continue
				}
				var out []fucina.Axis
				for pass := range 2 {
					for _, a := range left {
						if a != k && has(right, a.Name) == (pass == 0) {
							out = append(out, a)
						}
					}
				}
				for _, a := range right {
					if a != k && !has(left, a.Name) {
						out = append(out, a)
					}
				}
				dot := x.Dot(y, k.Name)
				same(t, "dot over "+k.Name+" of "+what, dot, out, func(i map[string]int) float32 {
					s := float32(0)
					for j := range k.Size {
						i[k.Name] = j
						s += xm.at(i) * ym.at(i)
					}
					return s
				})
			}

			for i, a := range left {
				soft := x.Softmax(a.Name, fucina.SoftmaxOptions{Scale: 0.5})
				total := func(i map[string]int) (float64, float64) {
					largest, sum, old := math.Inf(-1), 0.0, i[a.Name]
					for j := range a.Size {
						i[a.Name] = j
						largest = max(largest, 0.5*float64(xm.at(i)))
					}
					for j := range a.Size {
						i[a.Name] = j
						sum += math.Exp(0.5*float64(xm.at(i)) - largest)
					}
					i[a.Name] = old
					return largest, sum
				}
				same(t, "softmax over "+a.Name, soft, left, func(i map[string]int) float32 {
					largest, sum := total(i)
					return float32(math.Exp(0.5*float64(xm.at(i))-largest) / sum)
				})

				weights, wm := random(t, c, r, []fucina.Axis{a})
				norm := x.RMSNorm(weights, a.Name, 0.25)
				same(t, "rms_norm over "+a.Name, norm, left, func(i map[string]int) float32 {
					v, w, old, sum := xm.at(i), wm.at(i), i[a.Name], 0.0
					for j := range a.Size {
						i[a.Name] = j
						sum += float64(xm.at(i)) * float64(xm.at(i))
					}
					i[a.Name] = old
					return float32(float64(v) * float64(w) / math.Sqrt(sum/float64(a.Size)+0.25))
				})

				best := x.Argmax(a.Name)
				rest := append(append([]fucina.Axis(nil), left[:i]...), left[i+1:]...)
				place := best.To(dtype.F32)
				same(t, "argmax over "+a.Name, place, rest, func(i map[string]int) float32 {
					first := 0
					for j := range a.Size {
						i[a.Name] = first
						v := xm.at(i)
						if i[a.Name] = j; xm.at(i) > v {
							first = j
						}
					}
					return float32(first)
				})
			}

			// CopyFrom writes through views of any layout.
			target, _ := random(t, c, r, left)
			shuffled := append([]fucina.Axis(nil), left...)
			r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			source, sm := random(t, c, r, shuffled)
			if err := target.CopyFrom(source).Err(); err != nil {
				t.Fatal(err)
			}
			same(t, "copy", target, left, func(i map[string]int) float32 { return sm.at(i) })
		}
	})
}

// rotated returns one element of RoPE, computed by its definition.
func rotated(x []float32, i, dims, pos int, mode fucina.RoPEMode, base float64) float32 {
	if i >= dims {
		return x[i]
	}
	pair, first, second := i/2, i&^1, i|1
	if mode == fucina.RoPENeoX {
		pair = i % (dims / 2)
		first, second = pair, pair+dims/2
	}
	sin, cos := math.Sincos(float64(pos) * math.Pow(base, -2*float64(pair)/float64(dims)))
	a, b := float64(x[first]), float64(x[second])
	if i == first {
		return float32(a*cos - b*sin)
	}
	return float32(a*sin + b*cos)
}

// RoPE finds its axes by name in any order and among any number of other axes. It does not
// change the elements after the rotated ones.
func TestRoPEAxes(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		r := rand.New(rand.NewPCG(7, 7))
		k := check{t}
		table := k.of(c.Engine().RoPETable(fucina.RoPE{Dims: 4, FreqBase: 100}, 8, "seq")).On(c)
		angles := table.Narrow("seq", 3, 2)
		for _, layout := range []string{"seq:2 head:3 hd:6", "hd:6 head:3 seq:2", "head:3 seq:2 hd:6", "seq:2 hd:6", "hd:4 seq:2", "batch:2 hd:6 head:3 seq:2"} {
			for _, mode := range []fucina.RoPEMode{fucina.RoPEInterleaved, fucina.RoPENeoX} {
				axes := ax(layout)
				x, xm := random(t, c, r, axes)
				y := x.RoPE(angles, mode, "seq", "hd")
				dims := x.Dim("hd")
				same(t, "rope "+layout, y, axes, func(i map[string]int) float32 {
					at := i["hd"]
					row := make([]float32, dims)
					for j := range row {
						i["hd"] = j
						row[j] = xm.at(i)
					}
					return rotated(row, at, 4, 3+i["seq"], mode, 100)
				})
			}
		}
		table.Release()
	})
}

// Attention takes operands of any layout, with their axes in any order.
func TestAttentionAxes(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		r := rand.New(rand.NewPCG(5, 5))
		const past, queries, scale = 3, 2, 0.5
		for _, orders := range [][3]string{
			{"seq:2 head:4 d:3", "key:5 kv_head:2 d:3", "key:5 kv_head:2 d:3"},
			{"d:3 head:4 seq:2", "kv_head:2 d:3 key:5", "d:3 key:5 kv_head:2"},
		} {
			q, qm := random(t, c, r, ax(orders[0]))
			key, km := random(t, c, r, ax(orders[1]))
			v, vm := random(t, c, r, ax(orders[2]))
			y := fucina.Attention(q, key, v, fucina.AttentionOptions{Scale: scale, Past: past})
			same(t, "attention", y, ax("seq:2 head:4 d:3"), func(i map[string]int) float32 {
				seq, head, d := i["seq"], i["head"], i["d"]
				weights := make([]float64, past+seq+1)
				sum, out := 0.0, 0.0
				for s := range weights {
					dot := 0.0
					for e := range 3 {
						dot += float64(qm.at(map[string]int{"seq": seq, "head": head, "d": e})) * float64(km.at(map[string]int{"key": s, "kv_head": head / 2, "d": e}))
					}
					weights[s] = math.Exp(scale * dot)
					sum += weights[s]
				}
				for s, w := range weights {
					out += w / sum * float64(vm.at(map[string]int{"key": s, "kv_head": head / 2, "d": d}))
				}
				return float32(out)
			})
		}
		q, kv := numbered(c, "t:1 h:2 e:2"), numbered(c, "s:1 g:1 e:2")
		y := fucina.Attention(q, kv, kv, fucina.AttentionOptions{Scale: 1, Query: "t", Key: "s", Head: "h", KVHead: "g", Dim: "e"})
		want(t, y, "{t:1 h:2 e:2}", []float32{1, 2, 1, 2})
	})
}

// The right operand of Dot may have 16-bit floats or blocks without a conversion.
func TestDotMixedDTypes(t *testing.T) {
	for _, exact := range []bool{false, true} {
		t.Run(fmt.Sprint("exact ", exact), func(t *testing.T) { dotMixedDTypes(t, exact) })
	}
}

func dotMixedDTypes(t *testing.T, exact bool) {
	on(t, func(t *testing.T, c *fucina.Context) {
		k := check{t}
		x := fucina.FromSlice(c, ramp(2*32, 0.5), ax("m:2 k:32")...)
		w := fucina.FromSlice(c, ramp(3*32, 0.25), ax("n:3 k:32")...)
		f32 := x.Dot(w, "k")
		wanted := values[float32](t, f32)
		for _, d := range []dtype.DType{dtype.F16, dtype.BF16} {
			narrow := w.To(d)
			y := x.Dot(narrow, "k")
			want(t, y, "f32 {m:2 n:3}", wanted)
			turned := narrow.Permute("k", "n")
			z := x.Dot(turned, "k")
			want(t, z, "f32 {m:2 n:3}", wanted)
			refused(t, narrow.Dot(x, "k").Err(), fucina.ErrDType, `dot over "k": left {n:3 k:32}, right {m:2 k:32}`, "the left is "+d.String()+", want f32; convert with To")
			refused(t, x.Add(narrow).Err(), fucina.ErrDType, "add: left {m:2 k:32}, right {n:3 k:32}: the right is "+d.String())
		}

		p := make([]byte, 3*34)
		for row := range 3 {
			if err := quant.EncodeRow(p[row*34:][:34], dtype.Q8_0, ramp(3*32, 0.25)[row*32:][:32]); err != nil {
				t.Fatal(err)
			}
		}
		blocks := k.of(c.Engine().Weight(storage.Borrow(p, storage.BorrowOptions{ReadOnly: true}), dtype.Q8_0, ax("n:3 k:32")...)).On(c)
		decoded := blocks.To(dtype.F32)
		reference := x.Dot(decoded, "k")
		y := x.Dot(blocks, "k")
		if exact {
			want(t, y, "f32 {m:2 n:3}", values[float32](t, reference))
		}
		// Activations that are rounded are so in views of the weights too.
		reference = y
		rows := blocks.Narrow("n", 1, 2)
		part := x.Dot(rows, "k")
		tail := reference.Narrow("n", 1, 2)
		want(t, part, "f32 {m:2 n:2}", values[float32](t, tail))
		split := blocks.Split("n", ax("g:1 h:3")...)
		grouped := x.Dot(split, "k")
		want(t, grouped, "f32 {m:2 g:1 h:3}", values[float32](t, reference))

		if blocks.Permute("k", "n").Err() == nil {
			t.Error("the axis of blocks was moved")
		}
		bad := blocks.Rename("n", "m")
		refused(t, x.Dot(bad, "k").Err(), fucina.ErrShapeMismatch, "axis \"m\" is 2 and 3")
		two := bad.Narrow("m", 0, 2)
		refused(t, x.Dot(two, "k").Err(), fucina.ErrUnsupportedView, "q8_0", "batch axes")
		wide := fucina.FromSlice(c, ramp(3, 1), ax("n:3")...)
		refused(t, wide.Dot(blocks, "n").Err(), fucina.ErrUnsupportedView, `q8_0 on the right needs axis "n" last`)
		refused(t, blocks.Split("k", ax("a:2 b:16")...).Err(), fucina.ErrUnsupportedView, "split over \"k\" of q8_0 {n:3 k:32}: into {a:2 b:16}")
		refused(t, fucina.Update(blocks, notCalled[dtype.BlockQ8_0](t)), fucina.ErrReadOnly)
		refused(t, blocks.CopyFrom(blocks).Err(), fucina.ErrReadOnly, "copy from: destination {n:3 k:32}, source {n:3 k:32}: "+fucina.ErrReadOnly.Error())
		blocks.Release()
	}, fucina.WithExact(exact))
}

// Narrow, Split and Merge take the last axis of a block format apart between blocks, also in
// views that are not contiguous.
func TestViewsOfBlocks(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		x := fucina.FromSlice(c, ramp(3*4*64, 1), ax("page:3 row:256")...)
		blocks := x.To(dtype.Q8_0)
		decoded := blocks.To(dtype.F32)
		for name, view := range map[string]func(fucina.Tensor) fucina.Tensor{
			"narrow": func(x fucina.Tensor) fucina.Tensor { return x.Narrow("row", 64, 128) },
			"narrow into": func(x fucina.Tensor) fucina.Tensor {
				return x.Narrow("row", 64, 128, ax("head:2 d:64")...)
			},
			"split": func(x fucina.Tensor) fucina.Tensor {
				return x.Narrow("row", 64, 128).Split("row", ax("head:2 d:64")...)
			},
			"split to one block": func(x fucina.Tensor) fucina.Tensor {
				return x.Narrow("row", 32, 192).Split("row", ax("a:3 b:2 d:32")...).Permute("b", "page", "a", "d")
			},
			"merge": func(x fucina.Tensor) fucina.Tensor {
				return x.Narrow("row", 64, 128).Split("row", ax("head:2 d:64")...).Narrow("page", 1, 2).Merge("row", "head", "d")
			},
			"merge to a row": func(x fucina.Tensor) fucina.Tensor { return x.Merge("all", "page", "row") },
		} {
			y := view(blocks)
			if err := y.Err(); err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			w := view(decoded)
			want(t, y.To(dtype.F32), strings.TrimPrefix(w.String(), "f32 "), values[float32](t, w))
		}
		for name, y := range map[string]fucina.Tensor{
			"narrow inside a block": blocks.Narrow("row", 0, 48), "narrow from inside": blocks.Narrow("row", 16, 32),
			"split inside a block":          blocks.Split("row", ax("head:16 d:16")...),
			"merge of what is not adjacent": blocks.Narrow("row", 0, 128).Merge("all", "page", "row"),
			"gather of blocks":              blocks.Merge("all", "page", "row").Gather(c.Range("seq", 2), "all"),
		} {
			if !errors.Is(y.Err(), fucina.ErrUnsupportedView) {
				t.Errorf("%s: %v, want ErrUnsupportedView", name, y.Err())
			}
		}
	})
}

// Guards this fault: a gather from a view ignored the strides of the view.
func TestGatherOfViews(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		x := numbered(c, "d:4 spare:2 vocab:3") // the element is 1 + 6d + 3spare + vocab
		one := x.Narrow("spare", 1, 1)
		table := one.Merge("d", "d", "spare")
		part := table.Narrow("d", 1, 2)
		ids := fucina.FromSlice(c, []int64{2, 0, 2}, ax("seq:3")...)
		y := part.Gather(ids, "vocab")
		want(t, y, "f32 {seq:3 d:2}", []float32{12, 18, 10, 16, 12, 18})
		grid := fucina.FromSlice(c, []uint16{0, 1, 2, 0}, ax("p:2 q:2")...)
		turned := grid.Permute("q", "p")
		z := part.Gather(turned, "vocab")
		want(t, z, "f32 {q:2 p:2 d:2}", []float32{10, 16, 12, 18, 11, 17, 10, 16})
		all := x.Gather(ids, "vocab")
		want(t, all, "f32 {seq:3 d:4 spare:2}", []float32{
			3, 6, 9, 12, 15, 18, 21, 24, 1, 4, 7, 10, 13, 16, 19, 22, 3, 6, 9, 12, 15, 18, 21, 24,
		})
		scalar := fucina.FromSlice(c, []int32{1})
		row := part.Gather(scalar, "vocab")
		want(t, row, "f32 {d:2}", []float32{11, 17})

		refused(t, part.Gather(ids, "word").Err(), fucina.ErrTag, `gather over "word": table {d:2 vocab:3}, ids {seq:3}: no axis "word"`)
		clash := ids.Rename("seq", "d")
		refused(t, part.Gather(clash, "vocab").Err(), fucina.ErrTag, `axis "d" appears twice`)
		outside := fucina.FromSlice(c, []int32{0, 3}, ax("seq:2")...)
		refused(t, part.Gather(outside, "vocab").Err(), fucina.ErrIndexOutOfBounds,
			`gather over "vocab": table {d:2 vocab:3}, ids {seq:2}: index out of bounds: id 3 at position 1, the table has 3 rows`)
		refused(t, part.Gather(part, "vocab").Err(), fucina.ErrTag)
		floats := numbered(c, "seq:2")
		refused(t, part.Gather(floats, "vocab").Err(), fucina.ErrDType)
	})
}

// If an operation computed the ids, wrong ids may become an error only when a result that was
// computed from them is read. The error is the same on every provider, and the context
// remains usable.
func TestComputedIDs(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		table := numbered(c, "vocab:3 d:2")
		gather := func(values ...float32) fucina.Tensor {
			return table.Gather(fucina.FromSlice(c, values, fucina.Ax("seq", len(values))).To(dtype.I32), "vocab")
		}
		for _, id := range []float32{3, -1, 1e9} {
			before := gather(1, 1)
			y := gather(0, id)
			after := gather(2, 0)
			for _, z := range []fucina.Tensor{y.Scale(2), y} {
				_, err := fucina.Data[float32](z)
				refused(t, err, fucina.ErrIndexOutOfBounds, "gather", fmt.Sprintf(": index out of bounds: id %d at position 1, the table has 3 rows", int(id)))
				if strings.Contains(err.Error(), "get_rows") {
					t.Errorf("error %q has a name that this package does not have", err)
				}
			}
			sum := before.Add(after)
			want(t, sum, "f32 {seq:2 d:2}", []float32{8, 10, 4, 6})
		}
	})
}

// Guards this fault: 32-bit indices were chosen by the number of elements, although the
// layout of the view extended further.
func TestViewPast32Bits(t *testing.T) {
	if !sparseMemory {
		t.Skip("needs gigabytes of address space that cost nothing untouched")
	}
	c, end := open(t)
	k := check{t}
	reach := int64(1<<31 + 8) // a variable, so that the test also compiles for 32 bits
	half := int(reach)
	x := k.of(c.Engine().Empty(dtype.U8, fucina.Ax("row", 2), fucina.Ax("col", half))).On(c)
	far := x.Narrow("col", half-3, 3)
	source := fucina.FromSlice(c, []uint8{1, 2, 3, 4, 5, 6}, ax("row:2 col:3")...)
	if err := far.CopyFrom(source).Err(); err != nil {
		t.Fatal(err)
	}
	want(t, far, "{row:2 col:3}", []uint8{1, 2, 3, 4, 5, 6})
	last := x.Narrow("row", 1, 1)
	tail := last.Narrow("col", half-2, 2)
	want(t, tail, "{row:1 col:2}", []uint8{5, 6})
	x.Release()
	end()
}

// Guards this fault: an operation wrote through an axis that repeats.
func TestWriteThroughBroadcast(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		x, src := numbered(c, "d:3"), numbered(c, "batch:2 d:3")
		wide := x.BroadcastTo(ax("batch:2 d:3")...)
		refused(t, wide.CopyFrom(src).Err(), fucina.ErrUnsupportedView, "copy from: destination {batch:2 d:3}", "share memory")
		refused(t, fucina.Update(wide, notCalled[float32](t)), fucina.ErrUnsupportedView)
		want(t, x, "{d:3}", []float32{1, 2, 3})
	})
}

// Guards these faults: a softmax over -Inf alone was not NaN, and a maximum ignored a NaN.
func TestSpecialValues(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		inf, nan := float32(math.Inf(-1)), float32(math.NaN())
		x := fucina.FromSlice(c, []float32{inf, inf, 1, nan, 2, inf}, ax("row:3 d:2")...)
		y := x.Softmax("d")
		got := values[float32](t, y)
		for i, v := range got {
			if isNaN := v != v; isNaN != (i < 4) {
				t.Errorf("softmax: element %d is %v", i, v)
			}
		}
		if got[4] != 1 || got[5] != 0 {
			t.Errorf("softmax of 2 and -Inf is %v", got[4:])
		}
		best := x.Argmax("d")
		want(t, best, "i32 {row:3}", []int32{0, 1, 0})
	})
}

// A scalar has no axes. Every operation that needs no axis takes it.
func TestScalars(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		two := fucina.FromSlice(c, []float32{2})
		x := numbered(c, "d:3")
		y := x.Mul(two)
		want(t, y, "f32 {d:3}", []float32{2, 4, 6})
		z := two.Mul(x)
		want(t, z, "f32 {d:3}", []float32{2, 4, 6})
		four := two.Add(two)
		want(t, four, "f32 {}", []float32{4})
		wide := two.BroadcastTo(ax("a:2")...)
		want(t, wide, "f32 {a:2}", []float32{2, 2})
		same := two.Permute()
		best := x.Argmax("d")
		want(t, best, "i32 {}", []int32{2})
		if err := two.CopyFrom(four).Err(); err != nil {
			t.Error(err)
		}
		want(t, same, "f32 {}", []float32{4})
		refused(t, two.Narrow("d", 0, 1).Err(), fucina.ErrTag, `narrow over "d" of f32 {}: no axis "d"`)
		if n := len(two.Axes()); n != 0 {
			t.Errorf("a scalar has %d axes", n)
		}
	})
}

// Views share the storage of their tensor and keep it alive. A view is contiguous if its
// strides are those of a contiguous tensor.
func TestViews(t *testing.T) {
	c, end := open(t)
	x := numbered(c, "a:2 b:3 c:4")
	b1 := x.Narrow("b", 1, 1)
	want(t, b1, "{a:2 b:1 c:4}", []float32{5, 6, 7, 8, 17, 18, 19, 20})
	a1 := b1.Narrow("a", 1, 1)
	if got := values[float32](t, a1); got[0] != 17 || len(got) != 4 {
		t.Errorf("narrowed view has %v", got)
	}
	turned := a1.Permute("c", "a", "b")
	if got := values[float32](t, turned); got[3] != 20 {
		t.Errorf("a permutation of axes of size 1 gives %v", got)
	}
	xt := x.Permute("c", "b", "a")
	s := xt.Split("c", ax("c:2 e:2")...)
	want(t, s, "{c:2 e:2 b:3 a:2}", values[float32](t, xt))
	m := s.Merge("c", "c", "e")
	want(t, m, "{c:4 b:3 a:2}", values[float32](t, xt))
	bc := x.Merge("bc", "b", "c")
	want(t, bc, "{a:2 bc:12}", values[float32](t, x))
	raw, err := xt.AsRaw()
	if err != nil || fmt.Sprint(raw) != "{f32 [4 3 2] [1 4 12] 0 false}" {
		t.Errorf("layout %v, %v", raw, err)
	}
	flat, copied := x.Contiguous(), xt.Contiguous()
	want(t, flat, "{a:2 b:3 c:4}", values[float32](t, x))
	want(t, copied, "{c:4 b:3 a:2}", values[float32](t, xt))
	if at := fucina.Memory(x); fucina.Memory(flat) != at || fucina.Memory(copied) == at {
		t.Error("Contiguous copies a contiguous tensor, or does not copy another")
	}
	drop(x, a1, turned, xt, m, bc, flat, copied)
	refused(t, fucina.Update(x, notCalled[float32](t)), fucina.ErrReleased)
	want(t, b1, "{a:2 b:1 c:4}", []float32{5, 6, 7, 8, 17, 18, 19, 20})
	end()
}

// The error of operands that an operation refuses names the operation, the axes and the
// reason.
func TestRefusals(t *testing.T) {
	c, end := open(t)
	k := check{t}
	ab, bc, kk := numbered(c, "a:2 b:3"), numbered(c, "b:2 c:4"), numbered(c, "k:3")
	ids := fucina.FromSlice(c, []int32{1, 0}, ax("seq:2")...)
	wide := numbered(c, "p:1 q:1 r:1 s:1 t:1 u:1 v:1 w:1")
	table := k.of(c.Engine().RoPETable(fucina.RoPE{Dims: 2, FreqBase: 10}, 2, "a"))
	at := ab.Permute("b", "a")
	fail := func(_ any, err error) error { return err }
	from := func(s string) fucina.Tensor {
		return fucina.FromSlice(c, []float32{1, 2}, ax(s)...)
	}
	ten := strings.TrimSpace("a:1 b:1 c:1 d:1 e:1 f:1 g:1 h:1 i:1")
	for _, tt := range []struct {
		got  any // a failed tensor or an error
		kind error
		part string
	}{
		{from("a:2 a:1"), fucina.ErrTag, `from slice {a:2 a:1}: axis "a" appears twice`},
		{from(":2"), fucina.ErrTag, "empty name"},
		{from(ten), fucina.ErrTag, "more than 8 axes"},
		{from("a:0"), fucina.ErrInvalidShape, "from slice {a:0}"},
		{from("a:3"), fucina.ErrInvalidDataLength, "from slice {a:3}"},
		{from("a:4611686018427387904 b:4"), fucina.ErrOverflow, "from slice"},
		{ab.Add(bc), fucina.ErrShapeMismatch, `add: left {a:2 b:3}, right {b:2 c:4}: axis "b" is 3 and 2`},
		{ab.Mul(wide), fucina.ErrTag, "mul: left {a:2 b:3}, right {p:1 q:1 r:1 s:1 t:1 u:1 v:1 w:1}: together more than 8 axes"},
		{ab.SwiGLU(ids), fucina.ErrDType, "swiglu: input {a:2 b:3}, gate {seq:2}: the gate is i32, want f32; convert with To"},
		{ids.Scale(2), fucina.ErrDType, "scale of i32 {seq:2}: the input is i32, want f32"},
		{ab.SoftCap(0), nil, "the soft cap is 0, want a finite positive number"},
		{ab.Dot(bc, "b"), fucina.ErrShapeMismatch, `dot over "b": left {a:2 b:3}, right {b:2 c:4}: axis "b" is 3 and 2`},
		{ab.Dot(bc, "a"), fucina.ErrTag, `dot over "a": left {a:2 b:3}, right {b:2 c:4}: no axis "a"`},
		{ab.Dot(bc, ""), fucina.ErrTag, `no axis ""`},
		{ab.Dot(ids, "seq"), fucina.ErrTag, `no axis "seq"`},
		{ids.Dot(ids, "seq"), fucina.ErrDType, "the left is i32, want f32; convert with To"},
		{wide.Dot(c.Ones(fucina.F32, ax("w:1 x:1 y:1")...), "w"), fucina.ErrTag, "the result has more than 8 axes"},
		{ab.Softmax("c"), fucina.ErrTag, `softmax over "c" of f32 {a:2 b:3}: no axis "c"`},
		{ids.Softmax("seq"), fucina.ErrDType, `softmax over "seq" of i32 {seq:2}: the input is i32, want f32`},
		{ab.Argmax("c"), fucina.ErrTag, `argmax over "c" of f32 {a:2 b:3}: no axis "c"`},
		{ids.Argmax("seq"), fucina.ErrDType, "argmax"},
		{ab.RMSNorm(kk, "b", 1), fucina.ErrTag, `rms_norm over "b": input {a:2 b:3}, weight {k:3}: the weight has no axis "b"`},
		{ab.RMSNorm(ab, "b", 1), fucina.ErrTag, `the weight has axes other than "b"`},
		{ab.RMSNorm(kk.Rename("k", "a"), "a", 1), fucina.ErrShapeMismatch, `axis "a" of the weight is 3, want 2, as axis "a" of the input`},
		{kk.RMSNorm(kk, "k", -1), nil, "eps is -1"},
		{ab.RoPE(table, fucina.RoPENeoX, "b", "a"), fucina.ErrTag, `no axis "b"`},
		{ab.RoPE(table, fucina.RoPENeoX, "a", "c"), fucina.ErrTag, `no axis "c"`},
		{ab.RoPE(table, fucina.RoPENeoX, "a", "a"), fucina.ErrTag, `axis "a" appears twice: for the positions and for the rotated elements`},
		{ab.RoPE(ab, fucina.RoPENeoX, "a", "b"), fucina.ErrTag, `the table: want axes {a pair cos_sin}, got {a:2 b:3}`},
		{kk.Rename("k", "a").RoPE(table, fucina.RoPENeoX, "a", "a"), fucina.ErrTag, "rope"},
		{ab.Narrow("a", 0, 1).RoPE(table, fucina.RoPENeoX, "a", "b"), fucina.ErrShapeMismatch, `axis "a" is 1 and 2`},
		{ab.Narrow("b", 0, 1).RoPE(table, fucina.RoPENeoX, "a", "b"), fucina.ErrShapeMismatch, `axis "b" of 1 elements`},
		{fucina.Attention(ab, ab, ab, fucina.AttentionOptions{}), fucina.ErrTag, `attention: query {a:2 b:3}, key {a:2 b:3}, value {a:2 b:3}: the query: want axes {seq head d}, got {a:2 b:3}`},
		{fucina.Attention(ab, ab, ab, fucina.AttentionOptions{Query: "a", Head: "a"}), fucina.ErrTag, `value {a:2 b:3}: axis "a" appears twice`},
		{ab.CopyFrom(bc), fucina.ErrTag, `copy from: destination {a:2 b:3}, source {b:2 c:4}: no axis "a"`},
		{ab.CopyFrom(kk), fucina.ErrTag, "want the same axes"},
		{kk.CopyFrom(ids.Rename("seq", "k")), fucina.ErrShapeMismatch, `axis "k" is 3 and 2`},
		{ab.To(dtype.Q4_0), fucina.ErrDType, "to of f32 {a:2 b:3}: f32 does not convert to q4_0"},
		{ab.To(dtype.Invalid), fucina.ErrDType, "to"},
		{ab.Narrow("c", 0, 1), fucina.ErrTag, `narrow over "c" of f32 {a:2 b:3}: no axis "c"`},
		{ab.Narrow("b", 2, 2), fucina.ErrIndexOutOfBounds, `narrow over "b" of f32 {a:2 b:3}: 2 entries from 2 on, of 3`},
		{ab.Narrow("b", 0, 0), fucina.ErrIndexOutOfBounds, "narrow"},
		{ab.Narrow("b", -1, 1), fucina.ErrIndexOutOfBounds, "narrow"},
		{ab.Narrow("b", 0, 2, ax("d:3")...), fucina.ErrInvalidShape, `narrow over "b" of f32 {a:2 b:3}: into {d:3}: 3 entries, want 2`},
		{ab.Narrow("b", 0, 2, ax("a:2")...), fucina.ErrTag, `axis "a" appears twice`},
		{ab.Narrow("b", 0, 2, ax(ten)...), fucina.ErrTag, "into more than 8 axes"},
		{ab.Rename("c", "d"), fucina.ErrTag, `rename "c" to "d" of f32 {a:2 b:3}: no axis "c"`},
		{ab.Rename("a", "b"), fucina.ErrTag, `rename "a" to "b" of f32 {a:2 b:3}: axis "b" appears twice`},
		{ab.Rename("a", ""), fucina.ErrTag, `rename "a" to "" of f32 {a:2 b:3}: empty name`},
		{ab.Permute("a"), fucina.ErrTag, "permute of f32 {a:2 b:3}: to {a}: want every axis"},
		{ab.Permute("a", "a"), fucina.ErrTag, `axis "a" appears twice`},
		{ab.Permute("a", "c"), fucina.ErrTag, `no axis "c"`},
		{ab.Split("b", ax("d:2 e:2")...), fucina.ErrInvalidShape, `split over "b" of f32 {a:2 b:3}: into {d:2 e:2}: 4 entries, want 3`},
		{ab.Split("b", ax("d:0 e:3")...), fucina.ErrInvalidShape, "at least 1"},
		{ab.Split("b", ax("d:4611686018427387904 e:4")...), fucina.ErrInvalidShape, "overflow"},
		{ab.Split("b", ax("a:1 b:3")...), fucina.ErrTag, `axis "a" appears twice`},
		{ab.Split("b"), fucina.ErrTag, "into no axes"},
		{ab.Split("b", ax(ten+" j:3")...), fucina.ErrTag, `split over "b" of f32 {a:2 b:3}: into more than 8 axes`},
		{ab.Split("c", ax("d:1")...), fucina.ErrTag, `no axis "c"`},
		{ab.Narrow("b", math.MaxInt, math.MaxInt), fucina.ErrIndexOutOfBounds,
			fmt.Sprintf(`narrow over "b" of f32 {a:2 b:3}: %d entries from %[1]d on, of 3`, math.MaxInt)},
		{wide.Split("p", ax("x:1 y:1")...), fucina.ErrTag, "more than 8 axes"},
		{ab.Merge("m", "b", "a"), fucina.ErrTag, `axis "a" does not follow axis "b"; want neighbours, in their order`},
		{ab.Merge("m", "b", "c"), fucina.ErrTag, `no axis "c"`},
		{ab.Merge("m", "a", "a"), fucina.ErrTag, `axis "a" appears twice`},
		{ab.Merge("a", "b"), fucina.ErrTag, `axis "a" appears twice`},
		{ab.Merge("m"), fucina.ErrTag, "no axes"},
		{at.Merge("m", "b", "a"), fucina.ErrUnsupportedView, `merge into "m" of f32 {b:3 a:2}: strides [1 3]`},
		{ab.BroadcastTo(ax("a:2 c:3")...), fucina.ErrTag, `to {a:2 c:3}: no axis "b"`},
		{ab.BroadcastTo(ax("a:2 b:4")...), fucina.ErrShapeMismatch, `axis "b" is 3, want 1 or 4`},
		{fail(fucina.Data[int32](ab)), fucina.ErrDType, "data: f32 {a:2 b:3} read as i32"},
		{fucina.CopyOut(ab, make([]float32, 5)), fucina.ErrInvalidDataLength, "copy out: f32 {a:2 b:3} into 5 elements, want 6"},
		{fucina.CopyOut(ab, make([]int32, 6)), fucina.ErrDType, "copy out: f32 {a:2 b:3} read as i32"},
		{fucina.Read(at, notCalled[float32](t)), fucina.ErrUnsupportedView, "read: f32 {b:3 a:2}: strides [1 3], want a contiguous tensor"},
		{fucina.Update(at, notCalled[float32](t)), fucina.ErrUnsupportedView, "update: f32 {b:3 a:2}: strides [1 3], want a contiguous tensor"},
		{fail(c.Engine().Empty(dtype.F32, ax("a:1 a:2")...)), fucina.ErrTag, "empty {a:1 a:2}"},
		{fail(c.Engine().Empty(dtype.Q8_0, ax("a:33")...)), fucina.ErrInvalidShape, "multiple of 32"},
		{fail(c.Engine().RoPETable(fucina.RoPE{Dims: 3, FreqBase: 1}, 2, "seq")), nil, "rope table: 3 rotated elements"},
		{fail(c.Engine().RoPETable(fucina.RoPE{Dims: 2, FreqBase: 1}, 2, "pair")), fucina.ErrTag, "rope table"},
		{fail(c.Engine().RoPETable(fucina.RoPE{Dims: 2, FreqBase: 1}, math.MaxInt/8, "seq")), fucina.ErrNoMemory, "rope table"},
		{fail(fucina.NewAngles(fucina.RoPE{Dims: 3, FreqBase: 1}, 2)), nil, "angles: 3 rotated elements"},
		{fail(fucina.NewAngles(fucina.RoPE{Dims: 2, FreqBase: 1}, 0)), fucina.ErrInvalidShape, "angles: "},
		{ab.On(nil).Add(ab.On(nil)), nil, "add: no context; choose one with On"},
		{ab.Add(fucina.Tensor{}), fucina.ErrReleased, "add: the right: the zero Tensor"},
		{fucina.Attention(ab, fucina.Tensor{}, ab, fucina.AttentionOptions{}), fucina.ErrReleased, "attention: the key: the zero Tensor"},
		{fucina.FromSlice(new(fucina.Context), []float32{1}), fucina.ErrClosed, "no context"},
	} {
		err, _ := tt.got.(error)
		if x, ok := tt.got.(fucina.Tensor); ok {
			if err = x.Err(); err != nil && !strings.HasPrefix(err.Error(), "ops_test.go:") {
				t.Errorf("error %q does not begin with the place", err)
			}
		}
		if err == nil {
			t.Errorf("no error, want %q", tt.part)
			continue
		}
		if tt.kind == nil {
			tt.kind = err
		}
		refused(t, err, tt.kind, tt.part)
	}
	table.Release()
	end()
}

// To converts between the float formats. A conversion to the same dtype copies.
func TestTo(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		x := numbered(c, "d:3")
		h := x.To(dtype.F16)
		if got := values[float16.Float16](t, h); got[2].Float32() != 3 {
			t.Errorf("3 as f16 is %v", got[2].Float32())
		}
		back := h.To(dtype.F32)
		want(t, back, "f32 {d:3}", []float32{1, 2, 3})
		if err := h.CopyFrom(back).Err(); err != nil {
			t.Error(err)
		}
	})
}

// CopyOut reads views with an offset, contiguous or not, of results that a device may hold.
func TestCopyOut(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		x := numbered(c, "a:3 b:2")
		y := x.Add(x)
		row := y.Narrow("a", 1, 1)
		got := make([]float32, 2)
		if err := fucina.CopyOut(row, got); err != nil || got[0] != 6 || got[1] != 8 {
			t.Errorf("read %v, %v", got, err)
		}
		if err := fucina.Update(row, func(v []float32) error { v[0] = -1; return nil }); err != nil {
			t.Error(err)
		}
		want(t, y, "{a:3 b:2}", []float32{2, 4, -1, 8, 10, 12})
	})
}

// A difference is the receiver minus the operand, whichever has the axes that repeat, and
// rounds once.
func TestSub(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		x := fucina.FromSlice(c, []float32{1 << 24, 0.1, -3, 5e-45, 1, 0}, ax("batch:2 d:3")...)
		y := fucina.FromSlice(c, []float32{-1, 0.3, 2.5}, ax("d:3")...)
		tiny := fucina.FromSlice(c, []float32{3e-45})
		a, b, d := float32(0.1), float32(0.3), float32(5e-45)
		want(t, x.Sub(y), "f32 {batch:2 d:3}", []float32{1 << 24, a - b, -5.5, 1, 1 - b, -2.5})
		want(t, y.Sub(x), "f32 {d:3 batch:2}", []float32{-1 << 24, -1, b - a, b - 1, 5.5, 2.5})
		want(t, x.Sub(tiny), "f32 {batch:2 d:3}", []float32{1 << 24, a, -3, d - 3e-45, 1, -3e-45})
		want(t, x.Sub(x), "f32 {batch:2 d:3}", make([]float32, 6))
		refused(t, x.Sub(y.Rename("d", "batch")).Err(), fucina.ErrShapeMismatch, `sub: left {batch:2 d:3}, right {batch:3}: axis "batch" is 2 and 3`)
	})
}

// An axis of size 1 repeats to the size of the other operand's axis. The bytes that follow it
// in memory do not matter.
func TestPointwiseStretches(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		x, all := numbered(c, "a:2 b:3"), numbered(c, "a:2 b:3")
		column := all.Narrow("b", 1, 1) // 2, 5
		row := all.Narrow("a", 1, 1)    // 4, 5, 6
		y, z := x.Add(column), row.Mul(column)
		want(t, y, "f32 {a:2 b:3}", []float32{3, 4, 5, 9, 10, 11})
		want(t, z, "f32 {a:2 b:3}", []float32{8, 10, 12, 20, 25, 30})
	})
}
