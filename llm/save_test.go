package llm_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/tests/countdown"
	"github.com/fucina-go/fucina/tests/harness"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// The offsets of a session's file, if the variant of its angles is empty.
const (
	atVersion = 8
	atModel   = atVersion + 4
	atFormat  = atModel + 32
	atVariant = atFormat + 4
	atTokens  = atVariant + 4
	atRows    = atTokens + 8
	atIDs     = atRows + 8
)

// seal sets the checksum of a session's file.
func seal(file []byte) []byte {
	at := len(file) - 4
	binary.LittleEndian.PutUint32(file[at:], crc32.Checksum(file[:at], crc32.MakeTable(crc32.Castagnoli)))
	return file
}

// save returns the file of a session.
func save(t testing.TB, s *llm.Session) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Save(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// load returns the session of a file, and closes it at the end of the test.
func load(t testing.TB, m *llm.Model, file []byte, opt llm.SessionOptions) *llm.Session {
	t.Helper()
	s, err := m.LoadSession(context.Background(), bytes.NewReader(file), opt)
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, s)
	return s
}

// mixed returns n tokens of the vocabulary of seeded models.
func mixed(n int) []int32 {
	rng := rand.New(rand.NewPCG(7, 7))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = 259 + rng.Int32N(50)
	}
	return ids
}

// follow decodes ids as a prompt and three more as generated tokens, and returns all logits.
func follow(t testing.TB, s *llm.Session, ids []int32) (all []float32) {
	t.Helper()
	all = append(all, decode(t, s, ids...)...)
	logits := make([]float32, s.Model().Params().Vocabulary)
	for _, id := range []int32{270, 280, 290} {
		if err := s.Next(context.Background(), id, logits); err != nil {
			t.Fatal(err)
		}
		all = append(all, logits...)
	}
	return all
}

// checkSaved saves s, loads the file, and checks that both sessions continue with the same bits.
// It returns the file.
func checkSaved(t testing.TB, what string, s *llm.Session, opt llm.SessionOptions) []byte {
	t.Helper()
	file := save(t, s)
	l := load(t, s.Model(), file, opt)
	if l.Past() != s.Past() {
		t.Errorf("%s: %d tokens, want %d", what, l.Past(), s.Past())
	}
	if again := save(t, l); !bytes.Equal(again, file) {
		t.Errorf("%s: the loaded session is saved as another file", what)
	}
	past := s.Past()
	got, want := follow(t, l, mixed(3)), follow(t, s, mixed(3))
	if !slices.Equal(got, want) {
		t.Errorf("%s: the loaded session gets other logits", what)
	}
	if err := s.Rewind(past); err != nil {
		t.Fatal(err)
	}
	return file
}

// familyModel returns the model of that name of the families' results.
func familyModel(t testing.TB, name string) *tinyllama.Model {
	t.Helper()
	for _, f := range tinyllama.Families() {
		if f.Name == name {
			return f.Model()
		}
	}
	t.Fatalf("no model %s", name)
	return nil
}

// In every family and with every format of the cache, a loaded session continues with the bits
// of the session that was saved: after a prompt and generated tokens, after rewinds that do and
// that do not need tokens to be decoded again, and after a fork.
func TestSaveSession(t *testing.T) {
	few := testing.Short() || invariants.RaceEnabled
	for _, f := range tinyllama.Families() {
		if few && !slices.Contains([]string{"llama-bias", "gemma2", "gemma3", "phi3-long"}, f.Name) {
			continue
		}
		m := openModel(t, openExact(t), writeModel(t, f.Model()), llm.Options{})
		for _, format := range []dtype.DType{dtype.F32, dtype.F16, dtype.Q8_0} {
			if m.Params().KeyLength%format.BlockSize() != 0 {
				continue
			}
			for _, keep := range []bool{false, true} {
				if keep && (m.Params().Window == 0 || few) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/keep=%t", f.Name, format, keep), func(t *testing.T) {
					opt := llm.SessionOptions{Context: f.Context, KV: format, KeepWindows: keep, Batch: 64}
					s := openSession(t, m, opt)
					checkSaved(t, "an empty session", s, opt)
					follow(t, s, mixed(130))
					checkSaved(t, "133 tokens", s, opt)
					fork, err := s.Fork()
					if err != nil {
						t.Fatal(err)
					}
					harness.CloseLater(t, fork)
					if err := fork.Rewind(128); err != nil {
						t.Fatal(err)
					}
					follow(t, fork, mixed(17))
					for _, n := range []int{120, 64, 40, 1} {
						if err := s.Rewind(n); err != nil {
							t.Fatal(err)
						}
						checkSaved(t, fmt.Sprintf("rewound to %d tokens", n), s, opt)
					}
					checkSaved(t, "a fork", fork, opt)
				})
			}
		}
	}
}

