// Tests of the bench: what it times, how it reads its files, and that a peer that misbehaves does no harm.
#include "checks/scratch_dir.h"
#include "measure/rotation.h"
#include "report/table.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

using namespace halyard;
using namespace halyard::bench;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

std::vector<Model> read(const std::string &text) {
    std::istringstream stream(text);
    return read_models(stream);
}

std::vector<Model> shipped_models() {
    std::ifstream file(HALYARD_SOURCE_DIR "/bench/shapes.txt");
    return read_models(file);
}

Work small_work(dtype type = dtype::f32, bool in_place = false) {
    return {{"small", 2, 1, 16, 16, pairing::half, pairing::half}, 3, type, in_place};
}

constexpr Effort hardly_any = {3, 1e-6};

std::vector<std::string> fake_peers(const char *mode) { return {"python3", HALYARD_FAKE_PEERS, mode}; }

std::string why_absent(const Peers &peers, const std::string &name) {
    for (const json &peer : peers.list()["absent"]) {
        if (peer["name"] == name) {
            return peer["why"];
        }
    }
    return "";
}

}  // namespace

TEST_CASE("bench: shapes are read, and refused with the line's number") {
    const auto models = read("# a comment\n\nphi 32 4 80 32 half somewhere/phi, and more words\n"
                             "back 1 0 8 8 interleaved_to_half x\n");
    REQUIRE(models.size() == 2);
    CHECK(models[0].name == "phi");
    CHECK(models[0].n_heads() == 36);
    CHECK(models[0].head_dim == 80);
    CHECK(models[0].rotary_dim == 32);
    CHECK(models[0].in == pairing::half);
    CHECK(models[1].in == pairing::interleaved);
    CHECK(models[1].out == pairing::half);
    for (const char *bad : {"phi 32 4 80 32 half", "phi 32 4 80 32 quarter x", "phi 32 4 80 82 half x",
                            "phi 32 4 80 31 half x", "phi 0 4 80 32 half x", "phi 32 -1 80 32 half x",
                            "phi 32 4 eighty 32 half x", "phi 32 4 99999999 32 half x"}) {
        CAPTURE(bad);
        CHECK_THROWS_WITH(read(std::string("# first\n") + bad + "\n"), ContainsSubstring("line 2 "));
    }
    CHECK_THROWS_WITH(read("a 1 1 8 8 half x\na 2 1 8 8 half x\n"), ContainsSubstring("second time"));
}

TEST_CASE("bench: every work has a name of its own, and filters select by it") {
    const auto models = shipped_models();
    const auto all = list_works(models, {});
    std::set<std::string> names;
    for (const Work &work : all) {
        names.insert(work.name());
    }
    CHECK(names.size() == all.size());
    CHECK(names.count("half_f32_in_place/llama-3-8b/64/cold") == 1);
    CHECK(names.count("interleaved_to_half_bf16/llama-3-8b-from-meta/4096/hot") == 1);
    CHECK(names.count("half_bf16_in_place/llama-3-8b/512/hot/phase") == 1);
    CHECK(names.count("interleaved_to_half_bf16_in_place/llama-3-8b-from-meta/64/hot") == 0);

    // In place and out of place at four sizes. Names of rows with other angle sources have another end.
    const auto some = list_works(models, {false, "half_f32*/llama-3-8b/*/hot", {1}});
    CHECK(some.size() == 8);
    CHECK(std::all_of(some.begin(), some.end(), [](const Work &work) {
        return work.type == dtype::f32 && work.model.name == "llama-3-8b" && !work.cold &&
               work.angles == HALYARD_ANGLES_TABLE;
    }));
    CHECK(list_works(models, {false, "no such thing", {1}}).empty());
    // What a call costs, where rows are in no cache, and what peers are asked, in quick runs as well.
    for (const char *name :
         {"half_f32_in_place/llama-3-8b-one-head/1/hot", "half_f16_in_place/llama-3-8b/1/hot/q-and-k",
          "half_bf16_in_place/llama-3-8b-k/64/hot/cold-table", "half_f16_in_place/llama-3-8b/4096/hot",
          "interleaved_f16_in_place/llama-3-8b-meta/1/hot"}) {
        CAPTURE(name);
        CHECK(names.count(name) == 1);
        CHECK(list_works(models, {true, name, {1}}).size() == 1);
    }

    const auto quick_works = list_works(models, {true, "*", {1}});
    CHECK(quick_works.size() < all.size() / 5);
    CHECK(std::all_of(quick_works.begin(), quick_works.end(),
                      [&](const Work &work) { return names.count(work.name()) == 1; }));
    const auto threaded = list_works(models, {true, "*", {1, 2}});
    CHECK(threaded.size() == 2 * quick_works.size());
    CHECK(threaded.back().name().ends_with("/2-threads"));
}

