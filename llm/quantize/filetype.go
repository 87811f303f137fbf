package quantize

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fucina-go/fucina/core/dtype"
)

// FileType is a recipe for the formats of a model's matrices. The numbers are those of
// llama_ftype and of the key general.file_type.
type FileType uint32

// The recipes. A recipe has the name of the format of most matrices. A name with _S, _M, _L,
// _XS or _MOE is that of a mixture of formats.
const (
	F32       FileType = 0
	F16       FileType = 1
	Q4_0      FileType = 2
	Q4_1      FileType = 3
	Q8_0      FileType = 7
	Q5_0      FileType = 8
	Q5_1      FileType = 9
	Q2_K      FileType = 10
	Q3_K_S    FileType = 11
	Q3_K_M    FileType = 12
	Q3_K_L    FileType = 13
	Q4_K_S    FileType = 14
	Q4_K_M    FileType = 15
	Q5_K_S    FileType = 16
	Q5_K_M    FileType = 17
	Q6_K      FileType = 18
	IQ2_XXS   FileType = 19
	IQ2_XS    FileType = 20
	Q2_K_S    FileType = 21
	IQ3_XS    FileType = 22
	IQ3_XXS   FileType = 23
	IQ1_S     FileType = 24
	IQ4_NL    FileType = 25
	IQ3_S     FileType = 26
	IQ3_M     FileType = 27
	IQ2_S     FileType = 28
	IQ2_M     FileType = 29
	IQ4_XS    FileType = 30
	IQ1_M     FileType = 31
	BF16      FileType = 32
	TQ1_0     FileType = 36
	TQ2_0     FileType = 37
	MXFP4_MOE FileType = 38
	NVFP4     FileType = 39
	Q1_0      FileType = 40
	Q2_0      FileType = 41
)

// recipe describes a FileType.
type recipe struct {
	t    FileType
	name string // in the spelling of llama.cpp
	// base is the format of most matrices, and of all matrices in a pure file.
	base dtype.DType
}

// recipes lists the recipes by ascending number.
var recipes = []recipe{
	{F32, "F32", dtype.F32},
	{F16, "F16", dtype.F16},
	{Q4_0, "Q4_0", dtype.Q4_0},
	{Q4_1, "Q4_1", dtype.Q4_1},
	{Q8_0, "Q8_0", dtype.Q8_0},
	{Q5_0, "Q5_0", dtype.Q5_0},
	{Q5_1, "Q5_1", dtype.Q5_1},
	{Q2_K, "Q2_K", dtype.Q2_K},
	{Q3_K_S, "Q3_K_S", dtype.Q3_K},
	{Q3_K_M, "Q3_K_M", dtype.Q3_K},
	{Q3_K_L, "Q3_K_L", dtype.Q3_K},
	{Q4_K_S, "Q4_K_S", dtype.Q4_K},
	{Q4_K_M, "Q4_K_M", dtype.Q4_K},
	{Q5_K_S, "Q5_K_S", dtype.Q5_K},
	{Q5_K_M, "Q5_K_M", dtype.Q5_K},
	{Q6_K, "Q6_K", dtype.Q6_K},
	{IQ2_XXS, "IQ2_XXS", dtype.IQ2_XXS},
	{IQ2_XS, "IQ2_XS", dtype.IQ2_XS},
	{Q2_K_S, "Q2_K_S", dtype.Q2_K},
	{IQ3_XS, "IQ3_XS", dtype.IQ3_S},
	{IQ3_XXS, "IQ3_XXS", dtype.IQ3_XXS},
	{IQ1_S, "IQ1_S", dtype.IQ1_S},
	{IQ4_NL, "IQ4_NL", dtype.IQ4_NL},
	{IQ3_S, "IQ3_S", dtype.IQ3_S},
	{IQ3_M, "IQ3_M", dtype.IQ3_S},
	{IQ2_S, "IQ2_S", dtype.IQ2_XS},
	{IQ2_M, "IQ2_M", dtype.IQ2_S},
	{IQ4_XS, "IQ4_XS", dtype.IQ4_XS},
	{IQ1_M, "IQ1_M", dtype.IQ1_M},
	{BF16, "BF16", dtype.BF16},
	{TQ1_0, "TQ1_0", dtype.TQ1_0},
	{TQ2_0, "TQ2_0", dtype.TQ2_0},
	{MXFP4_MOE, "MXFP4_MOE", dtype.MXFP4},
	{NVFP4, "NVFP4", dtype.NVFP4},
	{Q1_0, "Q1_0", dtype.Q1_0},
	// llama.cpp writes the form with groups of 64.
	{Q2_0, "Q2_0", dtype.Q2_0_G64},
}

// aliases has further names that ParseFileType accepts: those of llama.cpp, and the name of a
// format with only one recipe.
var aliases = map[string]FileType{
	"Q3_K": Q3_K_M, "Q4_K": Q4_K_M, "Q5_K": Q5_K_M, "MXFP4": MXFP4_MOE,
}

// find returns the recipe for which is returns true, and whether there is one.
func find(is func(recipe) bool) (recipe, bool) {
	i := slices.IndexFunc(recipes, is)
	if i < 0 {
		return recipe{}, false
	}
	return recipes[i], true
}

// recipe returns the recipe of t, and whether there is one.
func (t FileType) recipe() (recipe, bool) {
	return find(func(r recipe) bool { return r.t == t })
}

// FileTypes returns all recipes by ascending number.
func FileTypes() []FileType {
	list := make([]FileType, len(recipes))
	for i, r := range recipes {
		list[i] = r.t
	}
	return list
}

// ParseFileType returns the recipe with the given name, in upper or lower case. Q3_K, Q4_K and
// Q5_K mean their _M mixtures, and MXFP4 means MXFP4_MOE. The error wraps [ErrFileType].
func ParseFileType(name string) (FileType, error) {
	upper := strings.ToUpper(name)
	if r, ok := find(func(r recipe) bool { return r.name == upper }); ok {
		return r.t, nil
	}
	if t, ok := aliases[upper]; ok {
		return t, nil
	}
	known := make([]string, len(recipes))
	for i, r := range recipes {
		known[i] = r.name
	}
	return 0, fmt.Errorf("%w: %s, want one of %s", ErrFileType, quote(name), strings.Join(known, " "))
}

// String returns the name of t, such as "Q4_K_M".
func (t FileType) String() string {
	if r, ok := t.recipe(); ok {
		return r.name
	}
	return "FileType(" + strconv.FormatUint(uint64(t), 10) + ")"
}

// DType returns the format that t gives to most matrices, and to all matrices in a pure file:
// dtype.Q4_K for Q4_K_M. It returns dtype.Invalid if t is not a recipe.
func (t FileType) DType() dtype.DType {
	r, _ := t.recipe()
	return r.base
}
