package quantize

import "github.com/fucina-go/fucina/core/dtype"

// mixture has a recipe's exceptions to its base format, which are those of llama.cpp
// (src/llama-quant.cpp). If a rule is nil or returns dtype.Invalid, the tensor gets the base
// format.
type mixture struct {
	output    dtype.DType // the format of the output matrix; Invalid means Q6_K
	embedding dtype.DType // the format of a token embedding that is not also the output matrix

	value, key, query, attnOut rule
	down, gateUp               rule

	// tiny says that the recipe is below three bits. Such a recipe has other exceptions
	// for models of experts, and counts layers in the order of the tensors.
	tiny bool
	// richOut says that a model of eight experts stores attention outputs in Q5_K.
	richOut bool
}

// rule chooses the format of a tensor by its site.
type rule func(s *site) dtype.DType

// site describes a tensor for a rule.
type site struct {
	layer  int // the index among the tensors of the same part, or the layer in the name
	layers int // the number of these tensors, or of layers
	model  *hyper
	// importance says that there is importance data, for this tensor or others.
	importance bool
}

// more reports whether mixtures give the layer more bits: the layers of the first and last
// eighth, and every third layer between them.
func (s *site) more() bool {
	eighth := s.layers / 8
	return s.layer < eighth || s.layer >= 7*s.layers/8 || (s.layer-eighth)%3 == 2
}

// shared reports whether at least four query heads share each key and value head. The value
// matrix is then small, and mixtures give it more bits.
func (s *site) shared() bool { return s.model.groups() >= 4 }

// firstOf reports whether the layer is in the first of n equal parts.
func (s *site) firstOf(n int) bool { return s.layer < s.layers/n }

func (s *site) eightExperts() bool { return s.model.experts == 8 }

func always(d dtype.DType) rule { return func(*site) dtype.DType { return d } }

// when returns a rule that returns d if cond returns true, and dtype.Invalid otherwise.
func when(cond func(*site) bool, d dtype.DType) rule {
	return func(s *site) dtype.DType {
		if cond(s) {
			return d
		}
		return dtype.Invalid
	}
}

// orElse returns a rule that applies other if r returns dtype.Invalid.
func (r rule) orElse(other rule) rule {
	return func(s *site) dtype.DType {
		if d := r(s); d != dtype.Invalid || other == nil {
			return d
		}
		return other(s)
	}
}

func (r rule) or(d dtype.DType) rule { return r.orElse(always(d)) }

func early(s *site) bool  { return s.firstOf(8) }
func middle(s *site) bool { return !s.firstOf(8) && s.layer < 7*s.layers/8 }

// earlyCalibrated is early with importance data, and earlyBlind without.
func earlyCalibrated(s *site) bool { return s.importance && early(s) }
func earlyBlind(s *site) bool      { return !s.importance && early(s) }

// unlessFalcon returns a rule that applies other to falcon, and r to all other architectures.
func unlessFalcon(r, other rule) rule {
	return func(s *site) dtype.DType {
		if s.model.arch == "falcon" {
			if other == nil {
				return dtype.Invalid
			}
			return other(s)
		}
		return r(s)
	}
}

