// The ceilings' loops of 256-bit vectors; compiled for AVX2 and F16C.
#include "rivals/ceiling_loops.h"

namespace halyard::bench {

namespace {

struct Width {
    using Words = std::uint32_t __attribute__((vector_size(32)));
    using Floats = float __attribute__((vector_size(32)));
    using Halves = __m128i;
    static void stream(char *to, Words value) { _mm256_stream_si256(reinterpret_cast<__m256i *>(to), __m256i(value)); }
    static void stream(char *to, Halves value) { _mm_stream_si128(reinterpret_cast<__m128i *>(to), value); }
    static Floats widen_f16(Halves value) { return _mm256_cvtph_ps(value); }
    static Halves round_f16(Floats value) { return _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT); }
    static Words add_half_an_ulp(Words bits) { return bits + 0x7fff + (bits >> 16 & 1); }
    static Words join_upper_halves(Words low, Words high) {
        return Words(_mm256_blend_epi16(__m256i(low >> 16), __m256i(high), 0xaa));
    }
};

using F16 = ConvertF16<Width, Keep>;
using Bf16 = ConvertBf16<Width, Keep>;

}  // namespace

using Of = CeilingLoop::Of;
const CeilingLoop loops_256[] = {
    {"multiply_256", Of::memory, true, false, run<false, Multiply<Width>>},
    {"copy_256", Of::memory, false, true, run<false, Copy<Width>>},
    {"non_temporal_256", Of::memory, false, true, run<true, Copy<Width>>},
    {"convert_f16_256", Of::f16, true, true, run<false, F16>, scale<ConvertF16<Width, Scale>>},
    {"convert_f16_non_temporal_256", Of::f16, false, true, run<true, F16>},
    {"convert_bf16_256", Of::bf16, true, true, run<false, Bf16>, scale<ConvertBf16<Width, Scale>>},
    {"convert_bf16_non_temporal_256", Of::bf16, false, true, run<true, Bf16>},
};

}  // namespace halyard::bench
