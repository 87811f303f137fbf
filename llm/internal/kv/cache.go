package kv

import (
	"fmt"
	"sync/atomic"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
)

// Shape has the format and the dimensions of a cache.
type Shape struct {
	Format      dtype.DType // the dtype of keys and values, which attention must support
	Tokens      int         // the largest length of the sequence
	Blocks      int         // the number of blocks of the network
	Heads       int         // the number of key heads of a block, and of value heads
	KeyLength   int         // the elements of a key head; a multiple of Format's block size
	ValueLength int         // the elements of a value head; a multiple of Format's block size
}

// check returns an error if a cache cannot have the format s.Format.
func (s *Shape) check() error {
	if caches := op.Attention.Inputs()[1].Formats; !caches.Has(s.Format) {
		return fmt.Errorf("KV cache of %s, want %s", s.Format, caches)
	}
	if n := s.Format.BlockSize(); s.KeyLength%n != 0 || s.ValueLength%n != 0 {
		return fmt.Errorf("KV cache of %s: heads of %d and %d elements, want multiples of %d", s.Format, s.KeyLength, s.ValueLength, n)
	}
	return nil
}

// Cache has the keys and values of one sequence. One goroutine at a time uses it. Len and Cap
// may be called at any time.
type Cache struct {
	tokens int // the capacity
	length atomic.Int64
	blocks []Block
}

// Block is the part of a cache that belongs to one block of the network.
type Block struct {
	cache  *Cache
	keys   fucina.Tensor // {key kv_head d_head}
	values fucina.Tensor // {key kv_head d_head}
}

// New returns an empty cache on eng. Its memory is allocated when the first tokens are appended.
// The caller releases the cache.
func New(eng *fucina.Engine, s Shape) (*Cache, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	c := &Cache{tokens: s.Tokens}
	for range s.Blocks {
		b := Block{cache: c}
		for _, half := range []struct {
			into   *fucina.Tensor
			length int
		}{{&b.keys, s.KeyLength}, {&b.values, s.ValueLength}} {
			t, err := eng.Empty(s.Format, fucina.Ax("key", s.Tokens), fucina.Ax("kv_head", s.Heads), fucina.Ax("d_head", half.length))
			if err != nil {
				b.release()
				c.Release()
				return nil, fmt.Errorf("KV cache: %w", err)
			}
			*half.into = t
		}
		c.blocks = append(c.blocks, b)
	}
	return c, nil
}

// Release releases the memory of the cache.
func (c *Cache) Release() {
	for i := range c.blocks {
		c.blocks[i].release()
	}
}

func (b *Block) release() {
	b.keys.Release()
	b.values.Release()
}

// Len returns the number of tokens in the cache.
func (c *Cache) Len() int { return int(c.length.Load()) }

// Cap returns the number of tokens that the cache has room for.
func (c *Cache) Cap() int { return c.tokens }

// Block returns the part of the cache that belongs to block i of the network.
func (c *Cache) Block(i int) *Block { return &c.blocks[i] }

// Advance counts n tokens whose keys and values were appended to every block.
func (c *Cache) Advance(n int) { c.length.Add(int64(n)) }

// Rewind removes all tokens except the first n. If the cache has fewer, it fails and changes
// nothing.
func (c *Cache) Rewind(n int) error {
	if held := c.Len(); n < 0 || n > held {
		return fmt.Errorf("rewind to %d tokens of %d", n, held)
	}
	c.length.Store(int64(n))
	return nil
}

// Len returns the number of tokens in the cache, which is the position of the next row.
func (b *Block) Len() int { return b.cache.Len() }

// Append writes the keys k and the values v, {seq kv_head d_head}, after those in the cache. It
// returns views {key kv_head d_head} of all keys and of all values, the new ones last. The
// innermost frame of k's context owns the views. A view is a failed tensor if k or v has
// failed or if there is no room.
//
// Append does not count the tokens; see [Cache.Advance].
func (b *Block) Append(k, v fucina.Tensor) (keys, values fucina.Tensor) {
	return b.write(b.keys, k), b.write(b.values, v)
}

// write implements Append for the keys or for the values.
func (b *Block) write(half, rows fucina.Tensor) fucina.Tensor {
	if !rows.Valid() {
		return rows
	}
	past, n := b.Len(), rows.Dim("seq")
	all := half.On(rows.Context()).Narrow("key", 0, past+n)
	written := all.Narrow("key", past, n).CopyFrom(rows.Rename("seq", "key").Move())
	if !written.Valid() {
		return written
	}
	return all
}
