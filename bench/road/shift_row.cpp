#include "road/shift_row.h"

#include "checks/oracle.h"
#include "checks/road_oracle.h"
#include "rivals/road_loops.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>

namespace halyard::bench {

namespace {

constexpr std::int64_t page_size = 16, moved_by = -2048;

/// A cache, its slots, and what all ways share.
class PlacedShift {
public:
    explicit PlacedShift(const ShiftWork &work)
        : work_(work), arena_(static_cast<std::size_t>(work.n_layers * work.layer_bytes())),
          first_(static_cast<std::size_t>(work.layer_bytes())),
          layer_(static_cast<std::size_t>(work.n_heads * work.head_dim * work.n_tokens)) {
        std::minstd_rand random(5);
        std::vector<std::int64_t> pages(static_cast<std::size_t>(work.n_tokens / page_size));
        std::iota(pages.begin(), pages.end(), 0);
        std::shuffle(pages.begin(), pages.end(), random);
        for (std::int64_t i = 0; i < work.n_tokens; i++) {
            slots.push_back(pages[static_cast<std::size_t>(i / page_size)] * page_size + i % page_size);
        }
        for (const long double f : oracle::inv_freq_of(rope_base, work.head_dim)) {
            cos.push_back(static_cast<float>(std::cos(f * moved_by)));
            sin.push_back(static_cast<float>(std::sin(f * moved_by)));
        }
        std::uniform_real_distribution<float> drawn(-2.0f, 2.0f);
        for (std::size_t i = 0; i < layer_.size(); i++) {
            if (work.type == dtype::e4m3) {
                first_[i] = static_cast<char>((random() >> 8) % 255 < 127 ? random() % 0x70 : 0x80 + random() % 0x70);
            } else {
                oracle::write_word(HALYARD_BF16, first_.data() + 2 * i, oracle::narrow(HALYARD_BF16, drawn(random)));
            }
        }
    }

    std::vector<std::int64_t> slots;
    std::vector<float> cos, sin;

    char *keys(std::int64_t layer) const { return arena_.data() + layer * work_.layer_bytes(); }
    float *layer() { return layer_.data(); }

    void reset() const {
        for (std::int64_t i = 0; i < work_.n_layers; i++) {
            std::memcpy(keys(i), first_.data(), first_.size());
        }
    }

