// Judges the memory that a case's run left: Case::fault, Case::difference and Case::text.
#include "checks/cases/case.h"
#include "checks/cases/kv_oracle.h"
#include "checks/fields.h"
#include "checks/kernel_model.h"
#include "checks/require.h"

#include <cmath>
#include <limits>
#include <sstream>

namespace cases {

namespace {

[[noreturn]] void fail(int i, const Head &at, std::int64_t d, const auto &...what) {
    std::ostringstream text;
    text << "tensor " << i << " [" << at.batch << ", " << at.token << ", " << at.head << ", " << d << "]: ";
    (text << ... << what);
    throw std::runtime_error(text.str());
}

/// Whether long double has less precision than it should: valgrind computes it as double, too coarse for an oracle.
bool is_long_double_coarse() {
    const volatile long double one = 1, least = std::numeric_limits<long double>::epsilon();
    return one + least == one;
}

class Judge {
public:
    Judge(const Case &drawn, const Images &after) : drawn_(drawn), after_(after) {}

    void check_tensor(int i) {
        if (call_.groups_of(i, false) != nullptr) {
            unquantised_plan_ = make_unquantised_plan(i);
        }
        const std::int64_t n_heads = call_.x[i].shape[2];
        any_token(call_, [&](std::int64_t b, std::int64_t t) {
            if (n_heads > 0 && (call_.kv[i].cache == nullptr || drawn_.is_kept(b, t))) {
                check_token(i, b, t);
            }
            return false;
        });
    }

    /// Throws if anything but outputs and scratch was written.
    void check_nothing_else_written() const {
        Images expected = drawn_.before;
        for_each_output_element(call_, [&](const char *at, std::int32_t dtype) {
            std::copy_n(memory_.address_in(after_, at), bytes_of(dtype), memory_.address_in(expected, at));
        });
        if (const std::string what = drawn_.difference(expected, after_); !what.empty()) {
            throw std::runtime_error(what);
        }
    }

private:
    const Case &drawn_;
    const Call &call_ = drawn_.call;
    const Memory &memory_ = drawn_.memory;
    const Images &after_;
    halyard::plan unquantised_plan_;

    void check_token(int i, std::int64_t b, std::int64_t t) {
        const bool is_exact = drawn_.angles.desc.reference == HALYARD_REFERENCE_EXACT || call_.kv[i].no_rotation != 0;
        if (call_.groups_of(i, false) != nullptr) {
            check_records(i, b, t);
        } else if ((drawn_.are_inputs_finite || call_.bounds_hold_for_any_bits(i)) && is_exact &&
                   !is_long_double_coarse()) {
            check_bounds(i, b, t);
        }
    }

    /// The quantisation scale of a head, if it has one.
    std::optional<float> scale_in(const Images &images, int i, const Head &at) const {
        if (call_.is_dynamic(i)) {
            return read_real(HALYARD_F32, memory_.address_in(images, place_of_scale(call_, i, at)));
        }
        const halyard_scale_desc *const scale = call_.kv[i].scale;
        return scale == nullptr
                   ? std::nullopt
                   : std::optional(call_.stages[i].scales[scale->per == HALYARD_SCALE_PER_HEAD ? at.head : 0]);
    }

    // ---- Records ----

    /// A plan that does everything of tensor i's KV path but quantise: it returns f32 in place of records.
    halyard::plan make_unquantised_plan(int i) const {
        halyard_tensor_desc desc = call_.tensors[i];
        halyard_kv_desc kv = call_.kv[i];
        kv.groups = kv.from_groups = nullptr;
        kv.cache = nullptr;
        kv.out_dtype = HALYARD_F32;
        desc.kv = &kv;
        desc.dtype = call_.dtype_of_stages(i);
        halyard_plan_desc plan = call_.plan;
        plan.n_tensors = 1;
        plan.tensors = &desc;
        return model::make_plan(plan);
    }

