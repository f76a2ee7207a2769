// halyard_demo: rotates arrays with the best kernels of this machine, and shows how far the results are from exact
// arithmetic. How fast they come is shown by bench/demo.py, which runs this first.
#include "halyard/halyard.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

namespace {

using namespace halyard;

constexpr std::int64_t head_dim = 128, pairs = head_dim / 2;
constexpr double base = 500000.0;

/// cos and sin of a pair at a position, exact to about 1e-9 at the last int32 position and 1e-14 at common ones.
struct Exact {
    long double cos, sin;
    Exact(std::int32_t position, std::int64_t pair) {
        const long double inv_freq = std::pow(static_cast<long double>(base), -static_cast<long double>(pair) / pairs);
        cos = std::cos(position * inv_freq);
        sin = std::sin(position * inv_freq);
    }
};

/// The largest error of the cos and sin of one kind of source, near a position.
double find_angle_error(std::int32_t kind, std::int32_t reference, std::int32_t position) {
    constexpr std::int64_t tokens = 64;
    auto desc = describe_angles(kind, position - (tokens - 1), position);
    desc.reference = reference;
    const angle_source source(frequencies::from_base(base, head_dim), desc);
    std::vector<float> rows(tokens * head_dim);
    const auto start = consecutive_positions(&desc.first, 1);
    const plan maker(plan_desc(head_dim, {describe_tensor(dtype::f32, head_dim, pairing::half)}));
    make_rows(maker, source, &start, 1, tokens, rows.data(), static_cast<std::int64_t>(rows.size()));
    double worst = 0.0;
    for (std::int64_t t = 0; t < tokens; t++) {
        for (std::int64_t k = 0; k < pairs; k++) {
            const Exact exact(desc.first + static_cast<std::int32_t>(t), k);
            const auto at = static_cast<std::size_t>(t * head_dim + k);
            worst = std::max({worst, static_cast<double>(std::fabs(rows[at] - exact.cos)),
                              static_cast<double>(std::fabs(rows[at + pairs] - exact.sin))});
        }
    }
    return worst;
}

void show_angles() {
    constexpr std::int32_t positions[] = {4095, 32767, 131071, 1048575, 2147483647};
    std::printf("\nLargest error of cos and sin, base 500000, rotary_dim 128, 64 positions up to the one named\n\n");
    std::printf("%12s %10s %10s %10s\n", "position", "table", "phase", "factored");
    for (const std::int32_t position : positions) {
        std::printf("%12d %10.1e %10.1e %10.1e\n", position,
                    find_angle_error(HALYARD_ANGLES_TABLE, HALYARD_REFERENCE_EXACT, position),
                    find_angle_error(HALYARD_ANGLES_PHASE, HALYARD_REFERENCE_EXACT, position),
                    find_angle_error(HALYARD_ANGLES_FACTORED, HALYARD_REFERENCE_EXACT, position));
    }
    std::printf("\nThe same of tables that reproduce an engine's\n\n");
    std::printf("%12s %10s %10s %10s %10s\n", "position", "hf_f32", "vllm_f16", "vllm_bf16", "ggml");
    for (const std::int32_t position : positions) {
        std::printf("%12d", position);
        for (std::int32_t reference = HALYARD_REFERENCE_HF_F32; reference <= HALYARD_REFERENCE_GGML; reference++) {
            std::printf(" %10.1e", find_angle_error(HALYARD_ANGLES_TABLE, reference, position));
        }
        std::printf("\n");
    }
}

/// The largest error of a rotation, in 2^-23 of the pair's length.
double rotate_and_compare(pairing how, std::int32_t last_position) {
    constexpr std::int64_t tokens = 64, heads = 8;
    std::vector<float> x(tokens * heads * head_dim), y(x.size());
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::generate(x.begin(), x.end(), [&] { return normal(random); });
    std::vector<std::int32_t> at(tokens);
    for (std::int64_t t = 0; t < tokens; t++) {
        at[static_cast<std::size_t>(t)] = last_position - static_cast<std::int32_t>(t) * 7;
    }

    const auto listed = positions(at.data(), {1, tokens});
    const auto angles = angle_source::table(frequencies::from_base(base, head_dim), 0, last_position, listed);
    const plan made(plan_desc(head_dim, {describe_tensor(dtype::f32, head_dim, how)}));
    run_options options;
    options.positions = listed;
    run(made, angles, input_tensor(x.data(), dtype::f32, {1, tokens, heads, head_dim}),
        tensor(y.data(), dtype::f32, {1, tokens, heads, head_dim}), options);

    double worst = 0.0;
    for (std::int64_t t = 0; t < tokens; t++) {
        for (std::int64_t k = 0; k < pairs; k++) {
            const Exact exact(at[static_cast<std::size_t>(t)], k);
            for (std::int64_t h = 0; h < heads; h++) {
                const std::int64_t head = (t * heads + h) * head_dim;
                const auto first = static_cast<std::size_t>(head + (how == pairing::half ? k : 2 * k));
                const auto second = first + (how == pairing::half ? pairs : 1);
                const long double x0 = x[first], x1 = x[second], length = std::hypot(x0, x1) * 0x1p-23L;
                const long double error0 = std::fabs(y[first] - (x0 * exact.cos - x1 * exact.sin));
                const long double error1 = std::fabs(y[second] - (x0 * exact.sin + x1 * exact.cos));
                worst = std::max(worst, static_cast<double>(std::max(error0, error1) / length));
            }
        }
    }
    return worst;
}

bool show_accuracy() {
    std::printf("\nLargest error of a rotation, in 2^-23 of a pair's length (promise: at most 2)\n");
    std::printf("f32, 64 tokens x 8 heads x 128\n\n%12s %12s %12s\n", "position", "half", "interleaved");
    bool kept = true;
    for (const std::int32_t position : {4095, 131071, 1048575, 2147483647}) {
        const double half = rotate_and_compare(pairing::half, position);
        const double interleaved = rotate_and_compare(pairing::interleaved, position);
        kept = kept && half <= 2.0 && interleaved <= 2.0;
        std::printf("%12d %12.2f %12.2f\n", position, half, interleaved);
    }
    return kept;
}

}  // namespace

int main() {
    try {
        show_angles();
        const bool kept = show_accuracy();
        if (!kept) {
            std::fprintf(stderr, "halyard_demo: an error is larger than promised\n");
        }
        return kept ? 0 : 1;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "halyard_demo: %s\n", error.what());
        return 1;
    }
}
