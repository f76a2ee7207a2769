#include "core/targets.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace halyard {

namespace {

/// The features that targets need: whether this CPU and its operating system support them.
struct CpuFeatures {
    bool avx2 = false, avx512 = false, neon = false;
};

#if defined(__x86_64__)

struct Registers {
    unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf = 0) {
    Registers r;
    __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);  // zeros if there is no such leaf
    return r;
}

constexpr bool has_all(unsigned word, unsigned bits) { return (word & bits) == bits; }

/// The register state that the operating system saves (Intel SDM volume 1, section 13.3): a CPU feature whose
/// registers are not saved cannot be used.
unsigned saved_state(const Registers &leaf1) {
    constexpr unsigned osxsave = 1u << 27;
    if (!has_all(leaf1.c, osxsave)) {
        return 0;
    }
    unsigned low = 0, high = 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

CpuFeatures detect() {
    const Registers leaf1 = cpuid(1), leaf7 = cpuid(7), extended = cpuid(0x80000001u);
    const unsigned state = saved_state(leaf1);

    // Halide compiles avx2 for LLVM's haswell and avx512_skylake for skylake-avx512, whose scalar instructions (BMI,
    // LZCNT, MOVBE, POPCNT) appear in the kernels too.
    constexpr unsigned fma_sse41_movbe_popcnt_avx_f16c =
        1u << 12 | 1u << 19 | 1u << 22 | 1u << 23 | 1u << 28 | 1u << 29;
    constexpr unsigned lzcnt = 1u << 5;
    constexpr unsigned bmi1_avx2_bmi2 = 1u << 3 | 1u << 5 | 1u << 8;
    constexpr unsigned avx512_f_dq_cd_bw_vl = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;
    constexpr unsigned xmm_ymm = 0x06, xmm_ymm_zmm_masks = 0xe6;

    CpuFeatures found;
    found.avx2 = has_all(leaf1.c, fma_sse41_movbe_popcnt_avx_f16c) && has_all(extended.c, lzcnt) &&
                 has_all(leaf7.b, bmi1_avx2_bmi2) && has_all(state, xmm_ymm);
    found.avx512 = found.avx2 && has_all(leaf7.b, avx512_f_dq_cd_bw_vl) && has_all(state, xmm_ymm_zmm_masks);
    return found;
}

#elif defined(__aarch64__) && defined(__linux__)

constexpr unsigned long fp_asimd = 1ul << 0 | 1ul << 1;  // the kernel's HWCAP_FP and HWCAP_ASIMD

CpuFeatures detect() { return {.neon = (getauxval(AT_HWCAP) & fp_asimd) == fp_asimd}; }

#elif defined(__aarch64__)

CpuFeatures detect() { return {.neon = true}; }  // macOS, iOS and Windows need a CPU with NEON

#else

CpuFeatures detect() { return {}; }

#endif

/// Whether this CPU runs a target's kernels. For GPUs see halyard_cuda.h: their driver decides.
bool runs(Target target, const CpuFeatures &cpu) {
    switch (target) {
    case Target::x86_avx512: return cpu.avx512;
    case Target::x86_avx2: return cpu.avx2;
    case Target::arm_neon: return cpu.neon;
    case Target::cuda_sm89:
    case Target::cuda_sm80: return false;
    case Target::reference: return true;
    }
    return false;
}

TargetSet find_supported_targets() {
    const CpuFeatures cpu = detect();
    TargetSet found = 0;
    for (std::int32_t i = 0; i < n_targets; i++) {
        found |= runs(Target(i), cpu) ? bit(Target(i)) : 0;
    }
    return found;
}

}  // namespace

TargetSet supported_targets() noexcept {
    static const TargetSet found = find_supported_targets();
    return found;
}

}  // namespace halyard
