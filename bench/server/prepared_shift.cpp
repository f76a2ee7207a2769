#include "server/prepared_shift.h"

#include "checks/oracle.h"
#include "checks/road_oracle.h"
#include "rivals/road_loops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>

namespace halyard::bench {

namespace {

using nlohmann::json;

constexpr std::int64_t page_size = 16, moved_by = -2048;

/// A cache, its slots, and what all ways share.
class PlacedShift {
public:
    PlacedShift(const ShiftWork &work, const Arena &arena)
        : work_(work), arena_(arena), first_(static_cast<std::size_t>(work.layer_bytes())),
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

    const ShiftWork &work() const { return work_; }
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
    const Arena &arena_;
    std::vector<char> first_;  // what each layer holds at first
    std::vector<float> layer_;
};

/// A bound run for each layer, of one plan.
std::function<void()> make_own(const PlacedShift &placed, const std::string &target, std::string *name_of_target) {
    const ShiftWork &work = placed.work();
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
    described.target = target.empty() ? nullptr : target.c_str();
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
    return [state, &placed] {
        const ShiftWork &work = placed.work();
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

class PreparedShift : public Prepared {
public:
    PreparedShift(const json &request, const Site &site) : placed_(read_shift(request), site.arena) {
        std::string target;
        add("fused", "", make_own(placed_, request.value("target", ""), &target));
#if defined(HALYARD_LOOPS_GCC)
        add_loops(halyard_road_loops_gcc);
#endif
#if defined(HALYARD_LOOPS_CLANG)
        add_loops(halyard_road_loops_clang);
#endif
        placed_.reset();
        about = {{"target", target}, {"bytes", 2 * placed_.work().n_bytes()}, {"peers", nullptr}};
    }

    void reset() override { placed_.reset(); }
    json check(std::size_t) const override { throw std::runtime_error("no peer moves keys"); }

private:
    PlacedShift placed_;

    void add(const char *kind, const std::string &name, const std::function<void()> &call) {
        placed_.reset();
        call();
        const long n_wrong = placed_.count_wrong(subjects.empty());
        subjects.push_back(make_subject(name, kind, call));
        subjects.back().wrong = n_wrong != 0;
    }

    void add_loops(const halyard_road_loops &loops) {
        for (const int by_layer : {0, 1}) {
            halyard_shift_loop *const loop = loops.shift[placed_.work().type == dtype::e4m3 ? 1 : 0][by_layer];
            add("loop", std::string(loops.compiler) + (by_layer != 0 ? " by f32" : ""), [this, loop] {
                const ShiftWork &work = placed_.work();
                for (std::int64_t layer = 0; layer < work.n_layers; layer++) {
                    loop(placed_.keys(layer), placed_.slots.data(), work.n_tokens, work.n_heads, work.head_dim,
                         placed_.cos.data(), placed_.sin.data(), placed_.layer());
                }
            });
        }
    }
};

}  // namespace

ShiftWork read_shift(const json &described) {
    return {described.at("layers"), described.at("heads"), described.at("head_dim"), described.at("tokens"),
            read_dtype(described.at("dtype"))};
}

std::unique_ptr<Prepared> prepare_shift(const json &request, const Site &site) {
    return std::make_unique<PreparedShift>(request, site);
}

}  // namespace halyard::bench