TEST_CASE("bench: the bytes of a work are those that it has to touch") {
    Work work = {{"phi-2", 2, 2, 80, 32, pairing::half, pairing::half}, 10, dtype::bf16};
    CHECK(work.tensor_bytes() == 10 * 4 * 80 * 2);
    CHECK(work.n_bytes() == 2 * 10 * 4 * 32 * 2);
    work.in_place = false;
    CHECK(work.n_bytes() == 2 * 10 * 4 * 80 * 2);
}

TEST_CASE("bench: an interruption does not make few calls look enough") {
    for (const int n_interruptions : {0, 1, 2}) {
        CAPTURE(n_interruptions);
        int interruptions = 0;
        long n_timed = 0;
        std::vector<Subject> subjects = {{"short", [&](long n_calls) {
                                              if (interruptions++ < n_interruptions) {
                                                  return 1.0;
                                              }
                                              n_timed = n_calls;
                                              return 1e-6 * static_cast<double>(n_calls);
                                          }}};
        measure(subjects, {5, 1e-3});
        REQUIRE(subjects[0].seconds.size() == 5);
        CHECK(summarise(subjects[0].seconds).median == Catch::Approx(1e-6));
        CHECK(n_timed >= 1000);
    }
}

TEST_CASE("bench: results are checked, and a row has all its fields") {
    for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
        for (const bool in_place : {false, true}) {
            for (const Model &model : {Model{"m", 2, 1, 16, 16, pairing::half, pairing::half},
                                       Model{"m", 2, 1, 20, 8, pairing::interleaved, pairing::interleaved},
                                       Model{"m", 2, 1, 16, 16, pairing::half, pairing::interleaved},
                                       Model{"m", 2, 1, 16, 16, pairing::interleaved, pairing::half}}) {
                const Work work = {model, 70, type, in_place};
                CAPTURE(work.name());
                if (in_place && model.in != model.out) {
                    continue;
                }
                const Arena arena(PlacedWork::bytes_needed(work));
                Setting setting;
                setting.effort = hardly_any;
                const Row row = measure_row(work, arena, setting);
                CHECK_FALSE(row.wrong);
                CHECK(row.max_error > 0.0);
                for (const Rival &rival : row.rivals) {
                    CAPTURE(rival.name);
                    CHECK(rival.max_error < 0.01);
                    CHECK_FALSE(rival.wrong);
                }
                const json value = to_json(row);
                for (const char *key : {"name", "kernel", "model", "tokens", "dtype", "ratio", "median_seconds",
                                        "spread_seconds", "memory", "rivals", "bytes", "max_error", "threads"}) {
                    CHECK(value.contains(key));
                }
                CHECK(value["kernel"] == "halyard_rotate_" + work.kernel() + "_" + row.target);
                CHECK(value["rivals"].size() == row.rivals.size());
                CHECK(value["ratio"].get<double>() > 0.0);
            }
        }
    }
}

TEST_CASE("bench: a result that is another one is seen") {
    const Work work = small_work();
    const Arena arena(PlacedWork::bytes_needed(work));
    const PlacedWork placed(work, arena);
    placed.reset();
    CHECK_FALSE(placed.max_error(placed.y(0)) <= 1.0);  // poison
    std::vector<float> y(3 * 3 * 16);
    std::copy_n(reinterpret_cast<const float *>(placed.x(0)), y.size(), y.begin());
    CHECK(placed.max_error(y.data()) > 0.5);  // not rotated
}

TEST_CASE("bench: threads share the work, the loops' and the ceilings' too") {
    Work work = {{"m", 2, 1, 16, 16, pairing::half, pairing::half}, 70, dtype::f32, false};
    work.n_threads = 3;
    const Arena arena(PlacedWork::bytes_needed(work));
    Setting setting;
    setting.effort = hardly_any;
    setting.pools.emplace(3, std::make_unique<pool>(3));
    const Row row = measure_row(work, arena, setting);
    CHECK_FALSE(row.wrong);
    for (const Rival &rival : row.rivals) {
        CAPTURE(rival.name);
        CHECK_FALSE(rival.wrong);
    }
    CHECK(row.best(Rival::Kind::one_thread) != nullptr);
}

