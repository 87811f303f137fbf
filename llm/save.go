package llm

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/llm/internal/kv"
	"github.com/fucina-go/fucina/llm/internal/kv/page"
)

// ErrSessionFile reports that LoadSession cannot read a file: it is no session, or it is damaged,
// or it is the session of another model, format or version.
var ErrSessionFile = errors.New("not a session of this model")

// The file of a session consists of these parts. Integers are little-endian.
//
//	magic        8 bytes    fileMagic
//	version      u32        fileVersion
//	model        32 bytes   gguf.Source.Fingerprint of the model
//	format       u32        the format of the cache, as a ggml_type
//	variant      u32, text  the variant of the rotary angles: its length and its bytes
//	tokens       u64        the number n of tokens
//	rows         u64        the number m <= n of tokens whose keys and values follow
//	ids          n i32      the tokens
//	generated    bits       for each token, whether it was generated: token i is bit i%8 of byte
//	                        i/8, and the bits after the last are 0
//	groups       u32        the number of groups of blocks that see the same window of tokens;
//	                        the first group sees all tokens
//	from         u32 each   for each group, the first page whose rows follow
//	pages                   the pages of each group, group after group
//	checksum     u32        the CRC-32C of all bytes before
//
// Page i has the rows of the tokens from 32i on. Each of the m tokens has one row in a block of
// the network, its keys or its values. A page in the file has, for each block of its group in
// order, the rows of its keys and then those of its values, in the format of the cache. The last
// page of a group ends with row m-1.
const (
	fileMagic   = "fucinakv"
	fileVersion = 1
)

// maxVariant is the largest length of a variant in a file.
const maxVariant = 64

// pieceIDs is the number of tokens that LoadSession reads at once, so that it allocates memory
// only as the tokens arrive.
const pieceIDs = 4096

// castagnoli is the polynomial of the checksum.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sessionHead has the first parts of a session's file.
type sessionHead struct {
	format       dtype.DType
	variant      string
	tokens, rows int
}

// Save writes the session to w, for [Model.LoadSession]: its tokens, and the keys and values that
// it holds. It writes small pieces; other sessions of the model can decode between them. Tokens
// that the next Decode has to decode again, see Rewind, are saved without keys and values, and
// the loaded session decodes them again.
//
// Save fails with ctx's error if ctx is done, which it checks between pieces, with ErrFileChanged
// if the model's file was truncated or overwritten, and with the errors of w. If a device fails
// meanwhile, also in a step of another session, Save fails with fucina.ErrDeviceFailed. The keys
// and values may then be lost, and a second Save writes the tokens alone. The session remains as
// it is.
//
// The file fits only the model that wrote it. Two models count as the same if their files have
// the same size, metadata and tensor descriptions, and the same first and last 4 KiB of each
// tensor. It may be read on another engine, whose provider continues with the keys and values
// that the first one has computed.
func (s *Session) Save(ctx context.Context, w io.Writer) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.exit()
	if err := s.save(ctx, w); err != nil {
		return fmt.Errorf("llm: save of a session: %w", err)
	}
	return nil
}

// save implements Save. The caller has claimed the session.
func (s *Session) save(ctx context.Context, w io.Writer) error {
	model, err := s.m.fingerprint()
	if err != nil {
		return err
	}
	// Within a turn, the runner knows whether the rows are lost.
	var rows int
	from := make([]uint32, len(s.tables))
	err = s.turn(ctx, func(*fucina.Context, *kv.Cache) error {
		s.m.steps.mu.Lock()
		defer s.m.steps.mu.Unlock()
		rows, _ = s.seq.Redo()
		for g := range s.tables {
			s.tables[g] = s.seq.Table(g)
			from[g] = firstPage(s.tables[g])
		}
		return nil
	})
	switch {
	case errors.Is(err, errLost):
		if err := s.m.source.Check(); err != nil {
			return err
		}
		rows, s.tables = 0, make([][]int32, len(s.tables))
	case err != nil:
		return err
	}
	out := &sessionWriter{w: bufio.NewWriter(w), sum: crc32.New(castagnoli)}
	ids := s.ids()
	out.head(model[:], &sessionHead{s.cache.shape.Format, s.opt.Key.Variant, len(ids), rows})
	out.tokens(ids, s.generated)
	out.u32(uint32(len(from)))
	for _, first := range from {
		out.u32(first)
	}
	var buf []byte
	for g, first := range from {
		for i := int(first); i*page.Rows < rows && out.err == nil; i++ {
			n := min(page.Rows, rows-i*page.Rows)
			err := s.turn(ctx, func(c *fucina.Context, pages *kv.Cache) error {
				buf = sized(buf, s.cache.shape.PageBytes(g, n))
				return pages.ReadPage(c, g, int(s.tables[g][i]), n, buf)
			})
			if errors.Is(err, errLost) {
				return fmt.Errorf("%w: %w", fucina.ErrDeviceFailed, err)
			}
			if err != nil {
				return err
			}
			out.write(buf)
		}
	}
	return out.end()
}

