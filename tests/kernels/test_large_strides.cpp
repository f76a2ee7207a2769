// Tensors, caches and angle rows that span more than a kernel's 32-bit offsets: random cases are run again with one
// stride of each array far larger. Address space is only reserved; just the pages that hold elements are touched.
#include "checks/cases/run_modes.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <sys/mman.h>

namespace {

using namespace cases;

template <typename Function>
void for_each_input_element(const Call &call, Function function) {
    for (int i = 0; i < call.n(); i++) {
        for_each_head(call, i, [&](const Head &at) {
            for (std::int64_t d = 0; d < call.elements_per_head(i, true); d++) {
                if (char *const place = place_of_input(call, i, at, d); place != nullptr) {
                    function(place, call.in_dtype(i));
                }
            }
        });
    }
}

/// A random case with huge strides: in one dimension of its tensors, between blocks or heads of its caches, and between
/// its given rows.
class FarCase {
public:
    FarCase(Case &drawn, int dimension, std::int64_t stride) : drawn_(drawn) {
        const Images expected = run_kernel_model(drawn);
        for_each_output_element(drawn.call, [&](const char *at, std::int32_t dtype) {
            outputs_.push_back(oracle::read_word(dtype, drawn.memory.address_in(expected, at)));
        });
        drawn.memory.restore(drawn.before);
        for_each_input_element(
            drawn.call, [&](const char *at, std::int32_t dtype) { inputs_.push_back(oracle::read_word(dtype, at)); });
        for (int i = 0; i < drawn.call.n(); i++) {
            stretch_tensor(i, dimension, stride);
        }
        if (drawn.angles.is_given()) {
            stretch_rows(std::abs(stride));
        }
    }

    /// Compares a run on a target with the case's ordinary run. Returns a message, or an empty string.
    std::string fault(const char *target, RunMode mode) {
        auto output = outputs_.begin();
        for_each_output_element(drawn_.call,
                                [&](char *at, std::int32_t dtype) { oracle::write_word(dtype, at, ~*output++); });
        drawn_.memory.restore(drawn_.before);
        auto input = inputs_.begin();
        for_each_input_element(drawn_.call,
                               [&](char *at, std::int32_t dtype) { oracle::write_word(dtype, at, *input++); });
        halyard_plan_desc desc = drawn_.call.plan;
        desc.target = target;
        WatchedError error;
        if (run(halyard::plan(desc).get(), drawn_.call, mode, 3, error) != HALYARD_OK) {
            return error.error.message;
        }
        std::int64_t n_wrong = 0;
        output = outputs_.begin();
        for_each_output_element(drawn_.call, [&](const char *at, std::int32_t dtype) {
            n_wrong += are_equal(dtype, oracle::read_word(dtype, at), *output++) ? 0 : 1;
        });
        return n_wrong == 0 ? "" : std::to_string(n_wrong) + " outputs are wrong";
    }

private:
    Case &drawn_;
    std::vector<std::uint32_t> inputs_, outputs_;
    std::vector<std::unique_ptr<GuardedMemory>> memories_;

    char *reserve(const Extent &extent) {
        const auto n_bytes = static_cast<std::size_t>(extent.high - extent.low);
        try {
            const auto n_pages = n_bytes / GuardedMemory::page + 1;
            char *const begin = memories_.emplace_back(std::make_unique<GuardedMemory>(n_pages))->begin();
            madvise(begin, n_bytes, MADV_NOHUGEPAGE);  // an element then costs 4 KiB, not 2 MiB
            return begin - static_cast<std::int64_t>(extent.low);
        } catch (const std::bad_alloc &) {
            SKIP("cannot reserve " << n_bytes << " bytes of address space");
            throw;
        }
    }

    void stretch_tensor(int i, int dimension, std::int64_t stride) {
        Call &call = drawn_.call;
        halyard_tensor &x = call.x[i], &y = call.y[i];
        const bool in_place = x.data == y.data;
        for (halyard_tensor *const view : {&x, &y}) {
            const bool is_record = view->dtype == HALYARD_UINT8;  // a record's bytes are contiguous
            view->strides[is_record && dimension == 3 ? 2 : dimension] = stride;
            if (view->data != nullptr) {
                view->data = view == &y && in_place ? x.data : reserve(extent_of(*view));
            }
        }
        if (halyard_cache_desc &cache = call.caches[i]; call.kv[i].cache != nullptr) {
            (cache.block_size != 0 && dimension % 2 == 0 ? cache.stride_block : cache.stride_head) = stride;
            call.stages[i].cache = reserve(extent_of_cache(call, i));
        }
    }

    void stretch_rows(std::int64_t stride) {
        halyard_angle_source_desc &desc = drawn_.angles.desc;
        const std::int64_t bytes = oracle::element_bytes(desc.rows_dtype), n = desc.rotary_dim / 2 * bytes;
        char *const far = reserve(Extent(bytes, desc.rotary_dim).add(desc.n_rows, stride));
        for (std::int64_t row = 0; row < desc.n_rows; row++) {
            const auto from = row * desc.stride_row * bytes;
            std::memcpy(far + row * stride * bytes, static_cast<const char *>(desc.cos_rows) + from, n);
            std::memcpy(far + row * stride * bytes + n, static_cast<const char *>(desc.sin_rows) + from, n);
        }
        desc.stride_row = stride;
        desc.cos_rows = far;
        desc.sin_rows = far + n;
        REQUIRE(drawn_.create_angles() == "");
    }
};

}  // namespace

TEST_CASE("strides beyond 32 bits", "[large]") {
    constexpr std::int64_t two_31 = std::int64_t{1} << 31;
    // With these strides, tokens or heads are too far apart for one kernel call, or just near enough.
    constexpr std::int64_t strides[] = {two_31 + 6,     -two_31 - 6,    two_31 / 2 - 64,
                                        two_31 / 2 + 3, two_31 / 4 - 1, 3 * two_31};
    oracle::Random random(Catch::getSeed());
    for (int round = 0; round < 4 * 6 * 6; round++) {
        Choice choice = round % 2 == 0 ? Choice::of_rotations() : Choice();
        choice.shape = {2, 5, 3};
        choice.rerotates = random.one_in(5);
        if (round / 2 % 4 == 3) {  // scattered elements: heads are short, because address space is limited
            choice.head_dim = 16;
            choice.rotary_dim = 8;
        }
        Draw draw(random);
        Case drawn(draw, choice);
        const std::int64_t stride = random.one_of(strides);
        CAPTURE(round / 2 % 4, stride, drawn.text());
        FarCase far(drawn, round / 2 % 4, stride);
        for (const char *const target : targets_of(drawn.call)) {
            CAPTURE(target);
            REQUIRE(far.fault(target, RunMode::whole) == "");
        }
        REQUIRE(far.fault(nullptr, RunMode::bound_parts) == "");
    }
}
