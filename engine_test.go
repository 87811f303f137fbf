package fucina_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/providers"
	"github.com/fucina-go/fucina/providers/cpu"
)

func TestOptions(t *testing.T) {
	for _, tt := range []struct {
		name    string
		env     map[string]string
		opts    []fucina.Option
		exact   bool
		threads int
		err     error  // the sentinel of the error, if Open fails
		part    string // a part of the error's message
	}{
		{name: "defaults", threads: runtime.NumCPU()},
		{name: "exact by option", opts: []fucina.Option{fucina.WithExact(true), fucina.WithThreads(3)}, exact: true, threads: 3},
		{name: "exact by variable", env: map[string]string{fucina.ExactEnv: "1"}, exact: true},
		{name: "the option wins", env: map[string]string{fucina.ExactEnv: "1"}, opts: []fucina.Option{fucina.WithExact(false)}},
		{name: "exact off", env: map[string]string{fucina.ExactEnv: "0"}},
		{name: "exact misspelt", env: map[string]string{fucina.ExactEnv: "yes"}, part: `FUCINA_EXACT is "yes", want 0 or 1`},
		{name: "threads", opts: []fucina.Option{fucina.WithThreads(-1)}, part: "-1 threads"},
		{name: "device memory", opts: []fucina.Option{fucina.WithDeviceBudget(-1)}, part: "device memory of -1 bytes"},
		{name: "no end of threads", opts: []fucina.Option{fucina.WithThreads(math.MaxInt32)}, part: "threads, want 1 to 4096"},
		{name: "provider", opts: []fucina.Option{fucina.WithProvider("abacus")}, err: fucina.ErrUnavailable, part: `"abacus"`},
		{name: "provider by variable", env: map[string]string{providers.Env: "abacus"}, err: fucina.ErrUnavailable, part: `"abacus"`},
		{name: "the named provider wins", env: map[string]string{providers.Env: "abacus"}, opts: []fucina.Option{fucina.WithProvider("cpu")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(fucina.ExactEnv, "")
			t.Setenv(providers.Env, "cpu")
			for k, v := range tt.env {
				t.Setenv(k, v)
			}
			e, err := fucina.Open(tt.opts...)
			if tt.part != "" {
				if err == nil || !strings.Contains(err.Error(), tt.part) || tt.err != nil && !errors.Is(err, tt.err) {
					t.Fatalf("got error %v, want %q", err, tt.part)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if e.Exact() != tt.exact || tt.threads != 0 && e.Threads() != tt.threads || e.Provider() != "cpu" {
				t.Errorf("exact %v, threads %d, provider %s", e.Exact(), e.Threads(), e.Provider())
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// given is a provider that counts the calls of Close.
type given struct {
	provider.Device
	host   bool // Info.HostMemory
	closed int
}

func (g *given) Info() provider.Info { return provider.Info{Name: "given", HostMemory: g.host} }
func (g *given) Close() error        { g.closed++; return nil }

// Open takes ownership of the given providers, even if it fails.
func TestFailedOpenClosesProviders(t *testing.T) {
	for _, tt := range []struct {
		name        string
		cpu, device *given
		opt         fucina.Option
		exact       string
		part        string
	}{
		{name: "threads", device: &given{}, opt: fucina.WithThreads(-1), part: "-1 threads"},
		{name: "exact misspelt", device: &given{}, cpu: &given{host: true}, exact: "yes", part: "FUCINA_EXACT"},
		{name: "threads of another", device: &given{}, cpu: &given{host: true}, opt: fucina.WithThreads(2), part: "WithThreads(2) with WithCPU: the provider has its own threads"},
		{name: "no such device", cpu: &given{host: true}, opt: fucina.WithProvider("abacus"), part: `"abacus"`},
		{name: "device in host memory", device: &given{host: true}, part: "WithCPU"},
		{name: "device in host memory beside another", device: &given{host: true}, cpu: &given{host: true}, part: "WithCPU"},
		{name: "CPU without host memory", cpu: &given{}, part: "WithDevice"},
		{name: "CPU without host memory beside a device", device: &given{}, cpu: &given{}, part: "WithDevice"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(fucina.ExactEnv, tt.exact)
			opts := []fucina.Option{tt.opt}
			if tt.device != nil {
				opts = append(opts, fucina.WithDevice(tt.device))
			}
			if tt.cpu != nil {
				opts = append(opts, fucina.WithCPU(tt.cpu))
			}
			_, err := fucina.Open(opts...)
			if err == nil || !strings.Contains(err.Error(), tt.part) {
				t.Errorf("error %v, want one with %q", err, tt.part)
			}
			for what, g := range map[string]*given{"device": tt.device, "CPU": tt.cpu} {
				if g != nil && g.closed != 1 {
					t.Errorf("the %s was closed %d times", what, g.closed)
				}
			}
		})
	}
}

// closing is a provider that counts the calls of Close.
type closing struct {
	provider.Provider
	closed *int
}

func (c closing) Close() error {
	*c.closed++
	return c.Provider.Close()
}

// WithCPU puts a provider in place of the CPU, in every build, and the engine closes it.
func TestHostProvider(t *testing.T) {
	p, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	closed := 0
	e, err := fucina.Open(fucina.WithCPU(closing{p, &closed}), fucina.WithProvider("cpu"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := e.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	x := numbered(c, "d:3")
	x.Add(x)
	if s := p.Stats(); s.Submits[op.Add] != 1 {
		t.Errorf("the provider counts %+v", s)
	}
	if e.Provider() != "cpu" || e.Threads() != 0 {
		t.Errorf("provider %s, %d threads", e.Provider(), e.Threads())
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if closed != 1 {
		t.Errorf("the provider was closed %d times", closed)
	}
}

// Stats counts the operations of the CPU and of the device.
func TestStats(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		e := c.Engine()
		x := numbered(c, "d:3")
		x.Add(x)
		s := e.Stats()
		ops := s.CPU.Submits
		if e.Provider() != "cpu" {
			ops = s.Device.Submits
		}
		if ops[op.Add] != 1 || s.Handles != 2 || s.Pool.Outstanding != 2 || s.Fallbacks != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// The raw tensor is internal: no type that a user of the package can reach through
// exported names, fields and methods mentions it.
func TestRawTensorIsNotExported(t *testing.T) {
	const module = "github.com/fucina-go/fucina"
	const raw = module + "/core/tensor"
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{if .Export}}{{.ImportPath}}={{.Export}}{{end}}", ".")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		files[path] = file
	}
	imp := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		b, err := os.ReadFile(files[path])
		return io.NopCloser(bytes.NewReader(b)), err
	})
	pkg, err := imp.Import(module)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[types.Type]bool)
	found := 0
	var walk func(trail string, ty types.Type)
	walk = func(trail string, ty types.Type) {
		if ty == nil || seen[ty] {
			return
		}
		seen[ty] = true
		switch ty := ty.(type) {
		case *types.Alias:
			walk(trail, types.Unalias(ty))
		case *types.Named:
			p := ty.Obj().Pkg()
			if p == nil || !strings.HasPrefix(p.Path(), module) {
				return
			}
			if p.Path() == raw {
				t.Errorf("%s mentions %s", trail, ty)
			}
			found++
			for m := range ty.Methods() {
				if m.Exported() {
					walk(trail+"."+m.Name(), m.Type())
				}
			}
			walk(trail, ty.Underlying())
		case *types.Struct:
			for f := range ty.Fields() {
				if f.Exported() {
					walk(trail+"."+f.Name(), f.Type())
				}
			}
		case *types.Interface:
			for m := range ty.Methods() {
				walk(trail+"."+m.Name(), m.Type())
			}
		case *types.Signature:
			walk(trail, ty.Params())
			walk(trail, ty.Results())
		case *types.Tuple:
			for v := range ty.Variables() {
				walk(trail, v.Type())
			}
		case *types.Map:
			walk(trail, ty.Key())
			walk(trail, ty.Elem())
		case interface{ Elem() types.Type }: // pointers, slices, arrays, channels
			walk(trail, ty.Elem())
		}
	}
	scope := pkg.Scope()
	for _, name := range scope.Names() {
		if token.IsExported(name) {
			walk(fmt.Sprintf("fucina.%s", name), scope.Lookup(name).Type())
		}
	}
	if found < 10 {
		t.Errorf("the walk saw %d types; it is broken", found)
	}
}