    /// The floats that a token's records are encoded from, [heads, head_dim]: the result of a run of unquantised_plan_.
    std::vector<float> run_unquantised(int i, std::int64_t b, std::int64_t t) const {
        TokenRun run(drawn_, b, t);
        const std::int64_t heads = call_.x[i].shape[2], head_dim = call_.tensors[i].head_dim;
        std::vector<float> floats(static_cast<std::size_t>(heads * head_dim)), inputs;
        run.x[0] = run.x[i];
        run.y[0] = halyard::tensor(floats.data(), halyard::dtype::f32, {1, 1, heads, head_dim});
        if (call_.groups_of(i, true) != nullptr) {
            const std::vector<long double> read = read_token(i, b, t);
            inputs.assign(read.begin(), read.end());
            run.x[0] = run.y[0];
            run.x[0].data = inputs.data();
        }
        run.stages[0] = run.stages[i];
        run.stages[0].cache = run.stages[0].group_scales = nullptr;
        run.stages[0].from_group_scales = nullptr;
        run.kv_args.stages = run.stages;
        run.kv_args.slots = nullptr;
        run.args.kv = &run.kv_args;
        run.args.n_tensors = 1;
        run.args.executor = nullptr;
        WatchedError error;
        if (halyard_run(unquantised_plan_.get(), &run.args, &error.error) != HALYARD_OK) {
            throw std::runtime_error(std::string("taken for records, but not for floats: ") + error.error.message);
        }
        return floats;
    }

    void check_records(int i, std::int64_t b, std::int64_t t) const {
        const oracle::Record record = call_.record_of(i, false);
        memory_.restore(drawn_.before);
        const std::vector<float> floats = run_unquantised(i, b, t);
        for (std::int64_t head = 0; head < call_.x[i].shape[2]; head++) {
            const Head at = {b, t, head};
            char *const bytes = place_of_output(call_, i, at, 0);
            char *const scales = record.scales_apart ? place_of_group_scales(call_, i, at, false) : nullptr;
            oracle::encode(record, floats.data() + head * record.head_dim, bytes, scales);
            for (const oracle::Place &place : places_of(record)) {
                char *const first = (place.in_scales ? scales : bytes) + place.offset;
                for (std::int64_t byte = 0; byte < place.bytes; byte += bytes_of(place.dtype)) {
                    const std::uint32_t word = oracle::read_word(place.dtype, memory_.address_in(after_, first + byte)),
                                        wanted = oracle::read_word(place.dtype, first + byte);
                    if (!are_equal(place.dtype, word, wanted)) {
                        fail(i, at, place.offset + byte, std::hex, "the byte of its ",
                             place.in_scales ? "scales" : "record", " is ", word, ", not ", wanted);
                    }
                }
            }
        }
    }

    // ---- Bounds ----

    /// A token's input before the run, decoded or scaled to floats, [heads, head_dim].
    std::vector<long double> read_token(int i, std::int64_t b, std::int64_t t) const {
        std::vector<long double> token;
        for (std::int64_t head = 0; head < call_.x[i].shape[2]; head++) {
            const Head at = {b, t, head};
            const auto place = [&](std::int64_t d) {
                return memory_.address_in(drawn_.before, place_of_input(call_, i, at, d));
            };
            if (call_.groups_of(i, true) != nullptr) {
                const oracle::Record record = call_.record_of(i, true);
                const char *const scales =
                    record.scales_apart ? memory_.address_in(drawn_.before, place_of_group_scales(call_, i, at, true))
                                        : nullptr;
                const std::vector<float> values = oracle::decode(record, place(0), scales);
                token.insert(token.end(), values.begin(), values.end());
                continue;
            }
            const bool is_scaled = call_.plan.rerotates != 0;
            const float scale = is_scaled ? scale_in(drawn_.before, i, at).value_or(1.0f) : 1.0f;
            for (std::int64_t d = 0; d < call_.tensors[i].head_dim; d++) {
                token.push_back(static_cast<long double>(read_real(call_.tensors[i].dtype, place(d))) * scale);
            }
        }
        return token;
    }