// firstPage returns the first entry of a table from which on the table has all pages.
func firstPage(table []int32) uint32 {
	i := len(table)
	for i > 0 && table[i-1] >= 0 {
		i--
	}
	return uint32(i)
}

// sized returns a slice of n bytes, aligned for elements of any format. It is buf if that is
// large enough.
func sized(buf []byte, n int) []byte {
	if n > cap(buf) {
		return make([]byte, n)
	}
	return buf[:n]
}

// turn calls use in the runner's context with the pages of the cache, while no step runs. It fails
// with errLost if the cache has lost the rows of the session.
func (s *Session) turn(ctx context.Context, use func(c *fucina.Context, pages *kv.Cache) error) error {
	r := &s.m.steps
	if err := ctx.Err(); err != nil {
		return err
	}
	c, f, err := r.begin(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	lost, pages := s.pool != s.cache.pool, s.cache.pages
	r.mu.Unlock()
	if err = errLost; !lost {
		err = r.verify(use(c, pages))
	}
	return r.end(f, err)
}

// sessionWriter writes the parts of a file. After an error it writes nothing more.
type sessionWriter struct {
	w   *bufio.Writer
	sum hash.Hash32
	err error
}

func (w *sessionWriter) write(p []byte) {
	if w.err == nil {
		w.sum.Write(p)
		_, w.err = w.w.Write(p)
	}
}

func (w *sessionWriter) u32(n uint32) { w.write(binary.LittleEndian.AppendUint32(nil, n)) }

func (w *sessionWriter) u64(n uint64) { w.write(binary.LittleEndian.AppendUint64(nil, n)) }

// head writes the parts from the magic bytes to the number of rows.
func (w *sessionWriter) head(model []byte, h *sessionHead) {
	w.write([]byte(fileMagic))
	w.u32(fileVersion)
	w.write(model)
	w.u32(uint32(h.format.GGUF()))
	w.u32(uint32(len(h.variant)))
	w.write([]byte(h.variant))
	w.u64(uint64(h.tokens))
	w.u64(uint64(h.rows))
}

func (w *sessionWriter) tokens(ids []int32, generated []bool) {
	for _, id := range ids {
		w.u32(uint32(id))
	}
	bits := make([]byte, (len(ids)+7)/8)
	for i, is := range generated {
		if is {
			bits[i/8] |= 1 << (i % 8)
		}
	}
	w.write(bits)
}

// end writes the checksum, and returns the first error.
func (w *sessionWriter) end() error {
	w.u32(w.sum.Sum32())
	if w.err != nil {
		return w.err
	}
	return w.w.Flush()
}

// LoadSession returns a session with the tokens, keys and values that [Session.Save] wrote. It
// reads r to its end. The next token gets the same logits as in the session that was saved, if
// the engine computes in the same way. Close it before the model.
//
// If opt.KV is zero, the session has the format of the file. LoadSession fails with
// ErrSessionFile if r is not a session of this model in this format, or is damaged, or if
// opt.Context needs other rotary angles than the session that was saved; with ErrContextFull if it has more than
// opt.Context tokens; with ErrCacheFull if the model's cache has too few free rows; and with the
// errors of r, of ctx and of NewSession. After an error nothing remains open. ctx is checked
// between reads, and while LoadSession waits for other sessions.
//
// A file proves nothing about the keys and values in it: whoever writes one can choose any. The
// session therefore never shares them with sessions that have the same tokens, except its forks,
// and does not take those of others. Otherwise, a file that someone has prepared could change the
// text of other sessions. To reuse a loaded prompt, fork its session. Memory that LoadSession
// allocates depends on the model, on opt and on the bytes that have arrived, but not on the
// lengths that the file claims to have.
//
// The keys and values of the file may be lost meanwhile, if a device fails, or if a step of another
// session fails or is cancelled before any step of the model has succeeded. The session then
// decodes its tokens again.
func (m *Model) LoadSession(ctx context.Context, r io.Reader, opt SessionOptions) (*Session, error) {
	in := &sessionReader{ctx: ctx, r: bufio.NewReader(r), sum: crc32.New(castagnoli)}
	h, err := m.openFile(in, opt.KV)
	if err != nil {
		return nil, fmt.Errorf("llm: load of a session: %w", err)
	}
	opt.KV = h.format
	s, err := m.newSession(opt, true)
	if err != nil {
		return nil, err
	}
	if err := s.load(in, &h); err != nil {
		return nil, errors.Join(fmt.Errorf("llm: load of a session: %w", err), s.Close())
	}
	return s, nil
}

// openFile reads the head of a file, and checks that it fits the model and the format want. A want
// of zero allows all formats.
func (m *Model) openFile(in *sessionReader, want dtype.DType) (h sessionHead, err error) {
	m.mu.Lock()
	closed := m.closed
	m.mu.Unlock()
	if closed {
		return h, fucina.ErrClosed
	}
	model, err := m.fingerprint()
	if err != nil {
		return h, err
	}
	if h, err = in.head(model[:]); err != nil {
		return h, err
	}
	if want != dtype.Invalid && h.format != want {
		return h, fmt.Errorf("%w: its cache is %s, want %s", ErrSessionFile, h.format, want)
	}
	shape := m.net.CacheShape(h.format)
	if err := shape.Check(); err != nil {
		return h, fmt.Errorf("%w: %w", ErrSessionFile, err)
	}
	return h, nil
}

// load reads the rest of a file into s, which nothing else uses yet.
func (s *Session) load(in *sessionReader, h *sessionHead) error {
	if h.variant != s.opt.Key.Variant {
		return fmt.Errorf("%w: its rotary angles are those of variant %q, want %q for a context of %d", ErrSessionFile, h.variant, s.opt.Key.Variant, s.limit)
	}
	if h.tokens > s.limit {
		return fmt.Errorf("%w: %d tokens in a context of %d", ErrContextFull, h.tokens, s.limit)
	}
	ids, err := in.ids(h.tokens, s.m.net.Params().Vocabulary)
	if err != nil {
		return err
	}
	if s.generated, err = in.generated(h.tokens); err != nil {
		return err
	}
	from, err := in.from(len(s.tables), h.rows)
	if err != nil {
		return err
	}
	if h.rows > 0 {
		if err := s.restore(h.rows, from); err != nil {
			return err
		}
	}
	if err := s.loadPages(in, h.rows, from); err != nil {
		return err
	}
	if err := in.end(); err != nil {
		return err
	}
	return s.loaded(ids, h.rows)
}

// restore makes room for n rows, of which the file has the pages from the entries from on.
func (s *Session) restore(n int, from []int) error {
	r := &s.m.steps
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := s.current(); err != nil {
		return err
	}
	for g, first := range from {
		if seen := s.seq.Seen(g, n); first > seen {
			return fmt.Errorf("%w: group %d begins with page %d, want %d or before", ErrSessionFile, g, first, seen)
		}
	}
	if err := s.seq.Restore(n, from); err != nil {
		return err
	}
	for g := range s.tables {
		s.tables[g] = s.seq.Table(g)
	}
	return nil
}

// loadPages reads the pages of n rows, and writes those that the tables have. If the cache loses
// its rows meanwhile, it only reads the others.
func (s *Session) loadPages(in *sessionReader, n int, from []int) error {
	var buf []byte
	for g, first := range from {
		for i := first; i*page.Rows < n; i++ {
			rows := min(page.Rows, n-i*page.Rows)
			buf = sized(buf, s.cache.shape.PageBytes(g, rows))
			if err := in.read(buf, "the rows"); err != nil {
				return err
			}
			if s.tables[g][i] < 0 {
				continue
			}
			err := s.turn(in.ctx, func(c *fucina.Context, pages *kv.Cache) error {
				return pages.WritePage(c, g, int(s.tables[g][i]), rows, buf)
			})
			if err != nil && !errors.Is(err, errLost) {
				return err
			}
		}
	}
	return nil
}

// loaded makes ids the tokens of the session. The first rows of them were written.
func (s *Session) loaded(ids []int32, rows int) error {
	r := &s.m.steps
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.pool != s.cache.pool {
		if err := s.current(); err != nil {
			return err
		}
		rows = 0
	}
	if rows > 0 {
		s.seq.Commit(ids[:rows])
		s.cache.used = true
		s.cache.giveBack()
	}
	s.seq.Append(ids[rows:])
	s.past.Store(int64(len(ids)))
	return nil
}

// sessionReader reads the parts of a file, which may be anything.
type sessionReader struct {
	ctx context.Context
	r   *bufio.Reader
	sum hash.Hash32
}

// read fills p. what is what it reads, in errors.
func (r *sessionReader) read(p []byte, what string) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	n, err := io.ReadFull(r.r, p)
	r.sum.Write(p[:n])
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends within %s", ErrSessionFile, what)
	}
	return err
}

