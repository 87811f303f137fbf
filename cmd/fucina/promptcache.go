package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fucina-go/fucina/internal/atomicfile"
	"github.com/fucina-go/fucina/llm"
)

// promptCache is a file with a session, which a run begins with and leaves behind.
type promptCache struct {
	path     string // empty if there is none
	all      bool   // save the session at the end, with the generated text
	readOnly bool   // save nothing
}

func (f *flags) promptCache() *promptCache {
	c := &promptCache{}
	f.StringVar(&c.path, "prompt-cache", "", "`file` with the keys and values of a prompt; if it exists, what the prompt has in common with it is not computed again, and a prompt that it does not contain replaces it, as does the end of a -chat")
	f.BoolVar(&c.all, "prompt-cache-all", false, "write the -prompt-cache at the end, with the generated text")
	f.BoolVar(&c.readOnly, "prompt-cache-ro", false, "read the -prompt-cache, and do not write it")
	return c
}

func (c *promptCache) check() error {
	switch {
	case c.path == "" && (c.all || c.readOnly):
		return usagef("run: -prompt-cache-all and -prompt-cache-ro go with -prompt-cache")
	case c.all && c.readOnly:
		return usagef("run: -prompt-cache-all does not go with -prompt-cache-ro")
	}
	if !c.writes() {
		return nil
	}
	// The file is written after the prompt, which may take minutes.
	if _, err := os.Stat(filepath.Dir(c.path)); err != nil {
		return fmt.Errorf("run: -prompt-cache %s: %w", c.path, err)
	}
	return nil
}

// writes reports whether the session is saved.
func (c *promptCache) writes() bool { return c.path != "" && !c.readOnly }

// save replaces the file by the session s.
func (c *promptCache) save(ctx context.Context, s *llm.Session) error {
	return atomicfile.Write(c.path, func(w io.Writer) error { return s.Save(ctx, w) })
}

// saveAtEnd saves s after a run that ended with err, if s has tokens and err is nil or an
// interrupt. It returns err and the error of the save. A second signal ends the program.
func (c *promptCache) saveAtEnd(ctx context.Context, s *llm.Session, err error) error {
	if s.Past() == 0 || err != nil && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
		return err
	}
	return errors.Join(err, c.save(context.WithoutCancel(ctx), s))
}

// beginSession returns the session in the file at path, or a new one if path is empty or the file
// does not exist or is empty, as in llama.cpp.
func beginSession(ctx context.Context, m *llm.Model, path string, opt llm.SessionOptions) (*llm.Session, error) {
	if path == "" {
		return m.NewSession(opt)
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m.NewSession(opt)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		return m.NewSession(opt)
	}
	s, err := m.LoadSession(ctx, f, opt)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}
