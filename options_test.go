package fucina

import (
	"testing"

	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/providers"
)

// Open sets up the device of a provider that an option or the variable names. It does not set
// up a device that "auto" chose or that the program opened.
func TestChoiceOfProvider(t *testing.T) {
	type device struct{ provider.Device }
	for _, tt := range []struct {
		env   string
		opts  []Option
		name  string
		eager bool
	}{
		{},
		{env: "auto", name: "auto"},
		{env: "cuda", name: "cuda", eager: true},
		{opts: []Option{WithProvider("auto")}, name: "auto"},
		{opts: []Option{WithProvider("metal")}, name: "metal", eager: true},
		{env: "cuda", opts: []Option{WithProvider("auto")}, name: "auto"},
		{env: "auto", opts: []Option{WithProvider("metal")}, name: "metal", eager: true},
		{env: "cuda", opts: []Option{WithDevice(device{})}},
	} {
		t.Setenv(providers.Env, tt.env)
		var cfg config
		for _, o := range tt.opts {
			o(&cfg)
		}
		if name, eager := cfg.choice(); name != tt.name || eager != tt.eager {
			t.Errorf("%s=%q and %d options: %q, eager %v", providers.Env, tt.env, len(tt.opts), name, eager)
		}
	}
}