    void check_bounds(int i, std::int64_t b, std::int64_t t) const {
        std::vector<long double> cos, sin;
        for (std::int64_t pair = 0; call_.kv[i].no_rotation == 0 && pair < call_.plan.rotary_dim / 2; pair++) {
            const ExactCosSin turn = drawn_.angles.at(call_, b, t, pair);
            cos.push_back(turn.cos);
            sin.push_back(turn.sin);
        }
        const oracle::KvValues values = oracle::exact_kv_values(call_, i, {b, t, 0}, read_token(i, b, t), cos, sin);
        const std::int64_t head_dim = call_.tensors[i].head_dim;
        for (std::int64_t head = 0; head < call_.x[i].shape[2]; head++) {
            const Head at = {b, t, head};
            const long double *const value = values.value.data() + head * head_dim;
            const long double *const bound = values.bound.data() + head * head_dim;
            const std::optional<float> scale = scale_in(after_, i, at);
            if (call_.is_dynamic(i)) {
                check_scale(i, at, {value, value + head_dim}, *std::max_element(bound, bound + head_dim), *scale);
            }
            for (std::int64_t d = 0; d < head_dim; d++) {
                const char *const place = memory_.address_in(after_, place_of_output(call_, i, at, d));
                const std::uint32_t word = oracle::read_word(call_.out_dtype(i), place);
                if (!oracle::may_be_stored(call_.out_dtype(i), word, value[d], bound[d], scale)) {
                    fail(i, at, d, "is ", oracle::widen(call_.out_dtype(i), word), " times ", scale.value_or(1),
                         ", not ", value[d], ", off by at most ", bound[d]);
                }
            }
        }
    }

    /// Checks that a dynamic scale is the head's largest magnitude divided by the dtype's largest number. The magnitude
    /// may be off by `bound`.
    void check_scale(int i, const Head &at, const std::vector<long double> &head, long double bound,
                     float scale) const {
        long double greatest = 0;
        for (const long double value : head) {
            greatest = std::max(greatest, std::fabs(value));
        }
        const long double most = oracle::greatest(call_.out_dtype(i)), exact = greatest / most;
        const bool is_too_small = (greatest - bound) / most < 0x1p-126L;  // a subnormal scale is replaced by 1
        if (std::fabs(scale - exact) > bound / most + exact * 0x1p-23L && !(is_too_small && scale == 1.0f)) {
            fail(i, at, 0, "the scale is ", scale, ", not ", exact);
        }
    }
};

}  // namespace

std::string Case::fault(const Images &after) const {
    try {
        Judge judge(*this, after);
        for (int i = 0; i < call.n(); i++) {
            judge.check_tensor(i);
        }
        judge.check_nothing_else_written();
        return "";
    } catch (const std::runtime_error &fault) {
        return fault.what() + text();
    }
}

std::string Case::difference(const Images &expected, const Images &result) const {
    std::ostringstream what;
    Images accepted = result;
    for_each_output_element(call, [&](const char *at, std::int32_t dtype) {
        char *const is = memory.address_in(accepted, at);
        const std::uint32_t word = oracle::read_word(dtype, is),
                            should_be = oracle::read_word(dtype, memory.address_in(expected, at));
        if (are_equal(dtype, word, should_be)) {
            oracle::write_word(dtype, is, should_be);
        } else if (what.str().empty()) {
            what << "an output is " << std::hex << word << ", not " << should_be;
        }
    });
    if (call.scratch() != nullptr) {
        std::copy_n(memory.address_in(expected, call.scratch()), call.scratch_bytes(),
                    memory.address_in(accepted, call.scratch()));
    }
    if (what.str().empty() && accepted != expected) {
        what << "what is no output differs";
    }
    return what.str().empty() ? "" : what.str() + text();
}

std::string Case::text() const {
    std::string all;
    for (int i = 0; i < call.n(); i++) {
        all += in_place[i] ? "; y[" + std::to_string(i) + "] in place" : "";
    }
    return all + fields::text(fields::places(fields::of<halyard_plan_desc>(), &call.plan, call.n())) +
           fields::text(fields::places(fields::of<halyard_angle_source_desc>(), &angles.desc, 0, "angles")) +
           fields::text(fields::places(fields::of<halyard_run_args>(), &call.args, call.n()));
}

}  // namespace cases
