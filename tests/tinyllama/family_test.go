package tinyllama

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
)

// The bytes of a model never change, because results were recorded from them.
func TestFamilyBytesArePinned(t *testing.T) {
	want := map[string]string{
		"llama-linear":         "800c2fb4ebaeee032a0b43b965884c7d9111cd6ee9313424d95d2a8cb353c64d",
		"llama-factor":         "404f4bab995851cbf3814de08b554a9674666a4a4aaeb003b2464e444b1bdaac",
		"llama-yarn":           "588e15a94a9ef6b6f8c0fa76ef4bc963777a3e0d63a35d3735b39b6c6fef7fae",
		"llama-yarn-magnitude": "86736582180a2bcc5ed4172c24d6ac2822ddf67769d885c5905add46cb4dc040",
		"llama-yarn-shorter":   "96f492d548b31bda40b9b3e681048ee97691a31984fb2b1341b9c3741997f221",
		"llama-yarn-ramp":      "4fe68626ac9280f8092ff773e2f7c48e92b4ae4130f5c4ecbe9faeb3de4c3856",
		"qwen2-yarn-betas":     "dbdb7277ae101b45f27e50660b91efc6cde3a792980f168e6d99919f2ad07651",
		"llama-3":              "e83f38c6af7f2332923edd8f557e487b3543f0bd306ba922e6e4ce03eda4688c",
		"llama-bias":           "5be8b98e30e0a387d13be6645dc72d82cea31e631d5a3409f87ba95c4ede3d7e",
		"qwen2":                "fbd217481b0ad6c0b311a8460ee1b1c19d661f288445d906ffa2ddcd737295aa",
		"qwen3":                "82dbc1e848424640c532649f21641543cd26fcf5e3eb5bb5513dce67eaf5855a",
		"gemma2":               "8109c50ad84af609f1f872ddc8175f6bdfbc24ce58f66afbc7da02b823fdc6aa",
		"gemma2-default":       "68fd93ff6669c6bd1c78effa4b981ae877727135f854aa55b9d09ccf61cbe301",
		"gemma3":               "95f36310e69090506502f693c6852f512d630d206c6f33bd2bd75671de3b1360",
		"gemma3-yarn":          "36874cdb3cf115fb4964af40a8fd71b99214bf6dec9af63dcbd05c6722c1b13c",
		"gemma3-global":        "b7a4f7b8e5861a0ec064116ce1fea1dd4cfdbd79d5dbe96b81a525b68c3c39bf",
		"phi3-short":           "65447e2dd7220638e2073ae9f636b73baace888a4c6c318a6ec8a54417b1ff60",
		"phi3-long":            "4205bdff236d56d01751de5f669af23fd71b7e2e0fc77d3d6ad8cf70ec29cce9",
	}
	for _, f := range families {
		sum := sha256.Sum256(f.build().Bytes())
		if got := hex.EncodeToString(sum[:]); got != want[f.name] {
			t.Errorf("%s: sha256 %s, want %s", f.name, got, want[f.name])
		}
	}
}

func TestFamilies(t *testing.T) {
	for _, f := range Families() {
		if len(f.IDs) != 24 || len(f.PromptIDs) < 32 || f.Context != 512 || len(f.FirstLogits) != len(newVocabulary().tokens) {
			t.Errorf("%s: %d ids, %d prompt ids, context %d, %d logits", f.Name, len(f.IDs), len(f.PromptIDs), f.Context, len(f.FirstLogits))
		}
		if a, b := f.Model().Bytes(), f.Model().Bytes(); string(a) != string(b) {
			t.Errorf("%s: two builds differ", f.Name)
		}
	}
}