func (r *sessionReader) u32(what string) (uint32, error) {
	var p [4]byte
	err := r.read(p[:], what)
	return binary.LittleEndian.Uint32(p[:]), err
}

func (r *sessionReader) u64(what string) (uint64, error) {
	var p [8]byte
	err := r.read(p[:], what)
	return binary.LittleEndian.Uint64(p[:]), err
}

// head reads the parts from the magic bytes to the number of rows, and checks that they can be
// those of a session of model.
func (r *sessionReader) head(model []byte) (h sessionHead, err error) {
	magic := make([]byte, len(fileMagic))
	if err := r.read(magic, "its head"); err != nil {
		return h, err
	}
	if string(magic) != fileMagic {
		return h, fmt.Errorf("%w: want the magic bytes %q, found %q", ErrSessionFile, fileMagic, magic)
	}
	version, err := r.u32("its version")
	if err != nil {
		return h, err
	}
	if version != fileVersion {
		return h, fmt.Errorf("%w: version %d, want %d", ErrSessionFile, version, fileVersion)
	}
	own := make([]byte, len(model))
	if err := r.read(own, "its model"); err != nil {
		return h, err
	}
	if string(own) != string(model) {
		return h, fmt.Errorf("%w: the session of another model", ErrSessionFile)
	}
	format, err := r.u32("its format")
	if err != nil {
		return h, err
	}
	formats := dtype.FromGGUF(format)
	if len(formats) != 1 {
		return h, fmt.Errorf("%w: a cache of type %d", ErrSessionFile, format)
	}
	h.format = formats[0]
	if h.variant, err = r.text(maxVariant, "its variant"); err != nil {
		return h, err
	}
	h.tokens, h.rows, err = r.counts()
	return h, err
}