TEST_CASE("bench: a bound run is timed beside a run of one token, and is no rival that one can lose to") {
    for (const auto &[n_tokens, apart] : {std::pair(1, false), {1, true}, {2, false}}) {
        Work work = {{"m", 2, 1, 16, 16, pairing::half, pairing::half}, n_tokens, dtype::bf16, true};
        work.apart = apart;
        const Arena arena(PlacedWork::bytes_needed(work));
        Setting setting;
        setting.effort = hardly_any;
        Row row = measure_row(work, arena, setting);
        CHECK_FALSE(row.wrong);
        for (const Rival::Kind kind : {Rival::Kind::bound, Rival::Kind::kernels}) {
            const Rival *const rival = row.best(kind);
            CHECK((rival != nullptr) == (n_tokens == 1));
            CHECK((rival == nullptr || rival->max_error == row.max_error));
        }
        CHECK(to_json(row)["tensors"] == (apart ? 2 : 1));
        CHECK((format_rows({row}).find("ns over kernels") != std::string::npos) == (n_tokens == 1));
        std::erase_if(row.rivals, [](const Rival &rival) { return rival.kind != Rival::Kind::bound; });
        row.timing = {1.0, 0.0, 1.0};
        for (Rival &rival : row.rivals) {
            rival.timing = {0.5, 0.0, 0.5};
        }
        CHECK_FALSE(row.loses());
        CHECK((format_rows({row}).find("x bound") != std::string::npos) == (n_tokens == 1));
    }
}

TEST_CASE("bench: calls on a cold table read all of it, and other sources of angles take the same positions") {
    Work work = small_work(dtype::bf16, true);
    work.n_tokens = 64;
    work.cold_table = true;
    const Arena arena(PlacedWork::bytes_needed(work));
    PlacedWork placed(work, arena);
    std::vector<std::int64_t> positions = placed.positions();
    CHECK(positions.size() == 64 * placed.slots().size());
    CHECK(placed.x(placed.next_slot()) == placed.x(placed.next_slot()));
    CHECK_FALSE(std::ranges::is_sorted(positions));
    std::ranges::sort(positions);
    for (std::size_t i = 0; i < positions.size(); i++) {
        REQUIRE(positions[i] == static_cast<std::int64_t>(i));
    }
    for (const std::int32_t angles : {HALYARD_ANGLES_TABLE, HALYARD_ANGLES_FACTORED, HALYARD_ANGLES_PHASE}) {
        CAPTURE(angles);
        const Rotation rotation(placed, nullptr, nullptr, angles);
        placed.reset();
        rotation.run(0);
        CHECK(placed.max_error(placed.y(0)) <= placed.promised_error() + 0x1p-22);
        placed.reset();
        rotation.run(1);
        CHECK(placed.max_error(placed.y(0)) > 0.1);  // the second call has other positions
    }

    Setting setting;
    setting.effort = hardly_any;
    const Row row = measure_row(work, arena, setting);
    CHECK_FALSE(row.wrong);
    CHECK(row.best(Rival::Kind::angles) != nullptr);
    CHECK(row.best(Rival::Kind::loop) == nullptr);
    CHECK(to_json(row)["cold"] == true);
    const std::string text = format_rows({row});
    CHECK_THAT(text, ContainsSubstring("x phase") && ContainsSubstring("x factored"));
}

