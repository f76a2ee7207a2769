#include "checks/gpu_angles.h"

#include "checks/sized.h"

namespace gpu_test {

namespace {

using oracle::Random;

/// Two tables for every position have 65,536 rows each: they are made for rows of so many floats at most.
constexpr std::int64_t most_of_whole_tables = 16;

enum class Kind { table, listed, factored, phase, given_f32, given_f16, given_bf16 };

halyard::frequencies frequencies_of(Random &random, std::int64_t rotary_dim) {
    auto scaling = sized<halyard_scaling>();
    scaling.base = 10000;
    scaling.rotary_dim = rotary_dim;
    scaling.attention_factor = random.one_in(2) ? 1 : 1.2707;
    return halyard::frequencies::from_scaling(scaling);
}

}  // namespace

RandomAngles::RandomAngles(const halyard_gpu_queue &queue, Random &random, std::int64_t rotary_dim, std::int64_t n_axes,
                           std::int64_t n_positions)
    : desc_(sized<halyard_angle_source_desc>()) {
    static constexpr const char *names[] = {"table",     "listed table", "factored",  "phase",
                                            "given f32", "given f16",    "given bf16"};
    const auto kind = static_cast<Kind>(random.in(0, 6));
    const bool is_given = kind >= Kind::given_f32;
    name_ = names[static_cast<int>(kind)];
    draw_range(random, n_positions);
    if (is_given) {
        desc_.last -= desc_.first;
        desc_.first = 0;
    }
    if ((kind == Kind::phase || kind == Kind::factored) && random.one_in(2)) {
        const bool is_whole = kind == Kind::phase || rotary_dim <= most_of_whole_tables;
        desc_.first = is_whole ? INT32_MIN + static_cast<std::int32_t>(random.in(0, 9)) : -100000;
        desc_.last =
            is_whole ? INT32_MAX - static_cast<std::int32_t>(random.in(0, random.one_in(2) ? 9 : INT32_MAX)) : 100000;
    }
    const std::int64_t n_pairs = rotary_dim / 2;
    std::vector<std::int32_t> axis_of_pair(static_cast<std::size_t>(n_pairs));
    if (n_axes == 3) {
        desc_.axis_map = static_cast<std::int32_t>(random.in(HALYARD_AXIS_MAP_SECTIONS, HALYARD_AXIS_MAP_LIST));
        desc_.n_axes = 3;
        for (std::int32_t &axis : axis_of_pair) {
            axis = static_cast<std::int32_t>(random.in(0, 2));
        }
        desc_.axis_of_pair = axis_of_pair.data();
        desc_.axis_counts[1] = desc_.axis_counts[2] = n_pairs / 3;
        desc_.axis_counts[0] = n_pairs - 2 * (n_pairs / 3);
    }
    if (is_given) {
        desc_.kind = HALYARD_ANGLES_GIVEN;
        desc_.rows_dtype = kind == Kind::given_f32 ? HALYARD_F32 : kind == Kind::given_f16 ? HALYARD_F16 : HALYARD_BF16;
        give_rows(queue, random, rotary_dim);
        return;
    }
    desc_.kind = kind == Kind::phase      ? HALYARD_ANGLES_PHASE
                 : kind == Kind::factored ? HALYARD_ANGLES_FACTORED
                                          : HALYARD_ANGLES_TABLE;
    const std::int32_t last = desc_.last;
    halyard_positions listed = {};
    if (kind == Kind::listed) {  // beside a position far off, so that there are gaps; or of a free range, maybe none
        for (std::int64_t at = desc_.first; at <= last; at++) {
            if (n_positions != 0 || random.one_in(3)) {
                list_.push_back(static_cast<std::int32_t>(at));
            }
        }
        if (n_positions != 0 && last <= INT32_MAX - 100) {
            list_.push_back(last + 100);
            desc_.last = last + 100;
        }
        listed = halyard::positions(list_.data(), {1, static_cast<std::int64_t>(list_.size())});
        desc_.listed = &listed;
    }
    host_ = std::make_unique<halyard::angle_source>(frequencies_of(random, rotary_dim), desc_);
    desc_.last = last;
    device_ = std::make_unique<halyard::gpu_angles>(queue, *host_);
}

/// Positions about 0, or at either end of int32.
void RandomAngles::draw_range(Random &random, std::int64_t n_positions) {
    const std::int64_t n = n_positions != 0 ? n_positions : random.in(1, 301);
    const std::int64_t first = !random.one_in(3)  ? random.in(-100, 100)
                               : random.one_in(2) ? INT32_MIN + random.in(0, 9)
                                                  : INT32_MAX - n + 1 - random.in(0, random.one_in(2) ? 0 : 9);
    desc_.first = static_cast<std::int32_t>(first);
    desc_.last = static_cast<std::int32_t>(first + n - 1);
}

void RandomAngles::give_rows(const halyard_gpu_queue &queue, Random &random, std::int64_t rotary_dim) {
    const std::int64_t n_pairs = rotary_dim / 2, bytes = oracle::element_bytes(desc_.rows_dtype);
    const bool is_fused = random.one_in(2);  // cos and sin of a position beside each other
    desc_.rotary_dim = rotary_dim;
    desc_.n_rows = desc_.last + 1;
    desc_.stride_row = (is_fused ? rotary_dim : n_pairs) + random.in(0, 3);
    const std::int64_t begin = random.in(0, 3);
    const std::int64_t sin_at = begin + (is_fused ? n_pairs : desc_.n_rows * desc_.stride_row + random.in(0, 3));
    rows_ = oracle::random_elements(random, desc_.rows_dtype, oracle::Values::ordinary,
                                    sin_at + desc_.n_rows * desc_.stride_row);
    memory_ = std::make_unique<Memory>(queue, rows_);
    const auto give = [&](const void *cos, const void *sin) {
        desc_.cos_rows = cos;
        desc_.sin_rows = sin;
        return std::make_unique<halyard::angle_source>(halyard::frequencies(), desc_);
    };
    const auto source = give(memory_->data(begin * bytes), memory_->data(sin_at * bytes));
    device_ = std::make_unique<halyard::gpu_angles>(queue, *source, memory_->offset(begin), memory_->offset(sin_at));
    host_ = give(rows_.data() + begin * bytes, rows_.data() + sin_at * bytes);
}

}  // namespace gpu_test
