package kv

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/llm/internal/kv/page"
)

// Shape has the format and the dimensions of a cache.
type Shape struct {
	Format      dtype.DType // the dtype of keys and values, which attention must support
	Pages       int         // the number of pages of each block of the network
	Windows     []int       // for each block, the number of tokens that a token sees; 0 means all
	Heads       int         // the number of key heads of a block, and of value heads
	KeyLength   int         // the elements of a key head; a multiple of Format's block size
	ValueLength int         // the elements of a value head; a multiple of Format's block size
}

// Check returns an error if no cache can have the shape s.
func (s *Shape) Check() error {
	if caches := op.Attention.Inputs()[1].Formats; !caches.Has(s.Format) {
		return fmt.Errorf("KV cache of %s, want %s", s.Format, caches)
	}
	if n := s.Format.BlockSize(); s.KeyLength%n != 0 || s.ValueLength%n != 0 {
		return fmt.Errorf("KV cache of %s: heads of %d and %d elements, want multiples of %d", s.Format, s.KeyLength, s.ValueLength, n)
	}
	return nil
}

// RowBytes returns the bytes that one token needs in all blocks. The metadata of a model bounds
// each factor, so that the product fits an int64.
func (s *Shape) RowBytes() int64 {
	elements := int64(s.Heads) * int64(s.KeyLength+s.ValueLength) * int64(len(s.Windows))
	return elements / int64(s.Format.BlockSize()) * int64(s.Format.Size())
}

// Groups returns the windows of the groups of blocks; 0 means that a token sees all tokens, as in
// the first group.
func (s *Shape) Groups() []int {
	groups := []int{0}
	for _, window := range s.Windows {
		if !slices.Contains(groups, window) {
			groups = append(groups, window)
		}
	}
	return groups
}

// Cache has the keys and values of all sequences that use one format.
type Cache struct {
	shape  Shape
	groups []int // the windows of the groups of blocks; the first group has none
	blocks []Block
	views  *fucina.Context // for views of the buffers
}

// Block is the part of a cache that belongs to one block of the network. Its tensors are views of
// one buffer.
type Block struct {
	// Group is the index of the block's group. The blocks of a group have one window, and a
	// sequence has one table of pages for all of them.
	Group int
	// Pages {page c} is the buffer. A page has page.Rows rows of keys, then as many of values.
	Pages fucina.Tensor
	// Keys and Values are {page key kv_head d_head}.
	Keys, Values fucina.Tensor
}

// New returns a cache on eng whose rows have undefined contents. On the host, memory becomes
// resident as pages are written. A device allocates the whole memory at the first write. The
// caller releases the cache.
func New(eng *fucina.Engine, s Shape) (*Cache, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	c := &Cache{shape: s, groups: s.Groups()}
	var err error
	if c.views, err = eng.NewContext(); err != nil {
		return nil, err
	}
	for _, window := range s.Windows {
		b := Block{Group: slices.Index(c.groups, window)}
		if err := b.open(eng, c.views, &s); err != nil {
			c.Release()
			return nil, fmt.Errorf("KV cache: %w", err)
		}
		c.blocks = append(c.blocks, b)
	}
	return c, nil
}

// open makes the tensors of a block. It makes the views in the context c.
func (b *Block) open(eng *fucina.Engine, c *fucina.Context, s *Shape) (err error) {
	k, v := page.Rows*s.Heads*s.KeyLength, page.Rows*s.Heads*s.ValueLength
	if b.Pages, err = eng.Empty(s.Format, fucina.Ax("page", s.Pages), fucina.Ax("c", k+v)); err != nil {
		return err
	}
	half := func(start, length int) fucina.Tensor {
		f := c.Frame()
		defer f.Close()
		rows := b.Pages.On(c).Narrow("c", start, page.Rows*s.Heads*length)
		return rows.Split("c", fucina.Ax("key", page.Rows), fucina.Ax("kv_head", s.Heads), fucina.Ax("d_head", length)).Shared()
	}
	b.Keys, b.Values = half(0, s.KeyLength), half(k, s.ValueLength)
	if err := errors.Join(b.Keys.Err(), b.Values.Err()); err != nil {
		b.release()
		return err
	}
	return nil
}

func (b *Block) release() {
	b.Keys.Release()
	b.Values.Release()
	b.Pages.Release()
}

// Release releases the memory of the cache.
func (c *Cache) Release() {
	for i := range c.blocks {
		c.blocks[i].release()
	}
	c.blocks = nil
	_ = c.views.Close() // no failure is left: the errors of the views were returned
}

// Groups returns the windows of the groups of blocks; 0 means that a token sees all tokens. The
// caller must not change them.
func (c *Cache) Groups() []int { return c.groups }

// Block returns the part of the cache that belongs to block i of the network.
func (c *Cache) Block(i int) *Block { return &c.blocks[i] }

// CopyPage copies a page of all blocks of a group, in the context x.
func (c *Cache) CopyPage(x *fucina.Context, group, from, to int) error {
	f := x.Frame()
	defer f.Close()
	for i := range c.blocks {
		b := &c.blocks[i]
		if b.Group != group {
			continue
		}
		pages := b.Pages.On(x)
		if err := pages.Narrow("page", to, 1).CopyFrom(pages.Narrow("page", from, 1)).Err(); err != nil {
			return err
		}
	}
	return nil
}

// Check returns an error if the contents of a block cannot be read, because a device has failed
// while it wrote to them. A step must have written to every block.
func (c *Cache) Check(x *fucina.Context) error {
	f := x.Frame()
	defer f.Close()
	for i := range c.blocks {
		one := c.blocks[i].Keys.On(x).Narrow("page", 0, 1).Narrow("key", 0, 1).Narrow("kv_head", 0, 1)
		if _, err := fucina.Data[float32](one.To(dtype.F32)); err != nil {
			return err
		}
	}
	return nil
}

// leastBytes is the size of the smallest range of free memory that is worth a call of the system.
// It is small, because the pages of several sessions alternate if the sessions grow together, and
// one page of a block of most models should go back by itself.
const leastBytes = 16 << 10

// LeastRun returns the least number of pages for which Discard is worth its time.
func (c *Cache) LeastRun() int {
	s := &c.shape
	size := int(s.RowBytes()) / len(s.Windows) * page.Rows
	return (leastBytes + size - 1) / size
}

// Discard gives the memory of count pages of a group, from page from on, back to the system. The
// contents of the pages become undefined. One goroutine at a time calls Discard; it may run
// during a step that does not use the pages.
func (c *Cache) Discard(group, from, count int) error {
	f := c.views.Frame()
	defer f.Close()
	for i := range c.blocks {
		if b := &c.blocks[i]; b.Group == group {
			if err := b.Pages.On(c.views).Narrow("page", from, count).Discard(); err != nil {
				return err
			}
		}
	}
	return nil
}
