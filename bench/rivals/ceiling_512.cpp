// The ceilings' loops of 512-bit vectors; compiled for AVX-512 F, BW, VL and BF16. No compiler chooses BF16's
// instructions by itself.
#include "rivals/ceiling_loops.h"

namespace halyard::bench {

namespace {

struct Width {
    using Words = std::uint32_t __attribute__((vector_size(64)));
    using Floats = float __attribute__((vector_size(64)));
    using Halves = __m256i;
    static void stream(char *to, Words value) { _mm512_stream_si512(reinterpret_cast<__m512i *>(to), __m512i(value)); }
    static void stream(char *to, Halves value) { _mm256_stream_si256(reinterpret_cast<__m256i *>(to), value); }
    static Floats widen_f16(Halves value) { return _mm512_cvtph_ps(value); }
    static Halves round_f16(Floats value) { return _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT); }
    static Words add_half_an_ulp(Words bits) { return bits + 0x7fff + (bits >> 16 & 1); }
    static Words join_upper_halves(Words low, Words high) {
        return Words(_mm512_mask_mov_epi16(__m512i(low >> 16), 0xaaaaaaaa, __m512i(high)));
    }
};

/// Finds odd upper halves by a test, which on some CPUs leaves more of the ports that shift to the rest.
struct WidthWithTest : Width {
    static Words add_half_an_ulp(Words bits) {
        const __mmask16 odd = _mm512_test_epi32_mask(__m512i(bits), _mm512_set1_epi32(0x10000));
        return Words(_mm512_mask_add_epi32(__m512i(bits + 0x7fff), odd, __m512i(bits), _mm512_set1_epi32(0x8000)));
    }
};

/// By VCVTNE2PS2BF16, which takes subnormals for zeros: a ceiling may, because it asks only what conversion costs.
template <template <typename> typename Between>
struct InstructionBf16 : Copy<Width> {
    Between<Width::Floats> between;
    Vector operator()(Vector words) const {
        // A word of zeros and an element is the element widened.
        const auto low = between(Width::Floats(_mm512_unpacklo_epi16(__m512i{}, __m512i(words))));
        const auto high = between(Width::Floats(_mm512_unpackhi_epi16(__m512i{}, __m512i(words))));
        const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
        return Vector(_mm512_permutexvar_epi64(order, __m512i(_mm512_cvtne2ps_pbh(high, low))));
    }
};

using F16 = ConvertF16<Width, Keep>;
using Bf16 = ConvertBf16<Width, Keep>;
using TestedBf16 = ConvertBf16<WidthWithTest, Keep>;

}  // namespace

using Of = CeilingLoop::Of;
const CeilingLoop loops_512[] = {
    {"multiply_512", Of::memory, true, false, run<false, Multiply<Width>>},
    {"copy_512", Of::memory, false, true, run<false, Copy<Width>>},
    {"non_temporal_512", Of::memory, false, true, run<true, Copy<Width>>},
    {"convert_f16_512", Of::f16, true, true, run<false, F16>, scale<ConvertF16<Width, Scale>>},
    {"convert_f16_non_temporal_512", Of::f16, false, true, run<true, F16>},
    {"convert_bf16_512", Of::bf16, true, true, run<false, Bf16>, scale<ConvertBf16<Width, Scale>>},
    {"convert_bf16_tested_512", Of::bf16, true, true, run<false, TestedBf16>, scale<ConvertBf16<WidthWithTest, Scale>>},
    {"convert_bf16_non_temporal_512", Of::bf16, false, true, run<true, Bf16>},
};
const CeilingLoop loops_bf16[] = {
    {"convert_bf16_instruction_512", Of::bf16, true, true, run<false, InstructionBf16<Keep>>,
     scale<InstructionBf16<Scale>>, false},
    {"convert_bf16_instruction_non_temporal_512", Of::bf16, false, true, run<true, InstructionBf16<Keep>>, nullptr,
     false},
};

}  // namespace halyard::bench
