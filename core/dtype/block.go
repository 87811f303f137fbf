package dtype

import (
	"unsafe"

	"github.com/x448/float16"
)

// KScaleSize is the number of bytes of packed 6-bit scales and mins in Q4_K and Q5_K.
const KScaleSize = 12

// The block layouts, byte-exact with ggml 0.23 (src/ggml-common.h). d and dmin
// are binary16 scales unless a comment says otherwise.
type (
	// BlockQ1_0 holds 128 signs.
	BlockQ1_0 struct {
		D  float16.Float16
		QS [16]uint8
	}
	// BlockQ2_0 holds 128 2-bit codes.
	BlockQ2_0 struct {
		D  float16.Float16
		QS [32]uint8
	}
	// BlockQ2_0_G64 holds 64 2-bit codes, as ggml 0.23 writes GGUF type 42.
	BlockQ2_0_G64 struct {
		D  float16.Float16
		QS [16]uint8
	}
	BlockQ4_0 struct {
		D  float16.Float16
		QS [16]uint8
	}
	BlockQ4_1 struct {
		D, M float16.Float16
		QS   [16]uint8
	}
	BlockQ5_0 struct {
		D  float16.Float16
		QH [4]uint8
		QS [16]uint8
	}
	BlockQ5_1 struct {
		D, M float16.Float16
		QH   [4]uint8
		QS   [16]uint8
	}
	BlockQ8_0 struct {
		D  float16.Float16
		QS [32]int8
	}
	// BlockQ8_1 adds S, d times the sum of the codes.
	BlockQ8_1 struct {
		D, S float16.Float16
		QS   [32]int8
	}
	BlockQ2_K struct {
		Scales  [16]uint8
		QS      [64]uint8
		D, DMin float16.Float16
	}
	BlockQ3_K struct {
		HMask  [32]uint8
		QS     [64]uint8
		Scales [12]uint8
		D      float16.Float16
	}
	BlockQ4_K struct {
		D, DMin float16.Float16
		Scales  [KScaleSize]uint8
		QS      [128]uint8
	}
	BlockQ5_K struct {
		D, DMin float16.Float16
		Scales  [KScaleSize]uint8
		QH      [32]uint8
		QS      [128]uint8
	}
	BlockQ6_K struct {
		QL     [128]uint8
		QH     [64]uint8
		Scales [16]int8
		D      float16.Float16
	}
	// BlockQ8_K holds activations. D is an f32, and BSums an int16 per 16 codes,
	// both little-endian: the struct keeps byte alignment like every other block.
	BlockQ8_K struct {
		D     [4]uint8
		QS    [256]int8
		BSums [16][2]uint8
	}
	BlockIQ1_S struct {
		D  float16.Float16
		QS [32]uint8
		QH [8]uint16
	}
	// BlockIQ1_M has no d field: its 16 bits are spread over the scales.
	BlockIQ1_M struct {
		QS     [32]uint8
		QH     [16]uint8
		Scales [8]uint8
	}
	BlockIQ2_XXS struct {
		D  float16.Float16
		QS [32]uint16
	}
	BlockIQ2_XS struct {
		D      float16.Float16
		QS     [32]uint16
		Scales [8]uint8
	}
	BlockIQ2_S struct {
		D      float16.Float16
		QS     [64]uint8
		QH     [8]uint8
		Scales [8]uint8
	}
	BlockIQ3_XXS struct {
		D  float16.Float16
		QS [96]uint8
	}
	BlockIQ3_S struct {
		D      float16.Float16
		QS     [64]uint8
		QH     [8]uint8
		Signs  [32]uint8
		Scales [4]uint8
	}
	BlockIQ4_NL struct {
		D  float16.Float16
		QS [16]uint8
	}
	BlockIQ4_XS struct {
		D       float16.Float16
		ScalesH uint16
		ScalesL [4]uint8
		QS      [128]uint8
	}
	BlockTQ1_0 struct {
		QS [48]uint8
		QH [4]uint8
		D  float16.Float16
	}
	BlockTQ2_0 struct {
		QS [64]uint8
		D  float16.Float16
	}
	// BlockMXFP4 has one E8M0 scale byte.
	BlockMXFP4 struct {
		E  uint8
		QS [16]uint8
	}
	// BlockNVFP4 has one UE4M3 scale byte per 16 elements.
	BlockNVFP4 struct {
		D  [4]uint8
		QS [32]uint8
	}
)

// The sizes are part of the file format.
var (
	_ [18]byte  = [unsafe.Sizeof(BlockQ1_0{})]byte{}
	_ [34]byte  = [unsafe.Sizeof(BlockQ2_0{})]byte{}
	_ [18]byte  = [unsafe.Sizeof(BlockQ2_0_G64{})]byte{}
	_ [18]byte  = [unsafe.Sizeof(BlockQ4_0{})]byte{}
	_ [20]byte  = [unsafe.Sizeof(BlockQ4_1{})]byte{}
	_ [22]byte  = [unsafe.Sizeof(BlockQ5_0{})]byte{}
	_ [24]byte  = [unsafe.Sizeof(BlockQ5_1{})]byte{}
	_ [34]byte  = [unsafe.Sizeof(BlockQ8_0{})]byte{}
	_ [36]byte  = [unsafe.Sizeof(BlockQ8_1{})]byte{}
	_ [84]byte  = [unsafe.Sizeof(BlockQ2_K{})]byte{}
	_ [110]byte = [unsafe.Sizeof(BlockQ3_K{})]byte{}
	_ [144]byte = [unsafe.Sizeof(BlockQ4_K{})]byte{}
	_ [176]byte = [unsafe.Sizeof(BlockQ5_K{})]byte{}
	_ [210]byte = [unsafe.Sizeof(BlockQ6_K{})]byte{}
	_ [292]byte = [unsafe.Sizeof(BlockQ8_K{})]byte{}
	_ [50]byte  = [unsafe.Sizeof(BlockIQ1_S{})]byte{}
	_ [56]byte  = [unsafe.Sizeof(BlockIQ1_M{})]byte{}
	_ [66]byte  = [unsafe.Sizeof(BlockIQ2_XXS{})]byte{}
	_ [74]byte  = [unsafe.Sizeof(BlockIQ2_XS{})]byte{}
	_ [82]byte  = [unsafe.Sizeof(BlockIQ2_S{})]byte{}
	_ [98]byte  = [unsafe.Sizeof(BlockIQ3_XXS{})]byte{}
	_ [110]byte = [unsafe.Sizeof(BlockIQ3_S{})]byte{}
	_ [18]byte  = [unsafe.Sizeof(BlockIQ4_NL{})]byte{}
	_ [136]byte = [unsafe.Sizeof(BlockIQ4_XS{})]byte{}
	_ [54]byte  = [unsafe.Sizeof(BlockTQ1_0{})]byte{}
	_ [66]byte  = [unsafe.Sizeof(BlockTQ2_0{})]byte{}
	_ [17]byte  = [unsafe.Sizeof(BlockMXFP4{})]byte{}
	_ [36]byte  = [unsafe.Sizeof(BlockNVFP4{})]byte{}
)