TEST_CASE("bench: the program writes its rows, and says in one line what it can't do") {
    const ScratchDir dir;
    const auto quoted = [&](const char *file) { return std::string("'").append(dir / file).append("'"); };
    const auto status_of = [&](const std::string &arguments) {
        const std::string command =
            "'" HALYARD_BENCH_PATH "' " + arguments + " >" + quoted("out") + " 2>" + quoted("err");
        return WEXITSTATUS(std::system(command.c_str()));
    };
    const std::string run = quoted("run.json");
    const std::string name = "half_f32_in_place/llama-3-8b/1/hot", one_row = "--quick --filter '" + name + "'";
    REQUIRE(status_of(one_row + " --json " + run) == 0);
    const json record = load_json(dir / "run.json");
    REQUIRE(record["rows"].size() == 1);
    CHECK(record["rows"][0]["name"] == name);
    for (const char *key : {"cpu", "caches", "governor", "compiler", "halide", "commit", "date"}) {
        CHECK_FALSE(record["machine"][key].get<std::string>().empty());
    }
    CHECK(record["budget"].size() >= 1);
    CHECK(record["command"] == "./run bench " + one_row);
    CHECK(status_of("compare " + run + " " + run) == 0);

    const std::string with_floors = one_row + " --floors " + quoted("floors.json");
    REQUIRE(status_of(with_floors + " --write-floors") == 0);
    json floors = load_json(dir / "floors.json");
    json &floor = floors[record["machine"]["family"].get<std::string>()][record["rows"][0]["target"].get<std::string>()]
                        ["rows"][name];
    REQUIRE(floor.is_number());
    for (const auto &[ratio, status] : {std::pair(1e-3, 0), std::pair(1e3, 1)}) {
        floor = ratio;
        save_json(dir / "floors.json", floors);
        CHECK(status_of(with_floors + " --check-floors") == status);
        CHECK_THAT(dir.read("out"), ContainsSubstring("1 of 1 ratios have a floor"));
        const bool says_so = dir.read("out").find("below its floor: " + name) != std::string::npos;
        CHECK(says_so == (status == 1));
    }

    const auto n_entries = dir.count_entries();
    for (const std::string &refused : {"--filter 'nothing*' --json " + quoted("new.json"),
                                       one_row + " --target no_such_target", one_row + " --json /no/such/folder/file",
                                       std::string("--shapes /no/such/file"), "compare /no/such/file " + run}) {
        CAPTURE(refused);
        CHECK(status_of(refused) == 1);
        CHECK(dir.read("out").empty());
        CHECK(dir.read("err").starts_with("halyard_bench: "));
        CHECK(std::ranges::count(dir.read("err"), '\n') == 1);
    }
    CHECK(status_of("--no-such-flag") == 2);
    CHECK(status_of("--threads 0") == 2);
    CHECK(dir.count_entries() == n_entries);
}

TEST_CASE("bench: peers are checked and timed, and those that fail become absent") {
    const Work work = small_work();
    const Arena arena(PlacedWork::bytes_needed(work));
    Peers peers(fake_peers("good"), arena, 2.0);
    Setting setting;
    setting.effort = hardly_any;
    setting.peers = &peers;
    for (int again = 0; again < 2; again++) {
        CAPTURE(again);
        const Row row = measure_row(work, arena, setting);
        const Rival *const best = row.best(Rival::Kind::peer);
        REQUIRE(best != nullptr);
        CHECK(best->name == "right");
        CHECK(best->max_error < 1e-6);
        CHECK(best->timing.median == 1e-5);
        CHECK(best->overhead_seconds == 1e-5);
        for (const Rival &rival : row.rivals) {
            if (rival.kind == Rival::Kind::peer) {
                CHECK(rival.wrong == (rival.name == "wrong"));
                CHECK((rival.timing.median > 0.0) == (rival.name == "right" || rival.name == "wrong"));
            }
        }
    }
    CHECK(why_absent(peers, "missing") == "is not installed");
    CHECK_THAT(why_absent(peers, "crash"), ContainsSubstring("ended"));
    CHECK_THAT(why_absent(peers, "hang"), ContainsSubstring("in time"));
    CHECK_THAT(why_absent(peers, "nonsense"), ContainsSubstring("without seconds"));
    CHECK(why_absent(peers, "decline") == "");
    CHECK(why_absent(peers, "right") == "");
    CHECK(peers.list()["refused"] == json::array({{{"name", "fussy"}, {"why", "not this"}}}));
}

TEST_CASE("bench: a process of peers that can't make ready is given up") {
    const Work work = small_work();
    const Arena arena(PlacedWork::bytes_needed(work));
    Peers peers(fake_peers("crash"), arena, 1.0);
    const PlacedWork placed(work, arena);
    for (int i = 0; i < 5; i++) {
        CHECK(peers.prepare(placed).empty());
    }
    CHECK_THAT(why_absent(peers, "every peer"), ContainsSubstring("no luck today"));
    CHECK(peers.list()["absent"].size() == 2);
}

TEST_CASE("bench: a process that is no process of peers is refused") {
    const Arena arena(4096);
    CHECK_THROWS_WITH(Peers(fake_peers("nonsense"), arena, 1.0), ContainsSubstring("nonsense: [\"what?\"]"));
    CHECK_THROWS_WITH(Peers({"/no/such/program"}, arena, 1.0), ContainsSubstring("can't be started"));
    CHECK_THROWS_WITH(Peers({"python3", "/no/such/script.py"}, arena, 1.0), ContainsSubstring("No such file"));
    CHECK_THROWS_WITH(Peers({"sleep", "9", "--"}, arena, 0.02), ContainsSubstring("of no use"));
}
