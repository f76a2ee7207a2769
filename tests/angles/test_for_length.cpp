// for_length: frequencies of the same model for another context length, which must change as transformers changes them
// while a context grows. test_config_forms.cpp tests the range of lengths that a config's frequencies are for.
#include "checks/make_sources.h"
#include "checks/oracle.h"
#include "config/read_config.h"
#include "refused.h"

#include <catch2/catch_get_random_seed.hpp>

#include <filesystem>

namespace {

constexpr std::int64_t most_tokens = std::int64_t{1} << 53;

/// Checks that two frequencies objects are equal in everything.
void check_same(const halyard::frequencies &a, const halyard::frequencies &b) {
    REQUIRE(facts_of(a.info()) == facts_of(b.info()));
    for (std::int64_t k = 0; k < a.get()->n_pairs; k++) {
        CHECK(a.info().inv_freq[k] == b.info().inv_freq[k]);
        CHECK(
            (a.get()->inv_freq[k].hi == b.get()->inv_freq[k].hi && a.get()->inv_freq[k].lo == b.get()->inv_freq[k].lo));
        CHECK(a.get()->quarter_turns[k].value.lo == b.get()->quarter_turns[k].value.lo);
    }
}

/// Checks for several lengths that for_length gives the same frequencies as reading the config for that length, or that
/// both are refused. Does nothing if the model has no such layers.
void check_lengths(const std::string &text, const char *layer_type) {
    std::vector<halyard::frequencies> made;
    for (const std::int64_t seq_len : {0, 200000}) {
        auto outcome = read(text, layer_type, seq_len);
        if (outcome.status == HALYARD_OK) {
            made.push_back(std::move(outcome.frequencies));
        }
    }
    for (const std::int64_t seq_len : {std::int64_t{1}, std::int64_t{4096}, std::int64_t{4097}, std::int64_t{8193},
                                       std::int64_t{131072}, most_tokens, std::int64_t{0}}) {
        INFO(seq_len);
        const auto expected = read(text, layer_type, seq_len);
        for (auto &each : made) {
            if (expected.status != HALYARD_OK) {
                CHECK_THROWS_AS(each.for_length(seq_len), halyard::error);
                continue;
            }
            check_same(each.for_length(seq_len), expected.frequencies);
            each = each.for_length(seq_len);
        }
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

TEST_CASE("lengths: every config gives what it gives when it is read for that length", "[angles]") {
    for (const auto &file : std::filesystem::directory_iterator(places::configs())) {
        INFO(file.path());
        for (const char *layer_type : {static_cast<const char *>(nullptr), "full_attention", "vision"}) {
            check_lengths(golden::read_file(file.path()), layer_type);
        }
    }
    check_lengths(phi3("{'rope_scaling': {'short_mscale': 1.25, 'long_mscale': 1.5}}").dump(), nullptr);
    for (const auto &each : {halyard::frequencies::from_base(10000, 128), make_frequencies({1.0, 0.25, -3.0}, 1.5)}) {
        CHECK((each.info().first_seq_len == 0 && each.info().last_seq_len == most_tokens));
        check_same(each.for_length(1 << 20), each);
    }
}

TEST_CASE("lengths: dynamic NTK changes when transformers changes it", "[angles]") {
    oracle::Random random(Catch::getSeed());
    auto now = halyard::frequencies::from_scaling(dynamic_ntk());
    std::int64_t theirs = 1000;  // the length of transformers' current frequencies (dynamic_frequency_update)
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

TEST_CASE("lengths: arguments are checked", "[angles][errors]") {
    const auto dynamic = halyard::frequencies::from_scaling(dynamic_ntk());
    const auto base = halyard::frequencies::from_base(10000, 64);  // equal for all lengths
    const auto qwen = read_good(read_fixture("qwen-7b")).frequencies;
    auto *const untouched = reinterpret_cast<halyard_frequencies *>(16);
    halyard_frequencies *out = untouched;
    const auto refuse = [&](const halyard::frequencies &of, halyard_status status, std::int64_t seq_len,
                            const std::string &most = "") {
        check_refused(status, {"seq_len is " + text(seq_len), most}, [&](auto *error) {
            return halyard_create_frequencies_for_length(of.get(), seq_len, &out, error);
        });
        CHECK(out == untouched);
    };
    for (const std::int64_t seq_len : {std::int64_t{-1}, most_tokens + 1, INT64_MIN, INT64_MAX}) {
        refuse(dynamic, HALYARD_ERROR_SHAPE, seq_len);
        refuse(base, HALYARD_ERROR_SHAPE, seq_len);
    }
    refuse(qwen, HALYARD_ERROR_UNSUPPORTED, 8193, "8192");
}
