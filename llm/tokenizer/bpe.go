package tokenizer

import (
	"fmt"
	"math"
	"strings"

	"github.com/fucina-go/fucina/llm/tokenizer/internal/split"
)

// bpe encodes with a byte-level byte-pair vocabulary. A pre-tokenizer cuts text into words.
// Within a word, the adjacent pair that is first in the list of merges is merged, until no
// pair is in the list.
type bpe struct {
	pre []*split.Pattern
	// whole says that a word that is a token becomes that token.
	whole bool
	// Merging works on pieces. The ids below tokens are those of tokens; the ids from
	// tokens on are those of pieces that occur only in merges.
	tokens int32
	pieces map[string]int32 // the ids by the bytes of a piece, not by its spelling
	extra  int32            // the number of pieces that are not tokens
	bytes  [256]int32       // the piece of each byte
	ranks  map[uint64]merged
	// rescue holds, for each byte of a piece that is not a token, the tokens that replace it.
	rescue [256][]int32
}

// merged is the piece that two pieces merge into, and the rank of the merge.
type merged struct {
	rank  uint32
	piece int32
}

func joined(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

func newBPE(v *vocab, cfg *Config) (*bpe, error) {
	pre, err := findPreTokenizer(cfg.Pre)
	if err != nil {
		return nil, err
	}
	if most := math.MaxInt32/4 - len(v.text); len(cfg.Merges) > most {
		return nil, fmt.Errorf("%w: %d merges, want at most %d", ErrVocab, len(cfg.Merges), most)
	}
	e := &bpe{
		whole:  pre.whole,
		tokens: int32(len(v.text)),
		pieces: make(map[string]int32, len(v.text)),
		ranks:  make(map[uint64]merged, len(cfg.Merges)),
	}
	if e.pre, err = pre.compile(); err != nil {
		return nil, err
	}
	for i, text := range v.text {
		if raw, ok := fromByteRunes(text); ok {
			e.pieces[raw] = int32(i)
		}
	}
	for b := range e.bytes {
		e.bytes[b] = e.piece([]byte{byte(b)})
		// llama.cpp looks up each byte of the spelling by itself. In valid UTF-8 that
		// finds only printable ASCII.
		for _, c := range []byte(string(byteRunes[b])) {
			if id := v.lookup(string([]byte{c})); id != None {
				e.rescue[b] = append(e.rescue[b], id)
			}
		}
	}
	var buf []byte
	for rank, merge := range cfg.Merges {
		// The left piece is not empty, so a space at the start belongs to it.
		cut := -1
		if len(merge) > 1 {
			cut = strings.IndexByte(merge[1:], ' ') + 1
		}
		if cut <= 0 || cut == len(merge)-1 {
			return nil, fmt.Errorf("%w: merge %d is %.80q, want two pieces with a space between", ErrVocab, rank, merge)
		}
		var okL, okR bool
		buf, okL = appendByteRunes(buf[:0], merge[:cut])
		n := len(buf)
		buf, okR = appendByteRunes(buf, merge[cut+1:])
		if !okL || !okR {
			continue // cannot occur in text, because each character of its spelling represents a byte
		}
		pair := joined(e.piece(buf[:n]), e.piece(buf[n:]))
		if _, dup := e.ranks[pair]; !dup {
			e.ranks[pair] = merged{uint32(rank), e.piece(buf)}
		}
	}
	return e, nil
}

// piece returns the id of a piece. A new piece gets the next free id.
func (e *bpe) piece(raw []byte) int32 {
	id, ok := e.pieces[string(raw)]
	if !ok {
		id = e.tokens + e.extra
		e.extra++
		e.pieces[string(raw)] = id
	}
	return id
}

func (e *bpe) pair(_ string, l, r *symbol) (priority uint32, id int32, ok bool) {
	m, ok := e.ranks[joined(l.id, r.id)]
	return m.rank, m.piece, ok
}

func (e *bpe) appendText(dst []int32, text string) ([]int32, error) {
	text = wellFormed(text)
	if len(text) > math.MaxInt32 {
		return nil, fmt.Errorf("%w: %d bytes with invalid ones replaced, want at most %d", ErrTooLong, len(text), math.MaxInt32)
	}
	var m merger
	// seen holds where the ids of a word are in dst, because most words of a text are
	// repetitions.
	seen := make(map[string]place)
	e.each(0, text, func(word string) {
		if p, ok := seen[word]; ok {
			dst = append(dst, dst[p.start:p.end]...)
			return
		}
		start := len(dst)
		dst = e.appendWord(dst, &m, word)
		if len(word) <= maxSeenWord && len(seen) < maxSeen {
			seen[word] = place{start, len(dst)}
		}
	})
	return dst, nil
}

// Bounds on the words in seen.
const (
	maxSeen     = 1 << 16
	maxSeenWord = 64
)

// place is a range of a list of ids.
type place struct{ start, end int }

// each calls yield with the words of text, cut by the patterns from index depth on. Each
// pattern cuts the pieces of the pattern before it.
func (e *bpe) each(depth int, text string, yield func(word string)) {
	if depth == len(e.pre) {
		yield(text)
		return
	}
	e.pre[depth].Split(text, func(piece string) { e.each(depth+1, piece, yield) })
}

func (e *bpe) appendWord(dst []int32, m *merger, word string) []int32 {
	if e.whole || len(word) == 1 {
		if id, ok := e.pieces[word]; ok && id < e.tokens {
			return append(dst, id)
		}
	}
	m.reset(word, len(word))
	for _, b := range []byte(word) {
		m.append(1, e.bytes[b])
	}
	m.merge(e)
	for i := int32(0); i >= 0; i = m.symbols[i].next {
		s := &m.symbols[i]
		if s.id < e.tokens {
			dst = append(dst, s.id)
			continue
		}
		for _, b := range []byte(word[s.start : s.start+s.size]) {
			dst = append(dst, e.rescue[b]...)
		}
	}
	return dst
}
