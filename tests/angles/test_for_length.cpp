// Frequencies for another context length: those of the same model, for the lengths that they say, as transformers
// changes them while a context grows.
#include "checks/make_sources.h"
#include "checks/oracle.h"
#include "config/read_config.h"
#include "refused.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <string>
#include <vector>

namespace {

using oracle::Random;

constexpr std::int64_t most_tokens = std::int64_t{1} << 53;

/// Checks that everything about two frequencies is the same.
void check_same(const halyard::frequencies &a, const halyard::frequencies &b) {
    const auto of_a = a.info(), of_b = b.info();
    REQUIRE(of_a.rotary_dim == of_b.rotary_dim);
    CHECK(of_a.attention_factor == of_b.attention_factor);
    CHECK(of_a.pairing == of_b.pairing);
    CHECK(of_a.out_pairing == of_b.out_pairing);
    CHECK(std::string(of_a.method) == of_b.method);
    CHECK(of_a.head_dim == of_b.head_dim);
    CHECK(of_a.axis_map == of_b.axis_map);
    CHECK(of_a.base == of_b.base);
    CHECK(of_a.original_max_position == of_b.original_max_position);
    CHECK(of_a.max_position == of_b.max_position);
    CHECK(of_a.first_seq_len == of_b.first_seq_len);
    CHECK(of_a.last_seq_len == of_b.last_seq_len);
    for (std::int64_t k = 0; k < of_a.rotary_dim / 2; k++) {
        CHECK(a.get()->inv_freq[k].hi == b.get()->inv_freq[k].hi);
        CHECK(a.get()->inv_freq[k].lo == b.get()->inv_freq[k].lo);
        CHECK(a.get()->quarter_turns[k].value.lo == b.get()->quarter_turns[k].value.lo);
        CHECK(of_a.inv_freq[k] == of_b.inv_freq[k]);
    }
}

halyard_scaling dynamic_ntk(std::int64_t seq_len = 0) {
    auto scaling = sized<halyard_scaling>();
    scaling.method = HALYARD_SCALING_DYNAMIC_NTK;
    scaling.base = 10000;
    scaling.rotary_dim = 64;
    scaling.factor = 2;
    scaling.original_max_position = 1000;
    scaling.seq_len = seq_len;
    return scaling;
}

}  // namespace

TEST_CASE("lengths: every config gives what it gives when it is read for that length", "[angles][golden]") {
    const golden::Section section("frequencies");
    for (const auto &entry : section.cases()) {
        INFO(entry.at("name").get<std::string>());
        const auto text = read_golden(entry);
        auto evaluation = entry.at("evaluations").at(0);
        const auto read_at = [&](std::int64_t seq_len) {
            evaluation["seq_len"] = seq_len;
            return read_for(evaluation, text).frequencies;
        };
        const auto once = read_at(0), far = read_at(200000);
        for (const std::int64_t seq_len : Numbers{0, 1, 2048, 2049, 3000, 4096, 4097, 131072, most_tokens}) {
            INFO(seq_len);
            const auto expected = read_at(seq_len);
            check_same(once.for_length(seq_len), expected);
            check_same(far.for_length(seq_len), expected);
            check_same(once.for_length(12345).for_length(seq_len), expected);
        }
    }
}

TEST_CASE("lengths: two attention factors and the first Qwen's limit are kept", "[angles]") {
    const auto config = phi3(R"({"rope_scaling": {"short_mscale": 1.25, "long_mscale": 1.5}})");
    const auto model = read_good(config.dump()).frequencies;
    const auto original = model.info().original_max_position;
    CHECK(model.info().attention_factor == 1.25);
    CHECK(model.for_length(original + 1).info().attention_factor == 1.5);
    CHECK(model.for_length(original + 1).for_length(original).info().attention_factor == 1.25);

    const auto qwen = read_good(read_fixture("qwen-7b")).frequencies;
    CHECK(qwen.info().last_seq_len == 8192);
    check_same(qwen.for_length(8192), qwen);
    halyard_frequencies *out = nullptr;
    for (const auto &each : {qwen.for_length(0), qwen.for_length(8192)}) {
        check_refused(HALYARD_ERROR_UNSUPPORTED, {"seq_len is 8193", "8192"}, [&](auto *error) {
            return halyard_create_frequencies_for_length(each.get(), 8193, &out, error);
        });
    }
    CHECK(out == nullptr);
}

TEST_CASE("lengths: dynamic NTK changes when transformers changes it", "[angles]") {
    Random random(Catch::getSeed());
    auto now = halyard::frequencies::from_scaling(dynamic_ntk());
    std::int64_t theirs = 1000;  // the length that transformers' dynamic_frequency_update has its frequencies for
    int n_changes = 0;
    for (int step = 0; step < 3000; step++) {
        const auto seq_len = random.one_of({999, 1000, 1001, static_cast<int>(random.in(0, 6000))});
        if (!now.are_for_length(seq_len)) {
            now = now.for_length(seq_len);
            n_changes++;
        }
        CHECK(now.are_for_length(seq_len));
        theirs = seq_len < 1000 ? 1000 : std::max<std::int64_t>(theirs, seq_len);
        check_same(now, halyard::frequencies::from_scaling(dynamic_ntk(theirs)));
    }
    CHECK((n_changes > 300 && n_changes < 2700));
}

TEST_CASE("lengths: LongRoPE changes at the trained length, and nothing else ever", "[angles]") {
    const auto model = read_good(phi3().dump()).frequencies;
    CHECK(model.info().first_seq_len == 0);
    CHECK(model.info().last_seq_len == 4096);
    const auto longer = model.for_length(4097);
    CHECK(longer.info().first_seq_len == 4097);
    CHECK(longer.info().last_seq_len == most_tokens);
    CHECK(longer.info().inv_freq[40] != model.info().inv_freq[40]);
    check_same(longer.for_length(4096), model);

    std::vector<halyard::frequencies> others;
    others.push_back(halyard::frequencies::from_base(10000, 128));
    others.push_back(make_frequencies({1.0, 0.25, -3.0}, 1.5));
    others.push_back(read_good(read_fixture("qwen2.5-7b-yarn")).frequencies);
    others.push_back(read_good(read_fixture("qwen2-vl-7b"), "vision").frequencies);
    for (const auto &each : others) {
        CHECK(each.info().first_seq_len == 0);
        CHECK(each.info().last_seq_len == most_tokens);
        check_same(each.for_length(1 << 20), each);
    }
}

TEST_CASE("lengths: arguments are checked", "[angles][errors]") {
    const auto good = halyard::frequencies::from_scaling(dynamic_ntk());
    const auto other = halyard::frequencies::from_base(10000, 64);  // of the same at any length
    auto *const untouched = reinterpret_cast<halyard_frequencies *>(16);
    halyard_frequencies *out = untouched;
    for (const std::int64_t seq_len : {std::int64_t{-1}, most_tokens + 1, INT64_MIN, INT64_MAX}) {
        for (const auto *const from : {&good, &other}) {
            check_refused(HALYARD_ERROR_SHAPE, {"seq_len is " + text(seq_len)}, [&](auto *error) {
                return halyard_create_frequencies_for_length(from->get(), seq_len, &out, error);
            });
        }
    }
    check_refused(HALYARD_ERROR_NULL_POINTER, {"frequencies"},
                  [&](auto *error) { return halyard_create_frequencies_for_length(nullptr, 1, &out, error); });
    check_refused(HALYARD_ERROR_NULL_POINTER, {"out"},
                  [&](auto *error) { return halyard_create_frequencies_for_length(good.get(), 1, nullptr, error); });
    CHECK(out == untouched);
}
