//go:build unix

package llm_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/tests/sigbus"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// cuts returns lengths to which tests truncate a model's file. The last one is detected only by
// the size of the file, because no page is missing.
func cuts(size int) map[string]int {
	page := os.Getpagesize()
	return map[string]int{
		"to nothing": 0, "at a page": page, "in a page": size/2/page*page + 100, "in the last page": size - 1,
	}
}

// wantChanged checks that err says in one line that the file at path changed.
func wantChanged(t testing.TB, err error, path string) {
	t.Helper()
	if !errors.Is(err, llm.ErrFileChanged) || !errors.Is(err, fucina.ErrFileChanged) {
		t.Fatalf("error %v, want ErrFileChanged", err)
	}
	if s := err.Error(); !strings.Contains(s, "file changed") || !strings.Contains(s, path) || strings.Contains(s, "\n") {
		t.Errorf("error %q, want one line that says that %s changed", s, path)
	}
}

// After its file was truncated, every use of a model fails, and gives no wrong text. Its
// sessions can be closed, and nothing leaks.
func TestModelFileIsCut(t *testing.T) {
	sigbus.Need(t)
	ids := []int32{1, 265, 270, 280, 262}
	uses := map[string]func(s *llm.Session) error{
		"decode": func(s *llm.Session) error {
			return s.Decode(context.Background(), ids, make([]float32, s.Model().Params().Vocabulary))
		},
		"decode without logits": func(s *llm.Session) error { return s.Decode(context.Background(), ids, nil) },
		"decode all": func(s *llm.Session) error {
			return s.DecodeAll(context.Background(), ids, func(int, []float32) error { return nil })
		},
		"generate": func(s *llm.Session) error {
			for _, err := range s.GenerateIDs(context.Background(), ids, llm.GenerateOptions{MaxTokens: 3}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"save": func(s *llm.Session) error { return s.Save(context.Background(), io.Discard) },
		"new session": func(s *llm.Session) error {
			other, err := s.Model().NewSession(llm.SessionOptions{})
			if err != nil {
				return err
			}
			return errors.Join(other.Decode(context.Background(), ids, nil), other.Close())
		},
	}
	for _, d := range []dtype.DType{dtype.F32, dtype.Q8_0} {
		image := tinyllama.GGUF(tinyllama.Options{DType: d})
		for name, use := range uses {
			for cut, size := range cuts(len(image)) {
				t.Run(d.String()+" "+name+" "+cut, func(t *testing.T) {
					path := filepath.Join(t.TempDir(), "model.gguf")
					if err := os.WriteFile(path, image, 0o600); err != nil {
						t.Fatal(err)
					}
					s := openSession(t, openModel(t, openExact(t), path, llm.Options{}), llm.SessionOptions{})
					if cut != "in a page" { // there, the weights are not on a device yet
						if err := use(s); err != nil {
							t.Fatal(err)
						}
					}
					past := s.Past()
					if err := os.Truncate(path, int64(size)); err != nil {
						t.Fatal(err)
					}
					for range 2 {
						wantChanged(t, use(s), path)
					}
					if s.Past() != past {
						t.Errorf("the session holds %d tokens, want the %d from before", s.Past(), past)
					}
					if err := s.Rewind(past + 1); err == nil {
						t.Errorf("a session of %d tokens is rewound to %d", past, past+1)
					}
				})
			}
		}
	}
}

// A model whose file was truncated has no fingerprint, so nothing can be loaded or saved.
func TestFingerprintOfCutFile(t *testing.T) {
	sigbus.Need(t)
	path := writeModel(t, tinyllama.New(tinyllama.Options{}))
	m := openModel(t, openExact(t), path, llm.Options{})
	s := openSession(t, m, llm.SessionOptions{})
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := m.LoadSession(context.Background(), strings.NewReader("fucinakv"), llm.SessionOptions{})
		wantChanged(t, err, path)
		wantChanged(t, s.Save(context.Background(), io.Discard), path)
	}
}

// If the file is truncated during a generation, the generation ends with the error.
func TestGenerateWhileFileIsCut(t *testing.T) {
	sigbus.Need(t)
	path := writeModel(t, tinyllama.New(tinyllama.Options{}))
	m := openModel(t, openExact(t), path, llm.Options{})
	s := openSession(t, m, llm.SessionOptions{})
	n := 0
	var last error
	for tok, err := range s.Generate(context.Background(), "a b", llm.GenerateOptions{}) {
		if last = err; err != nil {
			break
		}
		if n++; n == 3 {
			if err := os.Truncate(path, 4096); err != nil {
				t.Fatal(err)
			}
		}
		if tok.End != llm.EndNone {
			t.Fatalf("ended with %v after %d tokens", tok.End, n)
		}
	}
	if n != 3 {
		t.Errorf("%d tokens before the error, want 3", n)
	}
	wantChanged(t, last, path)
}

// After a rename has replaced the file of a model, the model gives the same results as before.
func TestModelFileIsReplaced(t *testing.T) {
	path := writeModel(t, tinyllama.New(tinyllama.Options{}))
	s := openSession(t, openModel(t, openExact(t), path, llm.Options{}), llm.SessionOptions{})
	ids := []int32{1, 265, 270}
	before := decode(t, s, ids...)
	if err := os.WriteFile(path+".new", []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if err := s.Rewind(0); err != nil {
		t.Fatal(err)
	}
	if after := decode(t, s, ids...); !slices.Equal(after, before) {
		t.Error("the logits changed with the file of that name")
	}
}

// New reads the divisors of the rotary frequencies, and fails if the file was truncated before.
func TestFactorsOfCutFile(t *testing.T) {
	sigbus.Need(t)
	m := tinyllama.New(tinyllama.Options{})
	m.Add("rope_freqs.weight", dtype.F32, m.Tensor("blk.0.attn_q.weight").Shape[0]/4/2)
	path := writeModel(t, m)
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	model, err := llm.New(openExact(t), f, llm.Options{})
	if err == nil {
		_ = model.Close()
	}
	wantChanged(t, err, path)
}

// A read of a tensor of a truncated file fails without a model too.
func TestTensorOfCutFile(t *testing.T) {
	sigbus.Need(t)
	path := writeModel(t, tinyllama.New(tinyllama.Options{}))
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	eng := openExact(t)
	info, _ := f.Tensor("output_norm.weight")
	buf, err := f.Buffer(info)
	if err != nil {
		t.Fatal(err)
	}
	w, err := eng.Weight(buf, info.DType, fucina.Ax("d", info.Shape[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Release()
	c, err := eng.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	wantChanged(t, fucina.CopyOut(w, make([]float32, info.Shape[0])), path)
	wantChanged(t, w.On(c).Scale(2).Err(), path)
	wantChanged(t, fucina.FromSlice(c, f.Data(info), fucina.Ax("bytes", int(info.Size))).Err(), path)
}
