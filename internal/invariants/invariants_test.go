package invariants_test

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/internal/invariants"
)

// The constants must agree with what the toolchain recorded about this build.
func TestConstantsFollowBuild(t *testing.T) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("no build information in this binary")
	}
	var tagged, race bool
	for _, s := range info.Settings {
		switch s.Key {
		case "-tags":
			for _, tag := range strings.Split(s.Value, ",") {
				tagged = tagged || tag == "invariants"
			}
		case "-race":
			race = s.Value == "true"
		}
	}
	if invariants.Enabled != tagged {
		t.Errorf("Enabled = %v, build has the tag: %v", invariants.Enabled, tagged)
	}
	if invariants.RaceEnabled != race {
		t.Errorf("RaceEnabled = %v, build runs the detector: %v", invariants.RaceEnabled, race)
	}
}
