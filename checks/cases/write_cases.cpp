// Writes random cases with the bytes that their calls leave, for tests in other languages:
//     halyard_write_cases COUNT SEED
// Half of them are re-rotations. A case is a line of JSON: the numbers of its structs; its arrays, as [region, offset,
// sizes, strides in bytes]; the regions' bytes in hexadecimal, before and after the call; and the call's status. The
// library has made the call, and the oracle has judged it.
#include "checks/cases/run_modes.h"
#include "checks/fields.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

namespace {

using namespace cases;
using nlohmann::json;

/// Whether Python's functions can make a call with this plan: rotate takes q, k and v, of which v is not rotated, with
/// one pairing; convert and rerotate take one tensor. A cache in tiles has no negative strides, and not 0 heads. Scales
/// outside of records lie multiples of 4 bytes apart, as in NumPy's arrays of float32.
bool has_plan_for_python(const Call &call) {
    for (int i = 0; i < call.n(); i++) {
        const bool is_rotated = call.kv[i].no_rotation == 0;
        const bool has_pairing =
            call.tensors[i].pairing == call.tensors[0].pairing && call.out_pairing(i) == call.out_pairing(0);
        const auto *const cache = call.kv[i].cache;
        const bool has_tiles = cache != nullptr && (cache->tile_tokens != 0 || cache->tile_elements != 0);
        if ((call.n() > 1 && (is_rotated != (i < 2) || (is_rotated && !has_pairing))) ||
            (has_tiles && (cache->stride_block < 0 || call.x[i].shape[2] == 0))) {
            return false;
        }
        for (const bool is_input : {false, true}) {
            const auto *const groups = call.groups_of(i, is_input);
            const std::int64_t strides = groups == nullptr ? 0
                                                           : groups->scales_stride_block | groups->scales_stride_token |
                                                                 groups->scales_stride_head;
            if (strides % 4 != 0) {
                return false;
            }
        }
    }
    return true;
}

template <typename Struct>
json numbers_of(const Sized<Struct> &given) {
    json numbers;
    for (const fields::Place &place : fields::places(fields::of<Struct>(), &given, 0)) {
        if (!place.field->is_pointer()) {
            numbers[place.path] = place.field->is_real ? json(place.read<double>()) : json(place.number());
        }
    }
    return numbers;
}

/// A tensor's arrays by name; the first tensor also has those of the whole call.
json arrays_of(const Case &drawn, int i) {
    const Call &call = drawn.call;
    const halyard_stages &stages = call.stages[i];
    const halyard_angle_source_desc &angles = drawn.angles.desc;
    json arrays = json::object();
    const auto add = [&](const char *name, const Array &array) {
        if (const auto [region, offset] = drawn.memory.find(array.first); region >= 0) {
            json sizes, strides;
            for (const auto &[count, stride] : array.dimensions) {
                sizes.push_back(count);
                strides.push_back(wrapping_product(stride, array.bytes));
            }
            arrays[name] = {region, offset, sizes, strides};
        }
    };
    const auto add_rows = [&](const char *name, const void *first, std::int64_t bytes, std::int64_t n,
                              std::int64_t stride, std::int64_t width) {
        add(name, {first, bytes, {{{n, stride}, {width, 1}}}});
    };
    add("x", array_of(call.x[i]));
    add("y", array_of(call.y[i]));
    add("position_scales", position_scales_of(call, i));
    add("scales_out", scales_out_of(call, i));
    add_rows("scales", stages.scales, 4, 1, 0, stages.n_scales);
    for (const auto &[name, weights] : {std::pair("weight", stages.weight), std::pair("bias", stages.bias)}) {
        const std::int64_t n = call.norms[i].weight_per_head != 0 ? std::max<std::int64_t>(call.x[i].shape[2], 1) : 1;
        add_rows(name, weights, bytes_of(call.norms[i].weight_dtype), n, stages.n_weights / n, stages.n_weights / n);
    }
    if (call.kv[i].cache != nullptr) {
        add("cache", Cache(call, i));
    }
    for (const bool is_input : {false, true}) {
        if ((is_input ? stages.from_group_scales : stages.group_scales) != nullptr) {
            add(is_input ? "from_group_scales" : "group_scales", GroupScales(call, i, is_input));
        }
    }
    if (i == 0) {
        for (const auto &[name, rows] : {std::pair("cos", angles.cos_rows), std::pair("sin", angles.sin_rows)}) {
            add_rows(name, rows, bytes_of(angles.rows_dtype), angles.n_rows, angles.stride_row, angles.rotary_dim / 2);
        }
        add("positions", array_of(call.positions));
        add("from_positions", array_of(call.from_positions));
        add("slots", array_of(call.slots));
    }
    return arrays;
}

json in_hexadecimal(const Images &images) {
    constexpr const char *digits = "0123456789abcdef";
    json regions;
    for (const auto &image : images) {
        std::string text;
        for (const char byte : image) {
            text += {digits[byte >> 4 & 15], digits[byte & 15]};
        }
        regions.push_back(text);
    }
    return regions;
}

/// Makes the call and writes the case. Returns false, and writes nothing, if an output is NaN (whose bits may differ
/// among machines), or if the only bad slots are those of tensors without elements (which a run does not check).
bool write(Case &drawn) {
    Call &call = drawn.call;
    WatchedError error;
    const halyard_status status = run(halyard::plan(call.plan).get(), call, RunMode::whole, 1, error);
    Images after = drawn.memory.image();
    require(status == HALYARD_OK || drawn.is_refused(), "a sensible run succeeds", error.error.message);
    if (status == HALYARD_OK) {
        if (drawn.is_refused()) {
            return false;
        }
        if (const std::string fault = drawn.fault(after); !fault.empty()) {
            throw std::runtime_error(fault);
        }
        bool has_nan = false;
        for_each_output_element(call, [&](const char *at, std::int32_t dtype) {
            has_nan = has_nan || oracle::is_nan(dtype, oracle::read_word(dtype, at));
        });
        if (has_nan) {
            return false;
        }
    }
    if (void *const scratch = call.scratch(); scratch != nullptr) {  // Python has its own
        std::copy_n(drawn.memory.address_in(drawn.before, scratch), call.scratch_bytes(),
                    drawn.memory.address_in(after, scratch));
    }
    json frequencies, tensors;
    for (int i = 0; i < (call.kv_args.from_angles != nullptr ? 2 : 1); i++) {
        const auto info = drawn.angles.frequencies(i).info();
        frequencies.push_back({info.base, info.attention_factor,
                               std::vector<double>(info.inv_freq, info.inv_freq + info.rotary_dim / 2)});
    }
    for (int i = 0; i < call.n(); i++) {
        tensors.push_back({numbers_of(call.tensors[i]), std::vector(call.x[i].shape, call.x[i].shape + 3),
                           call.in_dtype(i), call.out_dtype(i), arrays_of(drawn, i)});
    }
    const json written = {{"plan", numbers_of(call.plan)},
                          {"run", numbers_of(call.args)},
                          {"angles", numbers_of(drawn.angles.desc)},
                          {"frequencies", frequencies},
                          {"tensors", tensors},
                          {"status", halyard_status_name(status)},
                          {"before", in_hexadecimal(drawn.before)},
                          {"after", in_hexadecimal(after)}};
    std::puts(written.dump().c_str());
    return true;
}

/// Draws cases until one is small and Python can make its call, and writes it.
void write_next(Draw &draw, const Choice &choice) {
    while (true) {
        Case drawn(draw, choice, Case::InSteps());
        drawn.draw_plan();
        if (has_plan_for_python(drawn.call)) {
            drawn.draw_run();
            const auto n_bytes = std::accumulate(drawn.before.begin(), drawn.before.end(), std::size_t{0},
                                                 [](std::size_t n, const auto &image) { return n + image.size(); });
            if (n_bytes >= 1 << 17) {
                continue;
            }
            require(drawn.create_angles().empty(), "there is an angle source");
            if (write(drawn)) {
                return;
            }
        }
    }
}

}  // namespace

int main(int argc, char **argv) try {
    if (argc != 3) {
        throw std::runtime_error("usage: halyard_write_cases COUNT SEED");
    }
    oracle::Random random(static_cast<std::uint64_t>(std::stoll(argv[2])));
    Draw draw(random);
    for (long i = 0, n = std::stol(argv[1]); i < n; i++) {
        Choice choice;
        choice.rerotates = i % 2 != 0;
        choice.n_tensors = choice.rerotates ? 1 : draw.in(1, 3);
        choice.has_bad = draw.one_in(4);
        choice.level[of_values] = 0;                              // finite numbers
        choice.level[of_axes] = static_cast<int>(draw.in(0, 2));  // Python has no list of the axis of each pair,
        choice.level[of_from] = choice.level[of_axes] == 0 ? -1 : Angles::same;  // as another source has one
        write_next(draw, choice);
    }
    return 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
