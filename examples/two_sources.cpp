// Rotates sequences of one batch by different frequencies, such as LongRoPE's short and long ones. One GIVEN source has
// the rows of cos and sin of two angle sources, one after the other: sequences of the second source add n_positions to
// their positions. Then a sequence changes from the first source to the second: a call re-rotates its cached keys.
#include <halyard/halyard_kv.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

constexpr std::int64_t n_batch = 2, n_tokens = 5, n_heads = 3, head_dim = 64, n_positions = 4096;

static halyard_tensor view(std::vector<float> &heads, std::int64_t first, std::int64_t sequences) {
    float *const data = heads.data() + first * n_tokens * n_heads * head_dim;
    return halyard::tensor(data, halyard::dtype::f32, {sequences, n_tokens, n_heads, head_dim});
}

int main() {
    const auto first = halyard::angle_source::phase(halyard::frequencies::from_base(10000.0, head_dim));
    const auto second = halyard::angle_source::phase(halyard::frequencies::from_base(500000.0, head_dim));
    halyard::plan_desc desc(head_dim,
                            {halyard::describe_tensor(halyard::dtype::f32, head_dim, halyard::pairing::half)});
    const halyard::plan rotate(desc);
    desc.rerotates = true;
    const halyard::plan rerotate(desc);

    // Rows for positions 0, 1, 2, … from the first source, then from the second.
    std::vector<float> rows(2 * n_positions * head_dim);
    halyard::make_rows(rotate, first, nullptr, {1, n_positions}, rows.data(), n_positions * head_dim);
    halyard::make_rows(rotate, second, nullptr, {1, n_positions}, rows.data() + n_positions * head_dim,
                       n_positions * head_dim);
    const auto both = halyard::angle_source::given(rows.data(), rows.data() + head_dim / 2, 2 * n_positions, head_dim,
                                                   head_dim);

    std::vector<float> keys(n_batch * n_tokens * n_heads * head_dim);
    for (std::size_t i = 0; i < keys.size(); ++i) {
        keys[i] = static_cast<float>(std::sin(0.37 * static_cast<double>(i)));
    }
    auto separate = keys, fresh = keys;

    const std::int32_t starts[] = {17, 4000}, shifted[] = {17, 4000 + n_positions};
    const auto shifted_positions = halyard::consecutive_positions(shifted, n_batch);
    const auto all = view(keys, 0, n_batch);
    halyard::run(rotate, both, all, all, halyard::run_options().at(shifted_positions));
    for (const std::int64_t sequence : {0, 1}) {
        const auto one = view(separate, sequence, 1);
        const auto positions = halyard::consecutive_positions(&starts[sequence], 1);
        halyard::run(rotate, sequence == 0 ? first : second, one, one, halyard::run_options().at(positions));
    }
    std::printf("the bits of a run for each sequence: %s\n", keys == separate ? "yes" : "no");

    // The first sequence changes to the second source. Its keys must become those of a fresh rotation by that source.
    const auto positions = halyard::consecutive_positions(&starts[0], 1);
    const auto cached = view(keys, 0, 1), uncached = view(fresh, 0, 1);
    const auto from = halyard::rerotate_from(positions, first.get());
    halyard::run(rerotate, second, cached, cached, halyard::run_options().at(positions).with(from));
    halyard::run(rotate, second, uncached, uncached, halyard::run_options().at(positions));
    double worst = 0.0;
    for (std::int64_t i = 0; i < n_tokens * n_heads * head_dim; ++i) {
        worst = std::max(worst, std::fabs(static_cast<double>(keys[i]) - static_cast<double>(fresh[i])));
    }
    std::printf("moved keys are those of the second source: %s\n", worst < 3 * 0x1p-22 ? "yes" : "no");
    return 0;
}
