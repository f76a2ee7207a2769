#include "rotate/cpu.h"

#include <cstdio>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace halyard {

namespace {

struct CpuName {
    char text[32];
};

/// What a CPU and its operating system support, of all that targets ask for.
struct CpuFeatures {
    bool sse41 = false, avx2 = false, avx512 = false, neon = false;
};

#if defined(__x86_64__)

struct Registers {
    unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf = 0) {
    Registers r;
    __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);  // leaves zeros where there is no such leaf
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
    constexpr unsigned sse41 = 1u << 19;
    constexpr unsigned fma_movbe_popcnt_avx_f16c = 1u << 12 | 1u << 22 | 1u << 23 | 1u << 28 | 1u << 29;
    constexpr unsigned lzcnt = 1u << 5;
    constexpr unsigned bmi1_avx2_bmi2 = 1u << 3 | 1u << 5 | 1u << 8;
    constexpr unsigned avx512_f_dq_cd_bw_vl = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;
    constexpr unsigned xmm_ymm = 0x06, xmm_ymm_zmm_masks = 0xe6;

    CpuFeatures found;
    found.sse41 = has_all(leaf1.c, sse41);
    found.avx2 = found.sse41 && has_all(leaf1.c, fma_movbe_popcnt_avx_f16c) && has_all(extended.c, lzcnt) &&
                 has_all(leaf7.b, bmi1_avx2_bmi2) && has_all(state, xmm_ymm);
    found.avx512 = found.avx2 && has_all(leaf7.b, avx512_f_dq_cd_bw_vl) && has_all(state, xmm_ymm_zmm_masks);
    return found;
}

CpuName find_name() {
    const Registers vendor = cpuid(0), leaf1 = cpuid(1);
    const bool amd = vendor.b == 0x68747541, intel = vendor.b == 0x756e6547;  // "Auth" and "Genu", as bytes
    // As Linux counts them in /proc/cpuinfo.
    unsigned family = leaf1.a >> 8 & 15, model = leaf1.a >> 4 & 15;
    model += family >= 6 ? (leaf1.a >> 16 & 15) << 4 : 0;
    family += family == 15 ? leaf1.a >> 20 & 255 : 0;
    CpuName name = {};
    if (amd || intel) {
        std::snprintf(name.text, sizeof(name.text), "%s_%u_%u", amd ? "amd" : "intel", family, model);
    }
    return name;
}

#elif defined(__aarch64__) && defined(__linux__)

// Of the kernel's hwcap.h: HWCAP_FP and HWCAP_ASIMD; and HWCAP_CPUID, with which Linux lets programs read MIDR_EL1.
constexpr unsigned long fp_asimd = 1ul << 0 | 1ul << 1, cpuid = 1ul << 11;

CpuFeatures detect() { return {.neon = (getauxval(AT_HWCAP) & fp_asimd) == fp_asimd}; }

// Those that ./run tune models, and some that are common, with LLVM's names. Implementer and part are from Arm's and
// Ampere's reference manuals.
constexpr struct {
    unsigned implementer, part;
    const char *name;
} arm_cpus[] = {
    {0x41, 0xd03, "cortex_a53"},  {0x41, 0xd05, "cortex_a55"},  {0x41, 0xd07, "cortex_a57"},
    {0x41, 0xd08, "cortex_a72"},  {0x41, 0xd0b, "cortex_a76"},  {0x41, 0xd46, "cortex_a510"},
    {0x41, 0xd0c, "neoverse_n1"}, {0x41, 0xd49, "neoverse_n2"}, {0x41, 0xd40, "neoverse_v1"},
    {0x41, 0xd4f, "neoverse_v2"}, {0xc0, 0xac3, "ampere1"},
};

/// Where there are several models (big.LITTLE), that of the CPU on which this is first asked: any variant is right on
/// all of them.
CpuName find_name() {
    CpuName name = {};
    if ((getauxval(AT_HWCAP) & cpuid) == 0) {
        return name;
    }
    std::uint64_t midr = 0;
    __asm__("mrs %0, MIDR_EL1" : "=r"(midr));
    const auto implementer = static_cast<unsigned>(midr >> 24 & 0xff), part = static_cast<unsigned>(midr >> 4 & 0xfff);
    std::snprintf(name.text, sizeof(name.text), "arm_%02x_%03x", implementer, part);
    for (const auto &cpu : arm_cpus) {
        if (cpu.implementer == implementer && cpu.part == part) {
            std::snprintf(name.text, sizeof(name.text), "%s", cpu.name);
        }
    }
    return name;
}

#elif defined(__aarch64__)

CpuFeatures detect() { return {.neon = true}; }  // macOS, iOS and Windows run on no CPU without it

CpuName find_name() { return {}; }

#else

CpuFeatures detect() { return {}; }

CpuName find_name() { return {}; }

#endif

/// Whether this CPU runs a target's kernels. A GPU's run where its driver is: see halyard_gpu.h.
bool runs(Target target, const CpuFeatures &cpu) {
    switch (target) {
    case Target::x86_avx512: return cpu.avx512;
    case Target::x86_avx2: return cpu.avx2;
    case Target::x86_sse41: return cpu.sse41;
    case Target::arm_neon: return cpu.neon;
    case Target::cuda_sm80:
    case Target::opencl: return false;
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

const char *cpu_name() noexcept {
    static const CpuName name = find_name();
    return name.text;
}

}  // namespace halyard
