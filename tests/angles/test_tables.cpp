// Tables: which rows they hold, and which row serves a position.
#include "checks/make_sources.h"

#include <catch2/catch_test_macros.hpp>

#include <climits>
#include <utility>

namespace {

halyard::angle_source make_table(const halyard::frequencies &frequencies, std::int32_t first, std::int32_t last,
                                 const halyard_positions *listed = nullptr) {
    auto desc = describe_source(HALYARD_ANGLES_AUTO, first, last);
    desc.listed = listed;
    return halyard::angle_source(frequencies, desc);
}

}  // namespace

TEST_CASE("tables: a range and a list hold the same rows", "[angles]") {
    const auto frequencies = halyard::frequencies::from_base(10000, 16);
    const auto range = make_source(frequencies, HALYARD_ANGLES_TABLE, -40, 60);
    const std::vector<std::int32_t> positions = {60, -40, 7, 7, 0, 59, -1, 12};
    const auto listed = make_listed_table(frequencies, positions);
    const auto asked = positions_of(positions);
    const auto rows = rows_of(range, &asked, 1, 8);
    CHECK(rows == rows_of(listed, &asked, 1, 8));
    for (std::size_t i = 0; i < positions.size(); ++i) {
        float expected[16];
        halyard::make_row(*frequencies.get(), positions[i], expected, expected + 8);
        CHECK(std::memcmp(expected, &rows[16 * i], sizeof(expected)) == 0);
    }
    const auto info = range.info();
    CHECK(info.kind == HALYARD_ANGLES_TABLE);
    CHECK(info.rotary_dim == 16);
    CHECK((info.first == -40 && info.last == 60 && info.n_rows == 101 && info.bytes == 101 * 64 + 8 * 8));
    const auto listed_info = listed.info();
    CHECK((listed_info.first == -40 && listed_info.last == 60 && listed_info.n_rows == 7));
    CHECK(listed_info.bytes == 7 * 64 + 7 * 4 + 8 * 8);
    CHECK(reinterpret_cast<std::uintptr_t>(range.get()->cos_rows) % 64 == 0);
}

TEST_CASE("tables: rows outlive the frequencies", "[angles]") {
    auto frequencies = halyard::frequencies::from_base(10000, 8);
    const auto source = make_table(frequencies, 0, 3);
    const auto before = rows_of(source, nullptr, 1, 4);
    frequencies = halyard::frequencies();
    CHECK(rows_of(source, nullptr, 1, 4) == before);
}

TEST_CASE("tables: position 0 always has a row, but is covered only where asked for", "[angles]") {
    const auto frequencies = make_frequencies({1.0, 0.5}, 1.25);
    const std::vector<std::int32_t> three = {5, 9, 14}, none = {};
    const auto listed = positions_of(three), empty = positions_of(none);
    const halyard::angle_source sources[] = {make_table(frequencies, 5, 9), make_table(frequencies, -9, -5),
                                             make_table(frequencies, INT32_MIN, INT32_MAX, &listed),
                                             make_table(frequencies, 3, 90, &empty)};
    const std::vector<std::int64_t> n_covered = {5, 5, 3, 0};
    for (std::size_t i = 0; i < 4; ++i) {
        CAPTURE(i);
        CHECK(sources[i].info().n_rows == n_covered[i] + 1);
        CHECK(!sources[i].get()->covers(0));
        const auto rows = rows_of(sources[i], nullptr, 1, 1, halyard::bad_position::identity);
        CHECK(rows == std::vector<float>{1.25f, 1.25f, 0.0f, 0.0f});
    }
    auto endless = empty;
    endless.shape[0] = INT64_MAX;
    CHECK(make_table(frequencies, 3, 90, &endless).info().n_rows == 1);
    // An empty list has no nearest position, so nothing is rotated.
    CHECK(rows_of(sources[3], nullptr, 1, 2, halyard::bad_position::clamp) ==
          std::vector<float>{1.25f, 1.25f, 0, 0, 1.25f, 1.25f, 0, 0});
}

