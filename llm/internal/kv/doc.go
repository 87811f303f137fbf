// Package kv has the memory of a paged cache: the keys and values that attention needs of the
// tokens that a network has processed.
//
// A [Cache] has one buffer for each block of a network. The buffers never move. A page of a buffer
// has [page.Rows] rows of keys, followed by as many rows of values. Package page knows which page
// holds which tokens of which sequence. A step of the network writes its rows with
// fucina.RotateStore to [Block.Pages], and fucina.Attention reads [Block.Keys] and
// [Block.Values] through the tables of package page.
//
// On the host, pages become resident as they are written, and [Cache.Discard] gives them back. A
// device allocates a buffer as a whole.
//
// The package depends neither on networks nor on token ids.
package kv
