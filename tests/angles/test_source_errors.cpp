// Bad descriptions of angle sources.
#include "angles/refused_source.h"
#include "checks/make_sources.h"
#include "checks/rotate.h"

#include <functional>
#include <utility>

namespace {

using Desc = halyard_angle_source_desc;

/// Changes one thing in a good description, which is then refused.
void refuse(const halyard::frequencies &frequencies, Desc desc, halyard_status status, const Words &words,
            const std::function<void(Desc &)> &change) {
    change(desc);
    check_source_refused(frequencies.get(), &desc, status, words);
}

/// A good description of the caller's own rows, of any dtype.
Desc describe_given(const void *rows, std::int64_t n_rows = 4, std::int64_t rotary_dim = 4) {
    auto desc = describe_source(HALYARD_ANGLES_GIVEN);
    desc.cos_rows = rows;
    desc.sin_rows = static_cast<const float *>(rows) + rotary_dim / 2;
    desc.n_rows = n_rows;
    desc.stride_row = desc.rotary_dim = rotary_dim;
    return desc;
}

}  // namespace

TEST_CASE("angle sources: arguments are checked", "[angles]") {
    const auto frequencies = halyard::frequencies::from_base(10000, 4);
    const std::vector<float> rows(16);
    auto table = describe_source(HALYARD_ANGLES_AUTO, 0, 3);
    auto given = describe_given(rows.data());
    const auto refuse_table = [&](halyard_status status, const Words &words,
                                  const std::function<void(Desc &)> &change) {
        refuse(frequencies, table, status, words, change);
    };
    const auto refuse_given = [&](halyard_status status, const std::function<void(Desc &)> &change) {
        refuse(frequencies, given, status, {}, change);
    };

    check_source_refused(nullptr, &table, HALYARD_ERROR_NULL_POINTER);
    check_source_refused(frequencies.get(), nullptr, HALYARD_ERROR_NULL_POINTER);
    check_refused(HALYARD_ERROR_NULL_POINTER, {},
                  [&](auto *error) { return halyard_create_angle_source(frequencies.get(), &table, nullptr, error); });
    for (const std::uint32_t size : bad_sizes<Desc>()) {
        refuse_table(HALYARD_ERROR_STRUCT_SIZE, {}, [&](Desc &desc) { desc.size = size; });
    }
    refuse_table(HALYARD_ERROR_POSITION, {}, [](Desc &desc) { desc.last = -1; });

    refuse_given(HALYARD_ERROR_NULL_POINTER, [](Desc &desc) { desc.cos_rows = nullptr; });
    refuse_given(HALYARD_ERROR_NULL_POINTER, [](Desc &desc) { desc.sin_rows = nullptr; });
    for (const std::int32_t by_token : {-1, 3, INT32_MAX}) {
        refuse_given(HALYARD_ERROR_UNKNOWN_VALUE, [=](Desc &desc) { desc.by_token = by_token; });
    }
    for (const std::int32_t by_token : {-1, 1, 2}) {
        refuse_table(HALYARD_ERROR_UNKNOWN_VALUE, {"desc.by_token is " + text(by_token)},
                     [=](Desc &desc) { desc.by_token = by_token; });
    }
    for (const std::int64_t rotary_dim : Numbers{0, -2, 3, (1 << 20) + 2}) {
        refuse_given(HALYARD_ERROR_ROTARY_DIM, [&](Desc &desc) { desc.rotary_dim = rotary_dim; });
    }
    for (const std::int64_t n_rows : Numbers{0, -1, INT64_MIN}) {
        refuse_given(HALYARD_ERROR_SHAPE, [&](Desc &desc) { desc.n_rows = n_rows; });
    }
    for (const std::int64_t stride : Numbers{1, 0, -4, INT64_MIN}) {
        refuse_given(HALYARD_ERROR_SHAPE, [&](Desc &desc) { desc.stride_row = stride; });
    }
    for (const std::int64_t n_rows : Numbers{INT64_MAX, 1LL << 31, INT64_MAX / 8}) {
        refuse_given(HALYARD_ERROR_OVERFLOW, [&](Desc &desc) { desc.n_rows = n_rows; });
    }
    refuse_given(HALYARD_ERROR_OVERFLOW, [](Desc &desc) { desc.stride_row = INT64_MAX; });
    const auto *const end_of_memory = reinterpret_cast<const float *>(UINTPTR_MAX - 31);
    refuse_given(HALYARD_ERROR_OVERFLOW, [=](Desc &desc) { desc.cos_rows = end_of_memory; });
    refuse_given(HALYARD_ERROR_OVERFLOW, [=](Desc &desc) { desc.sin_rows = end_of_memory; });

    const std::vector<std::int32_t> values = {1, 2, 3, 4};
    const auto refuse_listed = [&](halyard_status status, const Words &words, auto change) {
        auto listed = positions_of(values);
        change(listed);
        refuse_table(status, words, [&](Desc &desc) { desc.listed = &listed; });
    };
    refuse_listed(HALYARD_ERROR_STRUCT_SIZE, {"desc.listed.size is 3"}, [](auto &listed) { listed.size = 3; });
    refuse_listed(HALYARD_ERROR_NULL_POINTER, {}, [](auto &listed) { listed.data = nullptr; });
    refuse_listed(HALYARD_ERROR_UNKNOWN_VALUE, {}, [](auto &listed) { listed.type = 2; });
    refuse_listed(HALYARD_ERROR_MISMATCH, {}, [](auto &listed) { listed.consecutive = 1; });
    for (const auto &[n_batch, n_tokens] : {std::pair<std::int64_t, std::int64_t>{-1, 4}, {4, -1}, {-2, -2}}) {
        refuse_listed(HALYARD_ERROR_SHAPE, {"desc.listed.shape"}, [&, b = n_batch, t = n_tokens](auto &listed) {
            listed.shape[0] = b;
            listed.shape[1] = t;
        });
    }
    // 2^80 and 2^64 bytes; and an address below all.
    for (const auto &[shape, stride] :
         {std::pair<std::int64_t, std::int64_t>{1LL << 40, 0}, {1LL << 31, 0}, {1LL << 31, INT64_MIN}}) {
        refuse_listed(HALYARD_ERROR_OVERFLOW, {}, [&, n = shape, s = stride](auto &listed) {
            listed.shape[0] = listed.shape[1] = n;
            listed.strides[0] = s;
            listed.strides[1] = 0;
        });
    }

    // What is refused for a table is not read for given rows, and the other way round.
    given.first = 7;
    given.last = -7;
    const halyard::angle_source source{halyard::frequencies(), given};
    auto info = source.info();
    CHECK(info.kind == HALYARD_ANGLES_GIVEN);
    CHECK((info.rotary_dim == 4 && info.first == 0 && info.last == 3 && info.n_rows == 4 && info.bytes == 0));
    table.n_rows = -1;
    table.rotary_dim = 3;
    CHECK_NOTHROW(halyard::angle_source(frequencies, table));

    const auto refuse_info = [](halyard_status status, const halyard_angle_source *of, halyard_angle_source_info *to) {
        check_refused(status, {}, [&](auto *error) { return halyard_get_angle_source_info(of, to, error); });
    };
    info = sized<halyard_angle_source_info>();
    refuse_info(HALYARD_ERROR_NULL_POINTER, nullptr, &info);
    refuse_info(HALYARD_ERROR_NULL_POINTER, source.get(), nullptr);
    for (const std::uint32_t size : {0u, 8u, unsigned(sizeof(info)) + 1}) {
        info.size = size;
        refuse_info(HALYARD_ERROR_STRUCT_SIZE, source.get(), &info);
        CHECK(info.n_rows == 0);
    }
    halyard_destroy_angle_source(nullptr);
}