// A session that keeps its windows is saved with them: after a rewind, the loaded session has
// nothing to decode again. One that does not keep them drops them.
func TestSaveKeepsWindows(t *testing.T) {
	m := openModel(t, openExact(t), writeModel(t, familyModel(t, "gemma3")), llm.Options{})
	opt := llm.SessionOptions{KV: dtype.F32, KeepWindows: true}
	s := openSession(t, m, opt)
	decode(t, s, mixed(200)...)
	file := save(t, s)
	steps := func(opt llm.SessionOptions) int {
		l := load(t, m, file, opt)
		if err := l.Rewind(100); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := l.Save(context.Background(), &b); err != nil {
			t.Fatal(err)
		}
		return int(binary.LittleEndian.Uint64(b.Bytes()[atRows:]))
	}
	if n := steps(opt); n != 100 {
		t.Errorf("%d of 100 tokens have their rows after a rewind, want all", n)
	}
	opt.KeepWindows = false
	if n := steps(opt); n != 0 {
		t.Errorf("%d of 100 tokens have their rows after a rewind without windows, want 0", n)
	}
}

// smallest returns a model with few weights and a small row.
func smallest(seed uint64) *tinyllama.Model {
	return tinyllama.New(tinyllama.Options{Seed: seed, Layers: 1, Embedding: 8, FeedForward: 8, Heads: 2, KVHeads: 1})
}

// openSmallest opens that model with a cache of six pages.
func openSmallest(t testing.TB) *llm.Model {
	t.Helper()
	f, err := gguf.Parse(smallest(1).Bytes())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := llm.New(openExact(t), f, llm.Options{CacheTokens: 6 * 32})
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, m)
	return m
}

// checkRefused checks that a file cannot be loaded, and that this leaves nothing open.
func checkRefused(t testing.TB, what string, m *llm.Model, file []byte, opt llm.SessionOptions, want error, says string) {
	t.Helper()
	before := m.Engine().Stats().Handles
	s, err := m.LoadSession(context.Background(), bytes.NewReader(file), opt)
	if err == nil {
		_ = s.Close()
	}
	if !errors.Is(err, want) || !strings.Contains(fmt.Sprint(err), says) || strings.Contains(fmt.Sprint(err), "\n") {
		t.Fatalf("%s: error %v, want %v that says %q in one line", what, err, want, says)
	}
	if n := m.Engine().Stats().Handles; n != before {
		t.Fatalf("%s: %d handles, before %d", what, n, before)
	}
}

// Every truncation of a file and every change of a byte is detected, and leaves nothing behind:
// the cache has room for three sessions before and after.
func TestLoadDamagedSession(t *testing.T) {
	m := openSmallest(t)
	openSession(t, m, llm.SessionOptions{KV: dtype.F32}) // a format has a cache from its first session on
	s := openSession(t, m, llm.SessionOptions{KV: dtype.F16})
	follow(t, s, mixed(36))
	file := save(t, s)
	for n := range file {
		checkRefused(t, fmt.Sprintf("%d bytes", n), m, file[:n], llm.SessionOptions{}, llm.ErrSessionFile, "it ends within")
	}
	for i := range file {
		for _, bits := range []byte{1, 0x80, 0xff} {
			bad := slices.Clone(file)
			bad[i] ^= bits
			want := llm.ErrSessionFile
			if n := binary.LittleEndian.Uint64(bad[atTokens:]); n > 256 && n < 1<<31 {
				want = llm.ErrContextFull
			}
			checkRefused(t, fmt.Sprintf("byte %d changed by %#x", i, bits), m, bad, llm.SessionOptions{}, want, "")
		}
	}
	load(t, m, file, llm.SessionOptions{})
	load(t, m, file, llm.SessionOptions{})
	checkRefused(t, "a fourth session", m, file, llm.SessionOptions{}, llm.ErrCacheFull, "39 tokens need")
}

