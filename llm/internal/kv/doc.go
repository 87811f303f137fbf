// Package kv stores the keys and values of a sequence, which attention needs of the tokens
// that a network has processed.
//
// A [Cache] has room for a fixed number of tokens in each block of a network. A step of the
// network writes rows with [Block.Append]. They become part of the sequence when
// [Cache.Advance] counts their tokens. A step that fails therefore leaves the cache unchanged,
// and the next step overwrites its rows. [Cache.Rewind] removes the last tokens.
//
// The package depends neither on networks nor on token ids.
package kv
