package llm_test

import (
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"math"
	"os"
	"runtime"
	"testing"
)

// bitsPath is a file with the SHA-256 of the first logits of the golden tests, as little-endian
// f32, by the name of the test. Exact mode gives the same bits on every provider, with any
// number of threads, and before and after a change that is not meant to change results. They
// are the bits of amd64. They differ on processors on which Go fuses products and sums.
const bitsPath = "testdata/bits.json"

//go:embed testdata/bits.json
var bitsJSON []byte

var recordBits = flag.Bool("record-bits", false, "write the bits of the golden tests that run to "+bitsPath)

// checkBits checks that the first logits of the running test have the recorded digest.
func checkBits(t *testing.T, logits []float32) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		return
	}
	var p []byte
	for _, v := range logits {
		p = binary.LittleEndian.AppendUint32(p, math.Float32bits(v))
	}
	sum := sha256.Sum256(p)
	got := hex.EncodeToString(sum[:])
	data := bitsJSON
	if *recordBits {
		var err error
		if data, err = os.ReadFile(bitsPath); err != nil {
			t.Fatal(err)
		}
	}
	var all map[string]string
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	if *recordBits {
		all[t.Name()] = got
		data, err := json.MarshalIndent(all, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(bitsPath, append(data, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != all[t.Name()] {
		t.Errorf("the first logits have the digest %s, recorded is %q: the change alters results, or none is recorded", got, all[t.Name()])
	}
}