// A file that does not fit the model or the options, or contradicts itself, is refused with an
// error that says why.
func TestLoadRefuses(t *testing.T) {
	other := func(seed uint64) []byte {
		m := openModel(t, openExact(t), writeModel(t, smallest(seed)), llm.Options{})
		s := openSession(t, m, llm.SessionOptions{KV: dtype.F32})
		decode(t, s, mixed(39)...)
		return save(t, s)
	}
	same, stranger := other(1), other(2)
	m := openSmallest(t)
	s := openSession(t, m, llm.SessionOptions{KV: dtype.F32})
	follow(t, s, mixed(36))
	file := save(t, s)
	const tokens = 39
	put := func(at int, values ...byte) []byte {
		bad := slices.Clone(file)
		copy(bad[at:], values)
		return seal(bad)
	}
	generated := atIDs + 4*tokens
	groups := generated + (tokens+7)/8
	// Without rows, 32 times the first page is a negative int on a machine of 32 bits.
	noRows := append(slices.Clone(file[:groups+4]), 0, 0, 0, 4, 0, 0, 0, 0)
	clear(noRows[atRows:atIDs])
	seal(noRows)
	if !bytes.Equal(same[:atIDs], file[:atIDs]) {
		t.Error("the same model from a file and from memory is another model")
	}
	for _, c := range []struct {
		what string
		file []byte
		opt  llm.SessionOptions
		want error
		says string
	}{
		{"magic", put(0, 'F'), llm.SessionOptions{}, llm.ErrSessionFile, `magic bytes "fucinakv"`},
		{"version", put(atVersion, 2), llm.SessionOptions{}, llm.ErrSessionFile, "version 2, want 1"},
		{"other weights", stranger, llm.SessionOptions{}, llm.ErrSessionFile, "another model"},
		{"unknown format", put(atFormat, 200), llm.SessionOptions{}, llm.ErrSessionFile, "type 200"},
		{"format of weights", put(atFormat, byte(dtype.Q4_0.GGUF())), llm.SessionOptions{}, llm.ErrSessionFile, "KV cache of q4_0"},
		{"format of larger blocks", put(atFormat, byte(dtype.Q8_0.GGUF())), llm.SessionOptions{}, llm.ErrSessionFile, "multiples of 32"},
		{"other format", file, llm.SessionOptions{KV: dtype.F16}, llm.ErrSessionFile, "its cache is f32, want f16"},
		{"long variant", put(atVariant, 65), llm.SessionOptions{}, llm.ErrSessionFile, "65 bytes"},
		{"huge variant", put(atVariant, 0xff, 0xff, 0xff, 0xff), llm.SessionOptions{}, llm.ErrSessionFile, "4294967295 bytes"},
		{"variant", put(atVariant, 3), llm.SessionOptions{}, llm.ErrSessionFile, ""},
		{"huge tokens", put(atTokens, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), llm.SessionOptions{}, llm.ErrSessionFile, "39 rows of 18446744073709551615 tokens"},
		{"more rows than tokens", put(atRows, 40), llm.SessionOptions{}, llm.ErrSessionFile, "40 rows of 39 tokens"},
		{"huge rows", put(atRows+7, 0x80), llm.SessionOptions{}, llm.ErrSessionFile, "rows of 39 tokens"},
		{"short context", file, llm.SessionOptions{Context: 38}, llm.ErrContextFull, "39 tokens in a context of 38"},
		{"negative id", put(atIDs+4*5, 0xff, 0xff, 0xff, 0xff), llm.SessionOptions{}, llm.ErrSessionFile, "token -1 at 5"},
		{"large id", put(atIDs+4*5, 0xff, 0xff, 0xff, 0x7f), llm.SessionOptions{}, llm.ErrSessionFile, "token 2147483647 at 5"},
		{"bits after the last token", put(groups-1, file[groups-1]|0x80), llm.SessionOptions{}, llm.ErrSessionFile, "bits after those of 39 tokens"},
		{"groups", put(groups, 2), llm.SessionOptions{}, llm.ErrSessionFile, "2 groups of blocks, want 1"},
		{"first page", put(groups+4, 1), llm.SessionOptions{}, llm.ErrSessionFile, "group 0 begins with page 1, want 0"},
		{"huge first page", put(groups+4, 0xff, 0xff, 0xff, 0xff), llm.SessionOptions{}, llm.ErrSessionFile, "group 0 begins with page 4294967295"},
		{"first page without rows", noRows, llm.SessionOptions{}, llm.ErrSessionFile, "group 0 begins with page 67108864, want 0"},
		{"checksum", append(slices.Clone(file[:len(file)-1]), file[len(file)-1]^1), llm.SessionOptions{}, llm.ErrSessionFile, "checksum"},
		{"a byte too many", append(slices.Clone(file), 0), llm.SessionOptions{}, llm.ErrSessionFile, "goes on after the checksum"},
		{"options", file, llm.SessionOptions{Batch: -1}, nil, "batch of -1"},
	} {
		if c.want == nil {
			if _, err := m.LoadSession(context.Background(), bytes.NewReader(c.file), c.opt); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: error %v, want one that says %q", c.what, err, c.says)
			}
			continue
		}
		checkRefused(t, c.what, m, c.file, c.opt, c.want, c.says)
	}
	checkRefused(t, "an empty file", m, nil, llm.SessionOptions{}, llm.ErrSessionFile, "it ends within its head")
	broken := errors.New("broken disk")
	for n := range len(file) {
		r := io.MultiReader(bytes.NewReader(file[:n]), iotest.ErrReader(broken))
		if _, err := m.LoadSession(context.Background(), r, llm.SessionOptions{}); !errors.Is(err, broken) {
			t.Fatalf("a disk that fails after %d bytes: %v", n, err)
		}
	}
	load(t, m, file, llm.SessionOptions{})
}

