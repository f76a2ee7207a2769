// What is right of all that a scene's run has left.
#include "checks/fields.h"
#include "checks/model.h"
#include "checks/scene/scene.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

namespace scenes {

namespace {

std::string say(int i, const Head &at, std::int64_t d, const std::string &what) {
    std::ostringstream text;
    text << "tensor " << i << " [" << at.batch << ", " << at.token << ", " << at.head << ", " << d << "]: " << what;
    return text.str();
}

/// Whether long double has fewer digits than its type says: valgrind computes it as double, which is no oracle.
bool is_coarse() {
    const volatile long double one = 1, least = std::numeric_limits<long double>::epsilon();
    return one + least == one;
}

}  // namespace

std::string Scene::fault(const Images &after) const {
    const std::vector<float> rows = make_rows();
    for (int i = 0; i < call.n(); i++) {
        if (call.is_plain(i)) {
            if (std::string what = check_bits(i, rows, after); !what.empty()) {
                return what + text();
            }
        }
        if (call.groups_of(i, false) != nullptr) {
            if (std::string what = check_records(i, after); !what.empty()) {
                return what + text();
            }
            continue;
        }
        for (std::int64_t token = 0; are_numbers_ && token < call.n_batch() * call.n_tokens(); token++) {
            if (std::string what = check_token(i, token / call.n_tokens(), token % call.n_tokens(), after);
                !what.empty()) {
                return what + text();
            }
        }
    }
    const std::string what = check_rest(after);
    return what.empty() ? "" : what + text();
}

/// Whether nothing was written but outputs and scratch.
std::string Scene::check_rest(const Images &after) const {
    Images expected = before;
    const auto take = [&](const char *at, std::int64_t bytes) {
        std::copy_n(memory.in(after, at), bytes, memory.in(expected, at));
    };
    for_each_output(call, [&](const char *at, std::int32_t dtype) { take(at, bytes_of(dtype)); });
    if (call.scratch() != nullptr) {
        take(static_cast<const char *>(call.scratch()), call.scratch_bytes());
    }
    return expected == after ? "" : "what is no output was written";
}

std::string Scene::difference(const Images &expected, const Images &result) const {
    std::string what;
    Images accepted = result;
    for_each_output(call, [&](const char *at, std::int32_t dtype) {
        char *const is = memory.in(accepted, at);
        const std::uint32_t word = oracle::read_word(dtype, is),
                            should_be = oracle::read_word(dtype, memory.in(expected, at));
        if (word != should_be && are_equal(dtype, word, should_be)) {
            std::copy_n(memory.in(expected, at), bytes_of(dtype), is);
        } else if (word != should_be && what.empty()) {
            std::ostringstream text;
            text << "an output is " << std::hex << word << ", not " << should_be;
            what = text.str();
        }
    });
    if (call.scratch() != nullptr) {
        std::copy_n(memory.in(expected, call.scratch()), call.scratch_bytes(), memory.in(accepted, call.scratch()));
    }
    what = what.empty() && accepted != expected ? "what is no output differs" : what;
    return what.empty() ? "" : what + text();
}

// ---- Bits ----------------------------------------------------------------------------------------------------------

/// cos and sin of all tokens.
std::vector<float> Scene::make_rows() const {
    const std::int64_t rotary_dim = call.plan.rotary_dim, n_pairs = rotary_dim / 2;
    bool is_needed = false;
    for (int i = 0; i < call.n(); i++) {
        is_needed = is_needed || (call.is_plain(i) && call.kv[i].no_rotation == 0 && call.x[i].shape[2] > 0);
    }
    if (!is_needed) {
        return {};
    }
    const std::int64_t n_rows = call.n_batch() * call.n_tokens();
    std::vector<float> rows(static_cast<std::size_t>(n_rows * rotary_dim));
    if (angles.kind == Angles::by_token) {
        for (std::int64_t i = 0; i < n_rows * n_pairs; i++) {
            const std::int64_t row = i / n_pairs;
            const auto value = angles.at(call, row / call.n_tokens(), row % call.n_tokens(), i % n_pairs);
            const auto at = static_cast<std::size_t>(row * rotary_dim + i % n_pairs);
            rows[at] = static_cast<float>(value.cos);
            rows[at + static_cast<std::size_t>(n_pairs)] =
                static_cast<float>(call.plan.direction == HALYARD_INVERSE ? -value.sin : value.sin);
        }
    } else {
        auto args = sized<halyard_rows_args>();
        args.bad_position = accepting_policy();
        args.angles = call.args.angles;
        args.positions = call.args.positions;
        args.n_batch = call.n_batch();
        args.n_tokens = call.n_tokens();
        args.rows = rows.data();
        args.n_floats = static_cast<std::int64_t>(rows.size());
        if (halyard_make_rows(model::make_plan(call.plan).get(), &args, nullptr) != HALYARD_OK) {
            throw std::runtime_error("what a run takes, halyard_make_rows does not" + text());
        }
    }
    return rows;
}

/// Of a tensor that is rotated and stored, and nothing else; of f32, multiplied by a scale by position, then another.
std::string Scene::check_bits(int i, const std::vector<float> &rows, const Images &after) const {
    const halyard_tensor_desc &desc = call.tensors[i];
    const halyard_kv_desc &kv = call.kv[i];
    const std::int64_t n_pairs = kv.no_rotation != 0 ? 0 : call.plan.rotary_dim / 2, window = desc.rotary_offset;
    std::string what;
    for_each_head(call, i, [&](const Head &at) {
        if (!what.empty() || (kv.cache != nullptr && !is_kept(at.batch, at.token))) {
            return;
        }
        const auto read = [&](std::int64_t d) {
            return oracle::read_word(desc.dtype, memory.in(before, place_of_input(call, i, at, d)));
        };
        float by_position = 1;
        if (kv.position_scales != 0) {
            std::memcpy(&by_position, place_of_position_scale(call, i, at), sizeof(by_position));
        }
        const auto expect = [&](std::int64_t d, std::uint32_t should_be) {
            if (kv.position_scales != 0 || kv.scale != nullptr) {
                const float value = oracle::widen(desc.dtype, should_be) * by_position;
                should_be = oracle::narrow(desc.dtype, value * (1.0f / scale_of(call, i, at).value_or(1.0f)));
            }
            const std::uint32_t word = oracle::read_word(desc.dtype, memory.in(after, place_of_output(call, i, at, d)));
            if (!are_equal(desc.dtype, word, should_be)) {
                std::ostringstream text;
                text << "is " << std::hex << word << ", not " << should_be;
                what = say(i, at, d, text.str());
            }
        };
        for (std::int64_t d = 0; d < desc.head_dim; d++) {
            if (d < window || d >= window + 2 * n_pairs) {
                expect(d, read(d));
            }
        }
        const float *const row = rows.data() + (at.batch * call.n_tokens() + at.token) * 2 * n_pairs;
        for (std::int64_t k = 0; k < n_pairs; k++) {
            const auto index = [&](std::int32_t pairing, std::int64_t member) {
                return window + (pairing == HALYARD_PAIRING_HALF ? k + member * n_pairs : 2 * k + member);
            };
            const float sin = call.plan.direction == HALYARD_INVERSE ? -row[n_pairs + k] : row[n_pairs + k];
            const auto turned = oracle::rotate({oracle::widen(desc.dtype, read(index(desc.pairing, 0))),
                                                oracle::widen(desc.dtype, read(index(desc.pairing, 1)))},
                                               row[k], sin);
            expect(index(call.out_pairing(i), 0), oracle::narrow(desc.dtype, turned.x0));
            expect(index(call.out_pairing(i), 1), oracle::narrow(desc.dtype, turned.x1));
        }
    });
    return what;
}

// ---- Bounds --------------------------------------------------------------------------------------------------------

oracle::Road Scene::road_of(int i) const {
    const halyard_tensor_desc &desc = call.tensors[i];
    const halyard_kv_desc &kv = call.kv[i];
    oracle::Road road;
    road.dtype = call.dtype_of_stages(i);
    road.n_heads = call.x[i].shape[2];
    road.head_dim = desc.head_dim;
    road.rotary_dim = kv.no_rotation != 0 ? 0 : call.plan.rotary_dim;
    road.rotary_offset = desc.rotary_offset;
    road.half_in = desc.pairing == HALYARD_PAIRING_HALF;
    road.half_out = call.out_pairing(i) == HALYARD_PAIRING_HALF;
    road.hadamard = kv.hadamard;
    road.undoes = call.plan.rerotates != 0;
    if (kv.norm == nullptr) {
        return road;
    }
    const halyard_norm_desc &described = *kv.norm;
    oracle::RoadNorm norm;
    norm.row = described.width == HALYARD_NORM_ROW;
    norm.after = described.order == HALYARD_NORM_AFTER;
    norm.rounds_before = (described.rounding & HALYARD_NORM_ROUND_BEFORE_WEIGHT) != 0 && road.dtype != HALYARD_F32;
    norm.rounds_after = (described.rounding & HALYARD_NORM_ROUND_AFTER_WEIGHT) != 0 && road.dtype != HALYARD_F32;
    norm.eps = described.no_eps != 0 ? 0 : static_cast<float>(described.eps == 0 ? 1e-6 : described.eps);
    norm.offset = described.window_offset;
    norm.size = described.window_size != 0 ? described.window_size : desc.head_dim - norm.offset;
    norm.layer = described.kind == HALYARD_NORM_LAYER;
    norm.per_head = described.weight_per_head != 0;
    const auto read = [&](const void *array, std::int64_t k) {
        const char *const at = static_cast<const char *>(array) + k * bytes_of(described.weight_dtype);
        return oracle::widen(described.weight_dtype, oracle::read_word(described.weight_dtype, at));
    };
    for (std::int64_t k = 0; described.weight_dtype != 0 && k < call.stages[i].n_weights; k++) {
        const float w = read(call.stages[i].weight, k);
        norm.weight.push_back(described.unit_offset != 0 ? 1.0f + w : w);
        if (described.has_bias != 0) {
            norm.bias.push_back(read(call.stages[i].bias, k));
        }
    }
    road.norm = norm;
    return road;
}

std::string Scene::check_token(int i, std::int64_t batch, std::int64_t token, const Images &after) const {
    const halyard_kv_desc &kv = call.kv[i];
    if ((kv.cache != nullptr && !is_kept(batch, token)) || call.x[i].shape[2] == 0 || is_coarse()) {
        return "";
    }
    oracle::Road road = road_of(i);
    for (std::int64_t head = 0; kv.position_scales != 0 && head < road.n_heads; head++) {
        std::memcpy(&road.position_scales.emplace_back(), place_of_position_scale(call, i, {batch, token, head}), 4);
    }
    std::vector<long double> cos, sin, x;
    for (std::int64_t pair = 0; pair < road.rotary_dim / 2; pair++) {
        const Angles::CosSin turn = angles.at(call, batch, token, pair);
        cos.push_back(turn.cos);
        sin.push_back(turn.sin);
    }
    for (std::int64_t head = 0; head < call.x[i].shape[2]; head++) {
        const std::vector<long double> values = read_head(i, {batch, token, head});
        x.insert(x.end(), values.begin(), values.end());
    }
    const oracle::RoadValues values = oracle::road_of_values(road, x, cos, sin);
    for (std::int64_t head = 0; head < call.x[i].shape[2]; head++) {
        if (std::string what = check_head(i, {batch, token, head}, values, after); !what.empty()) {
            return what;
        }
    }
    return "";
}

/// What a head of the input held before the run.
std::vector<long double> Scene::read_head(int i, const Head &at) const {
    const halyard_tensor_desc &desc = call.tensors[i];
    const halyard_kv_desc &kv = call.kv[i];
    const auto place = [&](std::int64_t d) { return memory.in(before, place_of_input(call, i, at, d)); };
    if (call.groups_of(i, true) != nullptr) {
        const oracle::Record record = call.record_of(i, true);
        const char *const scales =
            record.scales_apart ? memory.in(before, place_of_group_scales(call, i, at, true)) : nullptr;
        const std::vector<float> head = oracle::decode(record, reinterpret_cast<const unsigned char *>(place(0)),
                                                       reinterpret_cast<const unsigned char *>(scales));
        return {head.begin(), head.end()};
    }
    std::vector<long double> head;
    for (std::int64_t d = 0; d < desc.head_dim; d++) {
        head.push_back(oracle::widen(desc.dtype, oracle::read_word(desc.dtype, place(d))));
        if (call.plan.rerotates != 0 && kv.scale != nullptr) {
            float scale = scale_of(call, i, at).value_or(1.0f);
            if (call.is_dynamic(i)) {
                std::copy_n(memory.in(before, place_of_scale(call, i, at)), 4, reinterpret_cast<char *>(&scale));
            }
            head.back() *= scale;
        }
    }
    return head;
}

std::string Scene::check_head(int i, const Head &at, const oracle::RoadValues &values, const Images &after) const {
    const std::int64_t head_dim = call.tensors[i].head_dim;
    float dynamic = 0;
    if (call.is_dynamic(i)) {
        std::copy_n(memory.in(after, place_of_scale(call, i, at)), 4, reinterpret_cast<char *>(&dynamic));
        if (std::string what = check_scale(i, at, values, dynamic); !what.empty()) {
            return what;
        }
    }
    const std::optional<long double> scale = call.is_dynamic(i) ? dynamic : scale_of(call, i, at);
    for (std::int64_t d = 0; d < head_dim; d++) {
        const auto k = static_cast<std::size_t>(at.head * head_dim + d);
        const std::uint32_t word =
            oracle::read_word(call.out_dtype(i), memory.in(after, place_of_output(call, i, at, d)));
        if (!oracle::may_be_stored(call.out_dtype(i), word, values.value[k], values.bound[k], scale)) {
            std::ostringstream text;
            text << "is " << oracle::widen(call.out_dtype(i), word) << " times " << scale.value_or(1) << ", not "
                 << values.value[k] << ", off by at most " << values.bound[k];
            return say(i, at, d, text.str());
        }
    }
    return "";
}

/// Of the head's greatest value, which is off by no more than the worst of its values may be.
std::string Scene::check_scale(int i, const Head &at, const oracle::RoadValues &values, float scale) const {
    const std::int64_t head_dim = call.tensors[i].head_dim;
    long double greatest = 0, bound = 0;
    for (std::int64_t d = 0; d < head_dim; d++) {
        const auto k = static_cast<std::size_t>(at.head * head_dim + d);
        greatest = std::max(greatest, std::fabs(values.value[k]));
        bound = std::max(bound, values.bound[k]);
    }
    const long double most = oracle::greatest(call.out_dtype(i)), exact = greatest / most;
    const bool is_too_small = (greatest - bound) / most < 0x1p-126L;  // for a normal scale, so that it is 1
    if (std::fabs(scale - exact) <= bound / most + exact * 0x1p-23L || (is_too_small && scale == 1.0f)) {
        return "";
    }
    return say(i, at, 0, "the scale is " + std::to_string(scale) + ", not " + std::to_string(exact));
}

std::string Scene::text() const {
    std::string in_place;
    for (int i = 0; i < call.n(); i++) {
        in_place += in_place_[i] ? "; y[" + std::to_string(i) + "] in place" : "";
    }
    return in_place + fields::text(fields::places(fields::of<halyard_plan_desc>(), &call.plan, call.n())) +
           fields::text(fields::places(fields::of<halyard_angle_source_desc>(), &angles.desc, 0, "angles")) +
           fields::text(fields::places(fields::of<halyard_run_args>(), &call.args, call.n()));
}

}  // namespace scenes
