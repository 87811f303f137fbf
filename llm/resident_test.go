package llm_test

import (
	"runtime/debug"
	"testing"

	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/llm/internal/kv/page"
	"github.com/fucina-go/fucina/tests/harness/engine"
	"github.com/fucina-go/fucina/tests/leak"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// residentNoise is the number of bytes by which measurements of the resident memory differ.
const residentNoise = 2 << 20

// residentModel is a model with small weights and a large cache.
type residentModel struct {
	*llm.Model
	token int // bytes of the cache for a token
}

// resident returns the bytes of the process in memory, without garbage of the Go heap.
func resident(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	n, ok := leak.Resident()
	if !ok {
		t.Skip("the system does not tell the resident memory")
	}
	return n
}

// needResident skips the test where memory is resident before it is used, or where the cache is not
// in the memory of the process.
func needResident(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds, and minutes in an emulator, which has memory of its own")
	}
	if invariants.Enabled || invariants.RaceEnabled {
		t.Skip("checked builds fill memory or take it from the Go heap")
	}
	if p := engine.Provider(); p != "cpu" {
		t.Skipf("%s has the cache in memory of its own", p)
	}
	resident(t)
}

// openResident opens a model. A session on it has had 128 tokens and was closed, so that the
// weights and the activations of the engine's pool are resident.
func openResident(t *testing.T, layers, heads int, prefix int) residentModel {
	t.Helper()
	needResident(t)
	const context, length = 131072, 256
	src := tinyllama.NewShape(tinyllama.Shape{Layers: layers, Embedding: 32, FeedForward: 64, Heads: heads, KVHeads: heads, HeadLength: length, Context: context})
	m := openModel(t, engine.Open(t), writeModel(t, src), llm.Options{CacheTokens: context, PrefixTokens: prefix})
	s := openLong(t, m)
	decode(t, s, tokensFrom(100, 128)...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	bytes := 2 // of an f16
	if m.Engine().Exact() {
		bytes = 4
	}
	return residentModel{m, layers * heads * 2 * length * bytes}
}

// openLong returns an empty session that can become as long as the model allows.
func openLong(t *testing.T, m *llm.Model) *llm.Session {
	t.Helper()
	return openSession(t, m, llm.SessionOptions{Context: m.Context(), Batch: 64})
}

// tokensFrom returns n tokens, the first of which is first.
func tokensFrom(first int32, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = first + int32(i)%100
	}
	return ids
}

// check checks that the resident memory has grown since before by tokens of the cache, and at
// most slack bytes more.
func (m *residentModel) check(t *testing.T, what string, before int64, tokens, slack int) {
	t.Helper()
	grown, want := resident(t)-before, int64(tokens*m.token)
	if grown > want+int64(slack)+residentNoise || grown < want-residentNoise {
		t.Errorf("%s: resident memory grew by %d KiB, want %d KiB and at most %d more", what, grown>>10, want>>10, slack>>10)
	}
}

// A session needs memory for the tokens that it has, and not for those that it may have.
func TestResidentSession(t *testing.T) {
	m := openResident(t, 16, 4, -1)
	before := resident(t)
	s := openLong(t, m.Model)
	m.check(t, "an empty session", before, 0, 0)
	decode(t, s, tokensFrom(1, 128)...)
	m.check(t, "a session of 128 tokens", before, 128, 0)
}

// Sessions with the same prompt hold its keys and values once.
func TestResidentPrompt(t *testing.T) {
	const sessions, prompt = 200, 1000
	m := openResident(t, 2, 1, prompt)
	before := resident(t)
	ids := tokensFrom(1, prompt)
	for range sessions {
		decode(t, openLong(t, m.Model), ids...)
	}
	// Each session has a page of its own for the last tokens, and 64 KiB on the Go heap.
	m.check(t, "200 sessions", before, prompt, sessions*(page.Rows*m.token+64<<10))
}

// After a session has ended, the memory of its tokens is given back, except for what the model
// keeps for later prompts. The pages of the session need not be neighbours for that.
func TestResidentAfterClose(t *testing.T) {
	for _, prefix := range []int{-1, 64} {
		m := openResident(t, 16, 4, prefix)
		kept := max(0, prefix)
		before := resident(t) - int64(kept*m.token) // of the session that openResident has closed
		long, other := openLong(t, m.Model), openLong(t, m.Model)
		// The pages of the two sessions alternate.
		for i := range 128 / page.Rows {
			decode(t, long, tokensFrom(int32(10+i), page.Rows)...)
			decode(t, other, tokensFrom(int32(20+i), page.Rows)...)
		}
		m.check(t, "two sessions", before, 2*128+kept, 0)
		if err := other.Rewind(1); err != nil {
			t.Fatal(err)
		}
		m.check(t, "after a rewind", before, 128+kept, page.Rows*m.token)
		if err := long.Close(); err != nil {
			t.Fatal(err)
		}
		m.check(t, "after a close", before, kept, page.Rows*m.token)
	}
}

// When the model and the engine are closed, nothing remains.
func TestResidentAfterEngine(t *testing.T) {
	needResident(t)
	var before int64
	for i := range 2 {
		var m residentModel
		t.Run("open", func(t *testing.T) {
			m = openResident(t, 16, 4, 0)
			decode(t, openLong(t, m.Model), tokensFrom(1, 128)...)
		})
		if i == 0 {
			before = resident(t) // with the Go heap that the tests need
			continue
		}
		// The Go heap has garbage of the model's file in pages that are partly used, and had some
		// before, so that the resident memory may also have become less.
		const garbage = 4 << 20
		m.check(t, "after the engine", min(before, resident(t)), 0, garbage)
	}
}