TEST_CASE("angle sources: factored tables hold at most 2^31 - 1 floats", "[angles]") {
    const auto refuse_range = [](std::int64_t rotary_dim, std::int32_t n_covered, const char *words) {
        const auto desc = describe_source(HALYARD_ANGLES_FACTORED, 0, n_covered - 1);
        check_source_refused(halyard::frequencies::from_base(10000, rotary_dim).get(), &desc, HALYARD_ERROR_OVERFLOW,
                             {words});
    };
    // First only the coarse tables are too large, then only the fine ones.
    refuse_range((1 << 20) - 2, 1 << 22, "2049 and 2048 rows and rotary_dim 1048574");
    refuse_range(1 << 20, (1 << 20) + 1, "514 and 2048 rows and rotary_dim 1048576");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their allocators stop the program instead
TEST_CASE("angle sources: a table that no memory holds is an error", "[angles]") {
    const auto frequencies = halyard::frequencies::from_base(10000, 1 << 16);
    auto desc = describe_source(HALYARD_ANGLES_TABLE, 0, INT32_MAX - 1);
    check_source_refused(frequencies.get(), &desc, HALYARD_ERROR_OUT_OF_MEMORY);
    desc.last = INT32_MAX;  // 2^31 rows
    check_source_refused(frequencies.get(), &desc, HALYARD_ERROR_OVERFLOW, {"2147483648"});
}
#endif

TEST_CASE("sources: what cannot be had is refused", "[sources][errors]") {
    const auto frequencies = halyard::frequencies::from_base(10000, 128);
    const auto make = [&](const Desc &desc) { return halyard::angle_source(frequencies, desc); };
    for (const std::int32_t kind : {HALYARD_ANGLES_FACTORED, HALYARD_ANGLES_PHASE}) {
        const std::string name = kind == HALYARD_ANGLES_PHASE ? "PHASE" : "FACTORED";
        const auto good = describe_source(kind, 0, 99);
        CHECK_NOTHROW(make(good));
        refuse(frequencies, good, HALYARD_ERROR_MISMATCH, {"HALYARD_ANGLES_" + name, "HALYARD_REFERENCE_HF_F32"},
               [](Desc &desc) { desc.reference = HALYARD_REFERENCE_HF_F32; });
        const std::vector<std::int32_t> positions = {1, 5};
        const auto listed = positions_of(positions);
        refuse(frequencies, good, HALYARD_ERROR_MISMATCH, {"desc.listed"}, [&](Desc &desc) { desc.listed = &listed; });
        refuse(frequencies, good, HALYARD_ERROR_POSITION, {"desc.last is 4"}, [](Desc &desc) {
            desc.first = 5;
            desc.last = 4;
        });
        check_source_refused(nullptr, &good, HALYARD_ERROR_NULL_POINTER, {"frequencies"});
    }
    for (const std::int32_t kind : {-1, 5, 1000, INT32_MAX}) {
        refuse(frequencies, describe_source(kind), HALYARD_ERROR_UNKNOWN_VALUE, {"desc.kind is " + text(kind)},
               [](Desc &) {});
    }
    for (const std::int32_t reference : {-1, 5}) {
        for (const std::int32_t kind : {HALYARD_ANGLES_AUTO, HALYARD_ANGLES_TABLE, HALYARD_ANGLES_GIVEN,
                                        HALYARD_ANGLES_FACTORED, HALYARD_ANGLES_PHASE}) {
            refuse(frequencies, describe_source(kind), HALYARD_ERROR_UNKNOWN_VALUE,
                   {"desc.reference is " + text(reference)}, [&](Desc &desc) { desc.reference = reference; });
        }
    }
    const float rows[64] = {};
    for (const std::int32_t dtype : {-1, 4, 77}) {
        const auto good = describe_given(rows, 2, 8);
        CHECK_NOTHROW(make(good));
        refuse(frequencies, good, HALYARD_ERROR_UNKNOWN_VALUE, {"desc.rows_dtype is " + text(dtype)},
               [&](Desc &desc) { desc.rows_dtype = dtype; });
    }
    // 65537 coarse rows of 2^15 floats are one too many for 32 bits.
    const auto wide = halyard::frequencies::from_base(10000, 1 << 15);
    refuse(wide, describe_source(HALYARD_ANGLES_FACTORED, least_position, greatest_position), HALYARD_ERROR_OVERFLOW,
           {"factored tables of 65537 and 65536 rows and rotary_dim 32768"}, [](Desc &) {});
    CHECK_NOTHROW(make_source(wide, HALYARD_ANGLES_FACTORED, 0, 99));
    CHECK_NOTHROW(make_source(wide, HALYARD_ANGLES_PHASE, least_position, greatest_position));
}

TEST_CASE("sources: rows of two bytes cannot be written through", "[sources][errors]") {
    // The span that outputs are kept away from counts bytes, not floats.
    std::vector<std::uint16_t> memory(64, 0x3c00);
    auto desc = describe_given(memory.data(), 2, 8);
    desc.sin_rows = memory.data() + 4;
    desc.rows_dtype = HALYARD_F16;
    const halyard::angle_source source{halyard::frequencies(), desc};
    Rotation rotation;
    rotation.rotary_dim = 8;
    rotation.dtype = HALYARD_F16;
    const auto try_at = [&](std::size_t at) {
        const auto tensor = halyard::tensor(memory.data() + at, halyard::dtype::f16, {1, 1, 1, 8});
        auto args = sized<halyard_run_args>();
        args.angles = source.get();
        args.x = args.y = &tensor;
        const halyard::plan plan = rotation.plan();
        return halyard_run(plan.get(), &args, nullptr);
    };
    CHECK(try_at(15) == HALYARD_ERROR_OVERLAP);  // the last word of the last sin row
    CHECK(try_at(16) == HALYARD_OK);
}