// mixtures has the recipes with more exceptions than a better format for the output matrix.
var mixtures = map[FileType]mixture{
	Q4_0: {down: when(earlyCalibrated, dtype.Q4_1)},
	Q5_0: {down: when(earlyCalibrated, dtype.Q5_1)},

	Q2_K: {
		value:   when((*site).shared, dtype.Q4_K).or(dtype.Q3_K),
		down:    always(dtype.Q3_K),
		attnOut: unlessFalcon(always(dtype.Q3_K), nil),
		richOut: true,
	},
	Q2_K_S: {
		value: when((*site).shared, dtype.Q4_K),
		down:  when(early, dtype.Q4_K),
	},
	Q3_K_S: {richOut: true},
	Q3_K_M: {
		value: when(func(s *site) bool { return s.layer < 2 }, dtype.Q5_K).or(dtype.Q4_K),
		down: when(func(s *site) bool { return s.firstOf(16) }, dtype.Q5_K).orElse(
			unlessFalcon(always(dtype.Q4_K), when((*site).more, dtype.Q4_K))),
		attnOut: unlessFalcon(always(dtype.Q4_K), nil),
		richOut: true,
	},
	Q3_K_L: {
		value:   always(dtype.Q5_K),
		down:    unlessFalcon(always(dtype.Q5_K), always(dtype.Q4_K)),
		attnOut: unlessFalcon(always(dtype.Q5_K), always(dtype.Q4_K)),
	},
	Q4_K_S: {
		value:   when(func(s *site) bool { return s.layer < 4 }, dtype.Q5_K),
		down:    unlessFalcon(when(early, dtype.Q5_K), nil),
		richOut: true,
	},
	Q4_K_M: {
		value: when((*site).more, dtype.Q6_K),
		down: unlessFalcon(when((*site).more, dtype.Q6_K),
			when(func(s *site) bool { return s.firstOf(16) }, dtype.Q6_K).orElse(when((*site).more, dtype.Q5_K))),
		richOut: true,
	},
	Q5_K_M: {
		value: when((*site).more, dtype.Q6_K),
		down:  when((*site).more, dtype.Q6_K),
	},

	IQ3_XXS: {
		output:    dtype.Q5_K,
		embedding: dtype.IQ3_S,
		value: func(s *site) dtype.DType {
			switch {
			case s.shared():
				return dtype.Q4_K
			case s.importance:
				return dtype.IQ3_XXS
			}
			return dtype.IQ3_S
		},
		key:   always(dtype.IQ2_S),
		query: always(dtype.IQ2_S),
		down: func(s *site) dtype.DType {
			switch {
			case s.importance:
				return dtype.Invalid
			case early(s):
				return dtype.Q4_K
			}
			return dtype.Q3_K
		},
		attnOut: unlessFalcon(always(dtype.IQ3_S), nil),
		richOut: true,
	},
	IQ3_XS: {
		value:   when((*site).shared, dtype.Q4_K),
		key:     always(dtype.IQ3_XXS),
		query:   always(dtype.IQ3_XXS),
		gateUp:  when(middle, dtype.IQ3_XXS),
		richOut: true,
	},
	IQ3_S: {
		value:   when((*site).shared, dtype.Q4_K),
		richOut: true,
	},
	IQ3_M: {
		value: always(dtype.Q4_K),
		down: when(func(s *site) bool {
			return early(s) || s.eightExperts() && s.more()
		}, dtype.Q4_K),
		attnOut: unlessFalcon(always(dtype.Q4_K), nil),
		richOut: true,
	},
	IQ4_NL: fourBits,
	IQ4_XS: fourBits,

	IQ1_S:   tiny(dtype.Q2_K, dtype.Q2_K, always(dtype.IQ2_XXS)),
	IQ1_M:   tiny(dtype.Q2_K, dtype.Q2_K, always(dtype.IQ2_XXS)),
	IQ2_XXS: tiny(dtype.Q2_K, dtype.Q2_K, nil),
	IQ2_XS:  tiny(dtype.Q2_K, dtype.Q2_K, nil),
	IQ2_S:   tiny(dtype.IQ3_S, dtype.IQ3_S, always(dtype.IQ3_S)),
	IQ2_M:   tiny(dtype.IQ3_S, dtype.IQ3_S, always(dtype.IQ3_S)),

	TQ1_0: {embedding: dtype.Q4_K},
	TQ2_0: {embedding: dtype.Q4_K},
	Q2_0:  {embedding: dtype.Q4_K},
}

var fourBits = mixture{
	value:   when((*site).shared, dtype.Q5_K),
	down:    when(earlyBlind, dtype.Q5_K),
	richOut: true,
}

// tiny returns the mixture of a recipe below three bits. better is the format of matrices that
// matter more.
func tiny(embedding, better dtype.DType, attnOut rule) mixture {
	return mixture{
		tiny:      true,
		output:    dtype.Q5_K,
		embedding: embedding,
		value: when(func(s *site) bool {
			return s.shared() || s.model.experts >= 4
		}, dtype.Q4_K).or(better),
		key:     when((*site).eightExperts, dtype.Q4_K),
		attnOut: when((*site).eightExperts, dtype.Q5_K).orElse(attnOut),
		down:    when(early, better),
	}
}
