// halyard_demo: rotates real arrays with the best kernels of this machine, and shows how far the result is from exact
// arithmetic and how fast it came beside a copy.
#include "machine.h"
#include "report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

namespace {

using namespace halyard;
using namespace halyard::bench;

/// What the two ways to an angle cost in accuracy, in units of 2^-23 * hypot(x0, x1).
struct Errors {
    double halyard = 0.0;
    double float_angles = 0.0;  // float32 frequency times float32 position, as most libraries do it
};

Errors rotate_and_compare(pairing how, std::int32_t last_position) {
    constexpr std::int64_t tokens = 64, heads = 8, head_dim = 128, pairs = head_dim / 2;
    constexpr double base = 500000.0;
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
    const plan made(describe_plan(head_dim, {describe_tensor(dtype::f32, head_dim, how)}));
    run_options options;
    options.positions = &listed;
    run(made, angles, input_tensor(x.data(), dtype::f32, {1, tokens, heads, head_dim}),
        tensor(y.data(), dtype::f32, {1, tokens, heads, head_dim}), options);

    Errors worst;
    for (std::int64_t t = 0; t < tokens; t++) {
        for (std::int64_t k = 0; k < pairs; k++) {
            const long double exponent = -static_cast<long double>(k) / pairs;
            const long double theta = at[static_cast<std::size_t>(t)] * std::pow(static_cast<long double>(base), exponent);
            const float float_theta = static_cast<float>(at[static_cast<std::size_t>(t)]) *
                                      static_cast<float>(std::pow(base, static_cast<double>(exponent)));
            for (std::int64_t h = 0; h < heads; h++) {
                const std::int64_t head = (t * heads + h) * head_dim;
                const auto first = static_cast<std::size_t>(head + (how == pairing::half ? k : 2 * k));
                const auto second = first + (how == pairing::half ? pairs : 1);
                const long double x0 = x[first], x1 = x[second], length = std::hypot(x0, x1) * 0x1p-23L;
                const auto error_of = [&](long double y0, long double y1) {
                    const long double exact0 = x0 * std::cos(theta) - x1 * std::sin(theta);
                    const long double exact1 = x0 * std::sin(theta) + x1 * std::cos(theta);
                    return static_cast<double>(std::max(std::fabs(y0 - exact0), std::fabs(y1 - exact1)) / length);
                };
                const float c = std::cos(float_theta), s = std::sin(float_theta);
                worst.halyard = std::max(worst.halyard, error_of(y[first], y[second]));
                worst.float_angles = std::max(worst.float_angles,
                                              error_of(x[first] * c - x[second] * s, x[first] * s + x[second] * c));
            }
        }
    }
    return worst;
}

bool show_accuracy() {
    std::printf("\nLargest error against exact arithmetic, in 2^-23 of a pair's length (promise: at most 2)\n");
    std::printf("base 500000, head_dim 128, f32, 64 tokens x 8 heads\n\n");
    std::printf("%12s %12s %12s %28s\n", "position", "half", "interleaved", "with float32 angles (half)");
    bool kept = true;
    for (const std::int32_t position : {4095, 131071, 1048575, 2147483647}) {
        const Errors half = rotate_and_compare(pairing::half, position);
        const Errors interleaved = rotate_and_compare(pairing::interleaved, position);
        kept = kept && half.halyard <= 2.0 && interleaved.halyard <= 2.0;
        std::printf("%12d %12.2f %12.2f %28.0f\n", position, half.halyard, interleaved.halyard, half.float_angles);
    }
    return kept;
}

void show_speed() {
    std::vector<std::unique_ptr<Workload>> workloads;
    for (const Shape &shape : {Shape{1, 1, 128}, Shape{1, 32, 128}, Shape{64, 40, 128}}) {
        for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
            for (const pairing how : {pairing::half, pairing::interleaved}) {
                workloads.push_back(std::make_unique<Workload>(type, how, how, true, shape, nullptr));
            }
        }
    }
    std::printf("\nSpeed, one thread, in place (tokens x heads x head_dim; ceiling: the time of the fastest copy or\n"
                "multiply of the same bytes in this run, divided by ours)\n%s\n\n",
                describe_machine().text().c_str());
    print_rows(time_workloads(workloads, quick, nullptr));
}

}  // namespace

int main() {
    try {
        const bool kept = show_accuracy();
        show_speed();
        if (!kept) {
            std::fprintf(stderr, "halyard_demo: an error is larger than promised\n");
        }
        return kept ? 0 : 1;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "halyard_demo: %s\n", error.what());
        return 1;
    }
}