TEST_CASE("tables: listed positions are moved into the range", "[angles]") {
    const auto frequencies = halyard::frequencies::from_base(10000, 4);
    const std::vector<std::int64_t> values = {INT64_MIN, 4, 4, 20, INT64_MAX, 12};
    const auto listed = positions_of(values, 2);
    const auto source = make_table(frequencies, 2, 30, &listed);
    CHECK(source.info().n_rows == 6);
    for (const std::int64_t position : {2, 4, 12, 20, 30}) {
        CHECK(source.get()->covers(position));
    }
    for (const std::int64_t position : {0, 1, 3, 13, 31}) {
        CHECK(!source.get()->covers(position));
    }
    // A list without gaps becomes a range.
    const std::vector<std::int32_t> dense = {3, 1, 2, 0, 1};
    const auto without_gaps = make_listed_table(frequencies, dense);
    CHECK(without_gaps.get()->listed == nullptr);
    const auto info = without_gaps.info();
    CHECK((info.first == 0 && info.last == 3 && info.n_rows == 4 && info.bytes == 64 + 16));
}

TEST_CASE("tables: which row serves a position", "[angles]") {
    const auto frequencies = halyard::frequencies::from_base(10000, 4);
    using enum halyard::BadPosition;
    const auto range = make_table(frequencies, -3, 5);
    const struct {
        std::int64_t position, error, clamp, identity;
    } in_range[] = {{-3, 0, 0, 0},         {0, 3, 3, 3},          {5, 8, 8, 8},          {-4, -1, 0, 3},
                    {6, -1, 8, 3},         {INT32_MIN, -1, 0, 3}, {INT32_MAX, -1, 8, 3}, {INT64_MIN, -1, 0, 3},
                    {INT64_MAX, -1, 8, 3}, {4294967296, -1, 8, 3}};
    for (const auto &entry : in_range) {
        CAPTURE(entry.position);
        CHECK(range.get()->find_row(entry.position, error) == entry.error);
        CHECK(range.get()->find_row(entry.position, clamp) == entry.clamp);
        CHECK(range.get()->find_row(entry.position, identity) == entry.identity);
    }
    const std::vector<std::int32_t> values = {INT32_MIN, -10, 4, 10, INT32_MAX};
    const auto listed = make_listed_table(frequencies, values);
    const struct {
        std::int64_t position, clamp;
    } in_list[] = {{INT64_MIN, 0},  {INT32_MIN, 0},   {INT32_MIN + 1, 0},
                   {-11, 1},        {-10, 1},         {-4, 1},
                   {-3, 1},         {-2, 2},          {7, 2},
                   {8, 3},          {11, 3},          {0x40000004, 3},
                   {0x40000005, 4}, {-0x40000005, 0}, {-0x40000004, 1},
                   {INT32_MAX, 4},  {INT64_MAX, 4}};
    for (const auto &entry : in_list) {
        CAPTURE(entry.position);
        const bool is_covered = std::find(values.begin(), values.end(), entry.position) != values.end();
        CHECK(listed.get()->find_row(entry.position, error) == (is_covered ? entry.clamp : -1));
        CHECK(listed.get()->find_row(entry.position, clamp) == entry.clamp);
        CHECK(listed.get()->find_row(entry.position, identity) ==
              (is_covered ? entry.clamp : listed.get()->identity_row));
    }
}

TEST_CASE("tables: the ends of int32", "[angles]") {
    const auto frequencies = halyard::frequencies::from_base(500000, 6);
    for (const auto &[first, last] : {std::pair{INT32_MIN, INT32_MIN + 2}, std::pair{INT32_MAX - 2, INT32_MAX}}) {
        const auto source = make_table(frequencies, first, last);
        CHECK(source.info().n_rows == 4);
        float expected[6];
        halyard::make_row(*frequencies.get(), last, expected, expected + 3);
        const std::vector<std::int32_t> at = {last};
        const auto positions = positions_of(at);
        CHECK(rows_of(source, &positions, 1, 1) == std::vector<float>(expected, expected + 6));
    }
}
