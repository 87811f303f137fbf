package tokenizer

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// stripConfig reads the Config of a file with the given keys; "" means that a key is missing.
// The vocabulary is one of two in testdata. stripConfig adds the tokens of models for masked
// text to the second one.
func stripConfig(t testing.TB, model, architecture, name, pre string) Config {
	t.Helper()
	m := map[string]any{"tokenizer.ggml.model": model}
	for key, value := range map[string]string{"general.architecture": architecture, "general.name": name, "tokenizer.ggml.pre": pre} {
		if value != "" {
			m[key] = value
		}
	}
	var vocab Config
	if model == ModelBPE {
		vocab = loadBPE(t, pre)
		vocab.Tokens = append(vocab.Tokens, "<mask>", "[MASK]", "\n\n")
		vocab.Types = append(vocab.Types, Control, UserDefined, UserDefined)
		m["tokenizer.ggml.merges"] = vocab.Merges
		m["tokenizer.ggml.bos_token_id"] = vocab.BOS
		m["tokenizer.ggml.eos_token_id"] = vocab.EOS
	} else {
		vocab = loadConfig(t, "phi3_vocab.json")
		m["tokenizer.ggml.scores"] = vocab.Scores
	}
	types := make([]int32, len(vocab.Types))
	for i, kind := range vocab.Types {
		types[i] = int32(kind)
	}
	m["tokenizer.ggml.tokens"] = vocab.Tokens
	m["tokenizer.ggml.token_type"] = types
	cfg, err := FromMetadata(func(key string) (any, bool) { v, ok := m[key]; return v, ok })
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// Models whose special tokens strip white space, and one whose special tokens do not, give
// the ids of llama.cpp for random texts of special tokens, white space and words. Some special
// tokens consist of white space or contain it.
func TestStripGolden(t *testing.T) {
	var goldens []struct {
		Model, Architecture, Name, Pre string
		golden
	}
	readJSON(t, "strip_golden.json", &goldens)
	for _, g := range goldens {
		t.Run(g.Name, func(t *testing.T) {
			g.check(t, mustNew(t, stripConfig(t, g.Model, g.Architecture, g.Name, g.Pre)))
		})
	}
}

func TestStripFromMetadata(t *testing.T) {
	for _, tc := range []struct {
		model, architecture, name, pre string
		before, after                  []string
	}{
		{ModelSPM, "phi3", "", "", nil, nil},
		{ModelSPM, "phi3", "phi 3", "phi3", nil, nil},
		{ModelSPM, "", "A Phi-3.5 model", "", nil, []string{
			"</s>", "<|assistant|>", "<|step|>", "<|system|>", "<|user|>", "<|end|>", "<|mine|>", "<b>",
			"\n\n", " \t", "\t \t \t \t \t \t ", " b ", "</s> <s>"}},
		{ModelSPM, "", "modern-bert", "", nil, nil},
		{ModelBPE, "", "", "jina-v2-code", []string{"<mask>"}, nil},
		{ModelBPE, "", "phi-3 modern-bert", "jina-v2-es", []string{"<mask>"}, nil},
		{ModelBPE, "", "", "jina-v1-en", nil, nil},
		{ModelBPE, "jina-bert-v3", "", "gpt-2", []string{"<mask>"}, nil},
		{ModelBPE, "nomic-bert-moe", "", "gpt-2", []string{"<mask>"}, nil},
		{ModelBPE, "modern-bert", "Modern-BERT base", "gpt-2", []string{"[MASK]"}, nil},
	} {
		cfg := stripConfig(t, tc.model, tc.architecture, tc.name, tc.pre)
		named := func(ids []int32) (out []string) {
			for _, id := range ids {
				out = append(out, cfg.Tokens[id])
			}
			return out
		}
		if before, after := named(cfg.StripBefore), named(cfg.StripAfter); !slices.Equal(before, tc.before) || !slices.Equal(after, tc.after) {
			t.Errorf("%+v: before %q, after %q", tc, before, after)
		}
	}
}

// A key with a value of the wrong type is an error only if it affects the texts of the model.
func TestUnusedKeys(t *testing.T) {
	const ggml = "tokenizer.ggml."
	for _, tc := range []struct{ model, unused, used string }{
		{ModelSPM,
			"general.name general.architecture " + ggml + "pre " + ggml + "merges " + ggml + "seperator_token_id " + ggml + "fim_pre_token_id " +
				ggml + "suffix_token_id " + ggml + "normalizer.lowercase " + ggml + "normalizer.strip_accents",
			ggml + "scores " + ggml + "token_type " + ggml + "eos_token_id " + ggml + "fim_pad_token_id " + ggml + "add_bos_token " + ggml + "add_eos_token " + ggml + "add_space_prefix"},
		{ModelBPE,
			"general.name general.architecture " + ggml + "scores " + ggml + "seperator_token_id " + ggml + "fim_mid_token_id " + ggml + "prefix_token_id " +
				ggml + "add_space_prefix " + ggml + "normalizer.lowercase",
			ggml + "pre " + ggml + "merges " + ggml + "token_type " + ggml + "eot_token_id " + ggml + "add_bos_token"},
		{ModelWordPiece,
			"general.name " + ggml + "pre " + ggml + "scores " + ggml + "merges " + ggml + "fim_suf_token_id " + ggml + "add_bos_token " + ggml + "add_eos_token " + ggml + "add_space_prefix",
			ggml + "seperator_token_id " + ggml + "unknown_token_id " + ggml + "normalizer.lowercase " + ggml + "normalizer.strip_accents"},
		{ModelNone, ggml + "tokens " + ggml + "pre " + ggml + "bos_token_id", ggml + "model"},
	} {
		with := func(key string, value any) (Config, error) {
			m := map[string]any{ggml + "model": tc.model, ggml + "tokens": []string{"a", "b"}}
			if tc.model == ModelBPE {
				m[ggml+"merges"] = []string{}
			}
			if key != "" {
				m[key] = value
			}
			return FromMetadata(func(key string) (any, bool) { v, ok := m[key]; return v, ok })
		}
		want, err := with("", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range strings.Fields(tc.unused) {
			for _, v := range []any{3.5, []bool{true}, struct{}{}} {
				if got, err := with(key, v); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %s of %T: %+v, %v, want %+v", tc.model, key, v, got, err, want)
				}
			}
		}
		for _, key := range strings.Fields(tc.used) {
			if _, err := with(key, 3.5); !errors.Is(err, ErrMetadata) {
				t.Errorf("%s: %s of float64: %v, want %v", tc.model, key, err, ErrMetadata)
			}
		}
	}
}
