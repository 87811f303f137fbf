package page_test

import (
	"fmt"
	"testing"

	"github.com/fucina-go/fucina/llm/internal/kv/page"
)

// The bookkeeping of one generated token, in a sequence of up to 131,072 tokens, without and with
// a prefix tree.
func BenchmarkGenerate(b *testing.B) {
	for _, prefix := range []int{0, 65536} {
		b.Run(fmt.Sprintf("prefix=%d", prefix), func(b *testing.B) {
			b.ReportAllocs()
			p := page.New(page.Options{Rows: 4 * 131072, Windows: []int{0, 1024}, PrefixRows: prefix})
			s := p.NewSequence(page.SequenceOptions{Tokens: 131072})
			ids := make([]int32, 1)
			for i := 0; b.Loop(); i++ {
				if s.Len() == 131072 {
					s.Release()
					s = p.NewSequence(page.SequenceOptions{Tokens: 131072})
				}
				if _, err := s.Reserve(1); err != nil {
					b.Fatal(err)
				}
				ids[0] = int32(i)
				s.Commit(ids)
			}
		})
	}
}
