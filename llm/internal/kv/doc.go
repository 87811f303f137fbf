// Package kv holds the keys and values of a sequence: what attention remembers of the
// tokens that a network has seen.
//
// A [Cache] has room for a fixed number of tokens, in each block of a network. A step of
// the network writes its rows with [Block.Append], and is part of the sequence only once
// [Cache.Advance] counts its tokens. So a step that fails leaves the cache as it was, and
// its rows are overwritten by the next. [Cache.Rewind] forgets the last tokens.
//
// The package knows neither networks nor tokens.
package kv
