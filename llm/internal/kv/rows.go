package kv

import (
	"fmt"

	"github.com/x448/float16"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/llm/internal/kv/page"
)

// PageBytes returns the bytes of the first rows of a page in all blocks of a group.
func (s *Shape) PageBytes(group, rows int) int {
	block := rows * s.Heads * (s.KeyLength + s.ValueLength) / s.Format.BlockSize() * s.Format.Size()
	window, n := s.Groups()[group], 0
	for _, w := range s.Windows {
		if w == window {
			n += block
		}
	}
	return n
}

// ReadPage copies the first rows of a page to dst, in the context x, and waits for them. For each
// block of the group, in order, dst gets the keys of the rows and then their values. dst has
// Shape.PageBytes bytes and is aligned for the elements of the format.
func (c *Cache) ReadPage(x *fucina.Context, group, number, rows int, dst []byte) error {
	return c.visit(x, group, number, rows, dst, func(t fucina.Tensor, p []byte) error {
		switch c.shape.Format {
		case dtype.F32:
			return read[float32](t, p)
		case dtype.F16:
			return read[float16.Float16](t, p)
		case dtype.Q8_0:
			return read[dtype.BlockQ8_0](t, p)
		}
		return c.unknown()
	})
}

// WritePage copies src, which is as ReadPage returns it, to the first rows of a page, in the
// context x. It waits until they are written.
func (c *Cache) WritePage(x *fucina.Context, group, number, rows int, src []byte) error {
	err := c.visit(x, group, number, rows, src, func(t fucina.Tensor, p []byte) error {
		switch c.shape.Format {
		case dtype.F32:
			return write[float32](x, t, p)
		case dtype.F16:
			return write[float16.Float16](x, t, p)
		case dtype.Q8_0:
			return write[dtype.BlockQ8_0](x, t, p)
		}
		return c.unknown()
	})
	if err != nil {
		return err
	}
	return x.Sync()
}

func (c *Cache) unknown() error {
	return fmt.Errorf("KV cache of %s: rows cannot be copied", c.shape.Format)
}

// visit calls use with each part of the first rows of a page that is contiguous in memory, and
// with the bytes of it in p.
func (c *Cache) visit(x *fucina.Context, group, number, rows int, p []byte, use func(t fucina.Tensor, p []byte) error) error {
	f := x.Frame()
	defer f.Close()
	for i := range c.blocks {
		b := &c.blocks[i]
		if b.Group != group {
			continue
		}
		parts := []fucina.Tensor{b.Pages} // a full page is contiguous
		if rows < page.Rows {
			parts = []fucina.Tensor{b.Keys, b.Values}
		}
		for _, part := range parts {
			t := part.On(x).Narrow("page", number, 1)
			if rows < page.Rows {
				t = t.Narrow("key", 0, rows)
			}
			if err := t.Err(); err != nil {
				return err
			}
			n := t.Len() / c.shape.Format.BlockSize() * c.shape.Format.Size()
			if err := use(t, p[:n]); err != nil {
				return err
			}
			p = p[n:]
		}
	}
	return nil
}

func read[T fucina.Element](t fucina.Tensor, p []byte) error {
	v, err := storage.Elements[T](p)
	if err != nil {
		return err
	}
	return fucina.CopyOut(t, v)
}

func write[T fucina.Element](x *fucina.Context, t fucina.Tensor, p []byte) error {
	v, err := storage.Elements[T](p)
	if err != nil {
		return err
	}
	return t.CopyFrom(fucina.FromSlice(x, v, t.Axes()...)).Err()
}