// The keys of a model with LongRoPE depend on the length of the session. A session with other
// angles cannot load them.
func TestLoadOtherAngles(t *testing.T) {
	m := openModel(t, openExact(t), writeModel(t, familyModel(t, "phi3-long")), llm.Options{})
	for _, length := range []int{64, 512} {
		s := openSession(t, m, llm.SessionOptions{Context: length})
		decode(t, s, mixed(40)...)
		file := save(t, s)
		load(t, m, file, llm.SessionOptions{Context: length - 5})
		checkRefused(t, "other angles", m, file, llm.SessionOptions{Context: 64 + 512 - length}, llm.ErrSessionFile, "rotary angles")
	}
}

// A small file that claims to have many tokens does not make LoadSession allocate memory for
// them.
func TestLoadAllocatesLittle(t *testing.T) {
	f, err := gguf.Parse(smallest(1).Bytes())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := llm.New(openExact(t), f, llm.Options{Context: 1 << 30, CacheTokens: 64})
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, m)
	opt := llm.SessionOptions{Context: 1 << 30, KV: dtype.F32}
	s := openSession(t, m, opt)
	decode(t, s, mixed(40)...)
	file := save(t, s)
	for _, rows := range []uint64{0, 1 << 30} {
		bad := slices.Clone(file)
		binary.LittleEndian.PutUint64(bad[atTokens:], 1<<30)
		binary.LittleEndian.PutUint64(bad[atRows:], rows)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		checkRefused(t, "2^30 tokens", m, bad, opt, llm.ErrSessionFile, "it ends within the tokens")
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("a file of %d bytes makes LoadSession allocate %d", len(bad), n)
		}
	}
}