func (r *sessionReader) text(limit int, what string) (string, error) {
	n, err := r.u32(what)
	if err != nil {
		return "", err
	}
	if int64(n) > int64(limit) {
		return "", fmt.Errorf("%w: %s has %d bytes, want at most %d", ErrSessionFile, what, n, limit)
	}
	p := make([]byte, n)
	err = r.read(p, what)
	return string(p), err
}

// counts reads the numbers of tokens and of rows.
func (r *sessionReader) counts() (tokens, rows int, err error) {
	n, err := r.u64("the number of tokens")
	if err != nil {
		return 0, 0, err
	}
	m, err := r.u64("the number of rows")
	if err != nil {
		return 0, 0, err
	}
	if n > maxFileTokens || m > n {
		return 0, 0, fmt.Errorf("%w: %d rows of %d tokens, want at most as many, and at most %d", ErrSessionFile, m, n, maxFileTokens)
	}
	return int(n), int(m), nil
}

// maxFileTokens is a number of tokens that no session has.
const maxFileTokens = 1<<31 - 1

// ids reads n tokens.
func (r *sessionReader) ids(n, vocabulary int) ([]int32, error) {
	var ids []int32
	piece := make([]byte, 4*min(n, pieceIDs))
	for len(ids) < n {
		piece = piece[:4*min(n-len(ids), pieceIDs)]
		if err := r.read(piece, "the tokens"); err != nil {
			return nil, err
		}
		for at := 0; at < len(piece); at += 4 {
			id := int32(binary.LittleEndian.Uint32(piece[at:]))
			if id < 0 || int(id) >= vocabulary {
				return nil, fmt.Errorf("%w: token %d at %d, the vocabulary has %d", ErrSessionFile, id, len(ids), vocabulary)
			}
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// generated reads for n tokens whether they were generated.
func (r *sessionReader) generated(n int) ([]bool, error) {
	bits := make([]byte, (n+7)/8) // the tokens, which are larger, have arrived
	if err := r.read(bits, "the tokens"); err != nil {
		return nil, err
	}
	if n%8 != 0 && bits[n/8]>>(n%8) != 0 {
		return nil, fmt.Errorf("%w: bits after those of %d tokens", ErrSessionFile, n)
	}
	generated := make([]bool, n)
	for i := range generated {
		generated[i] = bits[i/8]>>(i%8)&1 != 0
	}
	return generated, nil
}

// from reads for each group the first page that the file has, which is at most that of row n, the
// one after the last.
func (r *sessionReader) from(groups, n int) ([]int, error) {
	count, err := r.u32("the groups")
	if err != nil {
		return nil, err
	}
	if int64(count) != int64(groups) {
		return nil, fmt.Errorf("%w: %d groups of blocks, want %d", ErrSessionFile, count, groups)
	}
	from := make([]int, groups)
	for g := range from {
		first, err := r.u32("the groups")
		if err != nil {
			return nil, err
		}
		if last := n / page.Rows; int64(first) > int64(last) {
			return nil, fmt.Errorf("%w: group %d begins with page %d, want %d or before", ErrSessionFile, g, first, last)
		}
		from[g] = int(first)
	}
	return from, nil
}

// end reads the checksum, and checks that the file ends with it.
func (r *sessionReader) end() error {
	want := r.sum.Sum32()
	got, err := r.u32("the checksum")
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%w: its checksum is %08x, want %08x", ErrSessionFile, got, want)
	}
	switch _, err := r.r.ReadByte(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: it goes on after the checksum", ErrSessionFile)
}