    /// How many elements of the last layer are not what the first move makes of them. A loop's products are rounded
    /// otherwise, within twice the bound.
    long count_wrong(bool is_own) const {
        const auto type = static_cast<std::int32_t>(work_.type);
        const std::int64_t bytes = oracle::stored_bytes(type), n_pairs = work_.head_dim / 2;
        const auto inv_freq = oracle::inv_freq_of(rope_base, work_.head_dim);
        const auto word_at = [&](const char *data, std::int64_t i) {
            std::uint32_t word = 0;
            std::memcpy(&word, data + i * bytes, static_cast<std::size_t>(bytes));
            return word;
        };
        const char *const moved = keys(work_.n_layers - 1);
        long n_wrong = 0;
        for (std::int64_t row = 0; row < work_.n_tokens * work_.n_heads; row += 97) {
            for (std::int64_t k = 0; k < n_pairs; k++) {
                const std::int64_t i = row * work_.head_dim + k;
                const long double theta = inv_freq[static_cast<std::size_t>(k)] * moved_by;
                const long double x0 = oracle::decode(type, word_at(first_.data(), i));
                const long double x1 = oracle::decode(type, word_at(first_.data(), i + n_pairs));
                const long double bound = (is_own ? 2 : 4) * 0x1p-23L * std::hypot(x0, x1);
                const long double y0 = x0 * std::cos(theta) - x1 * std::sin(theta);
                const long double y1 = x1 * std::cos(theta) + x0 * std::sin(theta);
                n_wrong += oracle::may_be_stored(type, word_at(moved, i), y0, bound, std::nullopt) ? 0 : 1;
                n_wrong += oracle::may_be_stored(type, word_at(moved, i + n_pairs), y1, bound, std::nullopt) ? 0 : 1;
            }
        }
        return n_wrong;
    }

private:
    ShiftWork work_;
    Arena arena_;
    std::vector<char> first_;  // what each layer holds at first
    std::vector<float> layer_;
};

/// A bound run for each layer, of one plan.
std::function<void()> make_own(const ShiftWork &work, const PlacedShift &placed, const char *target,
                               std::string *name_of_target) {
    struct State {
        halyard_cache_desc cache;
        halyard_scale_desc scale = describe_static_scales();
        angle_source angles;
        plan made;
        std::vector<std::int64_t> from = {-moved_by}, to = {0};
        std::vector<unsigned char> scratch;
        float scale_value = 0.015625f;
        bound_run bound;
    };
    auto state = std::make_shared<State>();
    state->cache = describe_nhd_cache(work.n_tokens / page_size, page_size, work.n_heads, work.head_dim);
    auto desc = describe_tensor(work.type, work.head_dim, pairing::half);
    desc.cache = &state->cache;
    desc.scale = work.type == dtype::e4m3 ? &state->scale : nullptr;
    plan_desc described(work.head_dim, {desc});
    described.rerotates = true;
    described.target = target;
    state->made = plan(described);
    *name_of_target = state->made.target();
    state->angles = angle_source::phase(frequencies::from_base(rope_base, work.head_dim));
    state->scratch.resize(static_cast<std::size_t>(work.n_tokens / 8 + 1));
    const auto to = consecutive_positions(state->to.data(), 1), from = consecutive_positions(state->from.data(), 1);
    const auto where = slots(placed.slots.data(), {1, work.n_tokens}, state->scratch.data(),
                             static_cast<std::int64_t>(state->scratch.size()));
    auto brought = stages(placed.keys(0));
    brought.scales = desc.scale != nullptr ? &state->scale_value : nullptr;
    brought.n_scales = desc.scale != nullptr ? 1 : 0;
    const auto x = tensor(nullptr, work.type, {1, work.n_tokens, work.n_heads, work.head_dim});
    run_options options;
    options.at(to).into(where, &brought).moved_from(from);
    state->bound = bound_run(state->made, state->angles, x, x, options);
    return [state, &work, &placed] {
        const float *const scale = work.type == dtype::e4m3 ? &state->scale_value : nullptr;
        for (std::int64_t layer = 0; layer < work.n_layers; layer++) {
            void *const keys = placed.keys(layer);
            bound_stages pointers;
            pointers.slots = placed.slots.data();
            pointers.slots_scratch = state->scratch.data();
            pointers.caches = &keys;
            pointers.scales = &scale;
            pointers.from_positions = state->from.data();
            state->bound({nullptr}, {nullptr}, state->to.data(), pointers);
        }
    };
}

}  // namespace

std::string ShiftWork::name() const {
    char text[80];
    std::snprintf(text, sizeof(text), "shift/%lldx%lldx%lldx%lld/%s", static_cast<long long>(n_layers),
                  static_cast<long long>(n_heads), static_cast<long long>(head_dim), static_cast<long long>(n_tokens),
                  type == dtype::e4m3 ? "e4m3" : "bf16");
    return text;
}

bool ShiftRow::loses() const {
    const Timing &own = ways.front().timing;
    return std::any_of(ways.begin() + 1, ways.end(), [&](const ShiftWay &way) {
        return way.n_wrong == 0 && way.timing.median + way.timing.spread < own.median - own.spread;
    });
}

ShiftRow measure_shift(const ShiftWork &work, const Setting &setting) {
    PlacedShift placed(work);
    ShiftRow row = {work, "", {}};
    std::vector<Subject> subjects;
    const auto add = [&](const std::string &name, const std::function<void()> &call) {
        placed.reset();
        call();
        row.ways.push_back({name, placed.count_wrong(subjects.empty()), {}});
        subjects.push_back(make_subject(name, call));
    };
    add("", make_own(work, placed, setting.target.empty() ? nullptr : setting.target.c_str(), &row.target));
    const auto add_loops = [&](const halyard_road_loops &loops) {
        for (const int by_layer : {0, 1}) {
            halyard_shift_loop *const loop = loops.shift[work.type == dtype::e4m3 ? 1 : 0][by_layer];
            add(std::string(loops.compiler) + (by_layer != 0 ? " by f32" : ""), [&work, &placed, loop] {
                for (std::int64_t layer = 0; layer < work.n_layers; layer++) {
                    loop(placed.keys(layer), placed.slots.data(), work.n_tokens, work.n_heads, work.head_dim,
                         placed.cos.data(), placed.sin.data(), placed.layer());
                }
            });
        }
    };
#if defined(HALYARD_LOOPS_GCC)
    add_loops(halyard_road_loops_gcc);
#endif
#if defined(HALYARD_LOOPS_CLANG)
    add_loops(halyard_road_loops_clang);
#endif
    placed.reset();
    measure(subjects, setting.effort);
    for (std::size_t i = 0; i < subjects.size(); i++) {
        row.ways[i].timing = summarise(subjects[i].seconds);
    }
    return row;
}

std::vector<ShiftRow> measure_shifts(const Selection &selection, const Setting &setting) {
    std::vector<ShiftRow> rows;
    for (const dtype type : {dtype::bf16, dtype::e4m3}) {
        const ShiftWork work = {selection.quick ? 2 : 32, 8, 128, 8192, type};
        if (fnmatch(selection.filter.c_str(), work.name().c_str(), 0) == 0) {
            rows.push_back(measure_shift(work, setting));
        }
    }
    return rows;
}

std::string format_shifts(const std::vector<ShiftRow> &rows) {
    std::string text = rows.empty() ? "" : "\ncached keys moved                   ms              GB/s";
    for (std::size_t i = 1; !rows.empty() && i < rows[0].ways.size(); i++) {
        text += "  x " + rows[0].ways[i].name;
    }
    for (const ShiftRow &row : rows) {
        const Timing &own = row.ways.front().timing;
        char cell[120];
        const double n_bytes = 2.0 * static_cast<double>(row.work.n_layers * row.work.layer_bytes());
        std::snprintf(cell, sizeof(cell), "\n%-28s%10.2f +- %6.2f  %8.1f", row.work.name().c_str(), own.median * 1e3,
                      own.spread * 1e3, n_bytes / own.median * 1e-9);
        text += cell;
        for (std::size_t i = 1; i < row.ways.size(); i++) {
            std::snprintf(cell, sizeof(cell), "  %*.2f", static_cast<int>(row.ways[i].name.size()) + 2,
                          row.ways[i].timing.median / own.median);
            text += cell;
        }
        text += row.loses() ? "  loses" : "";
        for (const ShiftWay &way : row.ways) {
            text += way.n_wrong == 0 ? "" : "  (" + (way.name.empty() ? "this" : way.name) + " is wrong)";
        }
    }
    return text + (rows.empty() ? "" : "\n");
}

nlohmann::json to_json(const ShiftRow &row) {
    auto ways = nlohmann::json::array();
    for (const ShiftWay &way : row.ways) {
        ways.push_back({{"name", way.name},
                        {"median_seconds", way.timing.median},
                        {"spread_seconds", way.timing.spread},
                        {"fastest_seconds", way.timing.fastest},
                        {"wrong", way.n_wrong != 0}});
    }
    return {{"name", row.work.name()}, {"target", row.target}, {"loses", row.loses()}, {"ways", std::move(ways)}};
}

}  // namespace halyard::bench