// The rows of a file, which may be anything, decide only about the session that loads it and its
// forks: they are not swapped for those of a session with the same tokens, and no other session
// gets them. Rows of NaNs leave nothing behind in the pages that they were in.
func TestLoadedRowsStayApart(t *testing.T) {
	m := openModel(t, openExact(t), writeModel(t, tinyllama.New(tinyllama.Options{})), llm.Options{CacheTokens: 1024})
	opt := llm.SessionOptions{KV: dtype.F32}
	ids := mixed(100)
	s := openSession(t, m, opt)
	decode(t, s, ids[:96]...)
	file := save(t, s)
	want := follow(t, s, ids[96:])
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	p := m.Params()
	rows := len(file) - 4 - 96*4*p.Layers*p.KVHeads*(p.KeyLength+p.ValueLength)
	forge := func(value func(i int) float32) []byte {
		bad := slices.Clone(file)
		for i := rows; i < len(bad)-4; i += 4 {
			binary.LittleEndian.PutUint32(bad[i:], math.Float32bits(value(i)))
		}
		return seal(bad)
	}
	// The tree has the pages of s.
	bad := load(t, m, forge(func(i int) float32 { return float32(i % 7) }), opt)
	forged := follow(t, bad, ids[96:])
	if slices.Equal(forged, want) {
		t.Error("the rows of the file have no effect")
	}
	if err := bad.Rewind(96); err != nil {
		t.Fatal(err)
	}
	fork, err := bad.Fork()
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, fork)
	if got := follow(t, fork, ids[96:]); !slices.Equal(got, forged) {
		t.Error("a fork of the loaded session gets other logits")
	}
	clean := openSession(t, m, opt)
	if got := follow(t, clean, ids); !slices.Equal(got, want) {
		t.Error("a file changes the logits of another session")
	}

	alone := openModel(t, openExact(t), writeModel(t, tinyllama.New(tinyllama.Options{})), llm.Options{CacheTokens: 128})
	for range 2 {
		bad := forge(func(int) float32 { return float32(math.NaN()) })
		l, err := alone.LoadSession(context.Background(), bytes.NewReader(bad), opt)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := alone.NewSession(opt)
		if err != nil {
			t.Fatal(err)
		}
		if got := follow(t, s, ids); !slices.Equal(got, want) {
			t.Error("the NaNs of a session that is closed change the logits of another")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Save and LoadSession end when their context is done, wherever that is, and leave no trace.
func TestCancelSave(t *testing.T) {
	m := openTiny(t, tinyllama.Options{})
	s := openSession(t, m, llm.SessionOptions{})
	decode(t, s, mixed(80)...)
	file := save(t, s)
	handles := m.Engine().Stats().Handles
	saved, loaded := false, false
	for looks := 0; !saved || !loaded; looks++ {
		var b bytes.Buffer
		err := s.Save(countdown.After(looks), &b)
		saved = err == nil
		if !saved && !errors.Is(err, context.Canceled) || saved && !bytes.Equal(b.Bytes(), file) {
			t.Fatalf("save, cancelled at look %d: %v", looks, err)
		}
		l, err := m.LoadSession(countdown.After(looks), bytes.NewReader(file), llm.SessionOptions{})
		loaded = err == nil
		if !loaded && !errors.Is(err, context.Canceled) {
			t.Fatalf("load, cancelled at look %d: %v", looks, err)
		}
		if loaded {
			if again := save(t, l); !bytes.Equal(again, file) {
				t.Errorf("another session after cancellations")
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if n := m.Engine().Stats().Handles; n != handles {
			t.Fatalf("cancelled at look %d: %d handles, before %d", looks, n, handles)
		}
		if looks > 10000 {
			t.Fatal("the context is checked without end")
		}
	}
}

// failingWriter fails after some bytes.
type failingWriter struct{ left int }

var errDisk = errors.New("disk full")

func (w *failingWriter) Write(p []byte) (int, error) {
	if len(p) > w.left {
		return w.left, errDisk
	}
	w.left -= len(p)
	return len(p), nil
}

// Save returns the error of its writer, and leaves the session usable.
func TestSaveDiskFull(t *testing.T) {
	m := openSmallest(t)
	s := openSession(t, m, llm.SessionOptions{})
	decode(t, s, mixed(39)...)
	file := save(t, s)
	for n := range len(file) {
		if err := s.Save(context.Background(), &failingWriter{n}); !errors.Is(err, errDisk) {
			t.Fatalf("a disk with room for %d bytes: %v", n, err)
		}
	}
	if err := s.Save(context.Background(), &failingWriter{len(file)}); err != nil {
		t.Error(err)
	}
}

// Save and LoadSession follow the rules of other methods: a session that is in use or closed is
// not saved, and a closed model loads nothing.
func TestSaveClosed(t *testing.T) {
	m := openSmallest(t)
	s := openSession(t, m, llm.SessionOptions{})
	decode(t, s, mixed(5)...)
	file := save(t, s)
	for _, err := range s.GenerateIDs(context.Background(), prompt, llm.GenerateOptions{MaxTokens: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Save(context.Background(), io.Discard); !errors.Is(err, fucina.ErrBusy) {
			t.Errorf("save within a generation: %v, want %v", err, fucina.ErrBusy)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(context.Background(), io.Discard); !errors.Is(err, fucina.ErrClosed) {
		t.Errorf("save of a closed session: %v, want %v", err, fucina.ErrClosed)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.LoadSession(context.Background(), bytes.NewReader(file), llm.SessionOptions{}); !errors.Is(err, fucina.ErrClosed) {
		t.Errorf("load into a closed model: %v, want %v", err, fucina.ErrClosed)
	}
}

// interrupted calls between before its reads, after the first few.
type interrupted struct {
	r       io.Reader
	between func()
	skip    int
}

func (r *interrupted) Read(p []byte) (int, error) {
	if r.skip--; r.skip < 0 {
		r.between()
	}
	return r.r.Read(p[:min(len(p), 4096)])
}

// If the cache loses its contents while a session is loaded, because another session's step
// failed before any had succeeded, the session decodes its tokens again.
func TestLoadIntoLostCache(t *testing.T) {
	path := writeModel(t, tinyllama.New(tinyllama.Options{}))
	m := openModel(t, openExact(t), path, llm.Options{})
	s := openSession(t, m, llm.SessionOptions{})
	follow(t, s, mixed(200))
	file := save(t, s)
	want := follow(t, s, mixed(3))

	m = openModel(t, openExact(t), path, llm.Options{})
	other := openSession(t, m, llm.SessionOptions{})
	lost := 0
	r := &interrupted{r: bytes.NewReader(file), skip: 2, between: func() {
		if err := other.Decode(countdown.After(30), mixed(20), nil); !errors.Is(err, context.Canceled) {
			t.Errorf("decode, cancelled: %v", err)
		}
		lost++
	}}
	l, err := m.LoadSession(context.Background(), r, llm.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, l)
	if lost < 3 || l.Past() != 203 {
		t.Errorf("%d tokens after %d losses, want 203 after some", l.Past(), lost)
	}
	if n := binary.LittleEndian.Uint64(save(t, l)[atRows:]); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	if got := follow(t, l, mixed(3)); !slices.Equal(got, want) {
		t.Error("other logits after the tokens were decoded again")
	}
}

// Sessions are saved and loaded while others decode.
func TestSaveBesideDecode(t *testing.T) {
	m := openTiny(t, tinyllama.Options{})
	s := openSession(t, m, llm.SessionOptions{})
	decode(t, s, mixed(150)...)
	file := save(t, s)
	var wg sync.WaitGroup
	for i := range 2 {
		d := openSession(t, m, llm.SessionOptions{})
		wg.Go(func() {
			for range 20 {
				if err := d.Decode(context.Background(), mixed(8+i), nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() {
		for range 5 {
			var b bytes.Buffer
			if err := s.Save(context.Background(), &b); err != nil || !bytes.Equal(b.Bytes(), file) {
				t.Errorf("save: %v", err)
			}
		}
	})
	wg.Go(func() {
		for range 5 {
			l, err := m.LoadSession(context.Background(), bytes.NewReader(file), llm.SessionOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			var b bytes.Buffer
			if err := l.Save(context.Background(), &b); err != nil || !bytes.Equal(b.Bytes(), file) {
				t.Errorf("save of a loaded session: %v", err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
}

// LoadSession refuses or loads every file, whether its checksum is right or not. It does not
// panic, leaks nothing, and the session that it returns decodes.
func FuzzLoadSession(f *testing.F) {
	m := openSmallest(f)
	for _, n := range []int{0, 1, 32, 39} {
		s, err := m.NewSession(llm.SessionOptions{KV: dtype.F16})
		if err != nil {
			f.Fatal(err)
		}
		if n > 0 {
			decode(f, s, mixed(n)...)
		}
		f.Add(save(f, s), true)
		if err := s.Close(); err != nil {
			f.Fatal(err)
		}
	}
	// A format has a cache from its first session on, also if the session is not loaded in the end.
	for _, d := range []dtype.DType{dtype.F32, dtype.Q8_0} {
		if s, err := m.NewSession(llm.SessionOptions{KV: d}); err == nil {
			if err := s.Close(); err != nil {
				f.Fatal(err)
			}
		}
	}
	logits := make([]float32, m.Params().Vocabulary)
	f.Fuzz(func(t *testing.T, file []byte, sealed bool) {
		if file = slices.Clone(file); sealed && len(file) >= 4 {
			seal(file)
		}
		before := m.Engine().Stats().Handles
		s, err := m.LoadSession(context.Background(), bytes.NewReader(file), llm.SessionOptions{Context: 64})
		if err == nil {
			if err := s.Decode(context.Background(), []int32{5}, logits); err != nil && !errors.Is(err, llm.ErrContextFull) {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		} else if !errors.Is(err, llm.ErrSessionFile) && !errors.Is(err, llm.ErrContextFull) {
			t.Errorf("error %v", err)
		}
		if n := m.Engine().Stats().Handles; n != before && err != nil {
			t.Errorf("%d handles after %v, before %d", n, err, before)
		}
	})
}
