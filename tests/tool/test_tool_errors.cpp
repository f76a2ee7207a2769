// What the tool refuses, and what it leaves behind when it fails or is killed.
#include "tool/arrays.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

TEST_CASE("tool: wrong usage has exit status 2", "[tool]") {
    const ScratchDir dir;
    const auto x = write(dir, "x.npy", {3, 2, 8}, make_values(48));
    const auto f = write<double>(dir, "f.npy", {4}, {1, 2, 3, 4});
    const auto cs = write(dir, "cs.npy", {3, 2, 4}, make_values(24));
    const auto p = write<std::int32_t>(dir, "p.npy", {3}, {1, 2, 3});

    const auto y = " -o " + (dir / "y.npy");
    for (const std::string &command : Arguments{
             "", "spin", "--spin", "list --yaml", "list more", "list explain", "rotate", "rotate " + x, "rotate" + y,
             "angles --rotary-dim 8" + y, "angles --rotary-dim 8 --positions 0:3", "angles --positions 0:3" + y,
             "frequencies", "frequencies --base 100", "explain --head-dim big", "explain --dtype f64"}) {
        check_fails(2, split(command), dir);
    }

    const Arguments rotate = {"rotate", x, "-o", dir / "y.npy"};
    const std::vector<std::pair<std::string, Arguments>> wrong_values = {
        {"--base", {"ten", "1e4x", "nan", "inf", "1e999", ""}},
        {"--inv-freq", {""}},
        {"--rotary-dim", {"8.0", "99999999999999999999", "0x8"}},
        {"--rotary-offset", {"one"}},
        {"--pairing", {"Half", "neox"}},
        {"--out-pairing", {""}},
        {"--dtype", {"f64"}},
        {"--layout", {"sbhd"}},
        {"--threads", {"0", "1025", "-1", "two"}},
        {"--bad-position", {"wrap"}},
        {"--max-position", {"0", "2147483649", "x"}},
        {"--angles", {"exact"}},
        {"--reference", {"torch", "vllm", "ggml_f32"}},
        {"--axis-map", {"16,24,24", "sections:", "sections:1,,2"}},
        {"--seq-len", {"long"}},
        {"--config", {""}},
        {"--target", {""}},
        {"--positions", {":", "0:", ":3", "0:3:1", "0:x", "0.0:3.0", "3:0", "", "0: 3", "2147483646:2147483649"}},
        {"--positions", {"-2147483649:-2147483646", "99999999999999999999:3"}}};
    for (const auto &[option, values] : wrong_values) {
        for (const std::string &value : values) {
            check_fails(2, rotate + Arguments{option, value}, dir);
        }
    }
    // Options that are unknown, incomplete, given twice, or at odds with each other.
    for (const std::string &options : Arguments{"--spin",
                                                "extra.npy",
                                                "--base",
                                                "--base 100 --base 100",
                                                "--base 100 --inv-freq " + f,
                                                "--base 100 --config config.json",
                                                "--inv-freq " + f + " --config config.json",
                                                "--attention-factor 1.5",
                                                "--inv-freq " + f + " --attention-factor much",
                                                "--in-place --out-pairing interleaved",
                                                "--seq-len 4096",
                                                "--layer-type full_attention",
                                                "--config config.json --seq-len 0",
                                                "--config config.json --layer-type ''",
                                                "--config config.json --attention-factor 1",
                                                "--cos-sin " + cs + " --config config.json",
                                                "--cos-sin " + cs + " --positions " + p,
                                                "--cos-sin " + cs + " --base 100",
                                                "--cos-sin " + cs + " --inv-freq " + f,
                                                "--cos-sin " + cs + " --max-position 5",
                                                "--cos-sin " + cs + " --angles table",
                                                "--positions - --config -",
                                                "--inv-freq - --positions -"}) {
        check_fails(2, rotate + split(options), dir);
    }
}

TEST_CASE("tool: what can't be carried out has exit status 1", "[tool]") {
    const ScratchDir dir;
    const auto x = write(dir, "x.npy", {3, 2, 8}, make_values(48));
    const auto p = write<std::int32_t>(dir, "p.npy", {3}, {1, 2, 3});
    const auto f = write<double>(dir, "f.npy", {4}, {1, 2, 3, 4});
    const Arguments frequencies = {"--rotary-dim", "8"}, rotate = {"rotate", x, "-o", dir / "y.npy"};

    SECTION("the file") {
        const auto bytes = dir.read("x.npy");
        const std::vector<std::string> inputs = {
            dir / "missing.npy",
            dir / "",
            "/dev/null",
            dir.write("empty.npy", ""),
            dir.write("text.npy", "hello"),
            dir.write("short.npy", bytes.substr(0, bytes.size() - 1)),
            dir.write("long.npy", bytes + "x"),
            write<double>(dir, "f8.npy", {3, 2, 8}, std::vector<double>(48)),
            write<float>(dir, "big_endian.npy", {3, 2, 8}, make_values(48), ">f4"),
            write<float>(dir, "two.npy", {6, 8}, make_values(48)),
            write<float>(dir, "five.npy", {1, 1, 3, 2, 8}, make_values(48)),
            write<float>(dir, "odd.npy", {3, 2, 7}, make_values(42)),
            write<float>(dir, "no_columns.npy", {3, 2, 0}, {}),
            write<float>(dir, "untyped.npy", {3, 4, 8}, make_values(48), "<u2"),
            dir / "line\nbreak\x1b.npy",
            dir.write("fortran.npy", std::string(bytes).replace(bytes.find("False"), 5, "True "))};
        for (const auto &input : inputs) {
            check_fails(1, {"rotate", input, "-o", dir / "y.npy"}, dir);
        }
    }

    SECTION("the options with it") {
        const auto f2 = write<float>(dir, "f2.npy", {3, 4, 8}, make_values(48), "<f2");
        check_fails(1, {"rotate", f2, "-o", dir / "y.npy", "--dtype", "f32"}, dir);
        check_fails(1, {"rotate", f2, "-o", dir / "y.npy", "--dtype", "bf16"}, dir);
        const auto long_list = write<double>(dir, "long.npy", {5}, {1, 2, 3, 4, 5});
        const auto write_positions = [&](const char *name, const Shape &shape) {
            return write(dir, name, shape, std::vector<std::int32_t>(shape.empty() ? 1 : shape[0] * shape.back()));
        };
        const auto write_rows = [&](const char *name, const Shape &shape) {
            return write(dir, name, shape, make_values(static_cast<std::size_t>(shape[0] * shape[1] * shape[2])));
        };
        const std::vector<std::pair<std::string, Arguments>> wrong_values = {
            {"--dtype", {"f16"}},
            {"--layout", {"bhsd"}},
            {"--rotary-dim", {"7", "0", "-2", "10"}},
            {"--rotary-offset", {"2", "-2 --rotary-dim 4", "9223372036854775807 --rotary-dim 4"}},
            {"--base", {"0", "-1"}},
            {"--inv-freq", {"missing.npy", long_list, long_list + " --rotary-dim 8", p, f + " --attention-factor 0"}},
            {"--inv-freq",
             {write<double>(dir, "nan.npy", {4}, {1, 2, std::nan(""), 3}),
              write<double>(dir, "square.npy", {2, 2}, {1, 2, 3, 4})}},
            {"--positions", {"missing.npy", "0:4", "0:2", x, write_positions("p2.npy", {2})}},
            {"--positions",
             {write_positions("p0.npy", {}), write_positions("rows.npy", {2, 3}),
              write_positions("axes.npy", {1, 1, 3})}},
            {"--cos-sin", {"missing.npy", p, write_rows("cs2.npy", {2, 2, 4}), write_rows("cs3.npy", {3, 3, 4})}},
            {"--cos-sin",
             {write_rows("cs5.npy", {3, 2, 5}), write_rows("cs0.npy", {3, 2, 0}),
              write_rows("cs4.npy", {3, 2, 4}) + " --rotary-dim 6"}},
            {"--target", {"x86_nothing"}}};
        for (const auto &[option, values] : wrong_values) {
            for (const std::string &value : values) {
                check_fails(1, rotate + Arguments{option} + split(value), dir);
            }
        }
    }

    SECTION("a device that is not there") {
        const char *const folders = std::getenv("LD_LIBRARY_PATH");  // where the emulated driver may lie
        const std::string kept = folders != nullptr ? folders : "";
        unsetenv("LD_LIBRARY_PATH");
        for (const auto &target : nlohmann::json::parse(succeed({"list", "--json"}))) {
            const std::string name = target.at("name");
            if (name == "cuda_sm80" && !target.at("supported").get<bool>()) {
                check_fails(1, rotate + Arguments{"--target", name}, dir);
            }
        }
        setenv("LD_LIBRARY_PATH", kept.c_str(), 1);
    }

    SECTION("the output") {
        std::filesystem::create_directory(dir / "folder");
        const std::vector<std::string> outputs = {
            dir / "folder",      dir / "folder/",     dir / "missing/y.npy",      "/dev/null",
            dir / "x.npy/y.npy", "/proc/halyard.npy", dir / std::string(300, 'y')};
        for (const auto &output : outputs) {
            check_fails(1, {"rotate", x, "-o", output}, dir);
            CHECK(std::filesystem::is_empty(dir / "folder"));
            check_fails(1, Arguments{"angles", "--positions", p, "-o", output} + frequencies, dir);
        }
    }

    SECTION("angles and frequencies") {
        const auto rows = write<std::int32_t>(dir, "rows.npy", {1, 3}, {1, 2, 3});
        const auto beyond = write<std::int64_t>(dir, "beyond.npy", {1}, {std::int64_t(1) << 31});
        check_fails(1, Arguments{"angles", "--positions", rows, "-o", dir / "y.npy"} + frequencies, dir);
        check_fails(1, Arguments{"angles", "--positions", beyond, "-o", dir / "y.npy"} + frequencies, dir);
        check_fails(1, {"angles", "--positions", p, "-o", dir / "y.npy", "--rotary-dim", "7"}, dir);
        check_fails(1, {"frequencies", "--rotary-dim", "7"}, dir);
        check_fails(1, {"frequencies", "--rotary-dim", "6", "--inv-freq", f}, dir);
        check_fails(1, {"frequencies", "--inv-freq", dir / "missing.npy"}, dir);
        check_fails(1, {"explain", "--rotary-dim", "256"}, dir);
    }

    SECTION("axes, sources and references") {
        const auto axes = write<std::int32_t>(dir, "axes.npy", {3, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8});
        const std::string at_axes = " --positions " + axes;
        for (const std::string &options :
             Arguments{"--axis-map sections:2,1,2" + at_axes, "--axis-map sections:2,1,-1" + at_axes,
                       "--axis-map sections:2,2" + at_axes, "--axis-map sections:0,0,0,2,2" + at_axes,
                       "--axis-map interleaved:0,4,0" + at_axes, "--axis-map sections:2,1,1 --positions " + p,
                       "--axis-map sections:2,1,1 --positions 0:3", at_axes, "--angles phase --reference hf_f32",
                       "--angles factored --reference hf_f32"}) {
            check_fails(1, rotate + split(options), dir);
        }
    }
}

TEST_CASE("tool: what is said is of the command line", "[tool]") {
    const ScratchDir dir;
    const auto x = write(dir, "x.npy", {2, 2, 8}, make_values(32));
    const auto p = [&](const char *name, const std::vector<std::int64_t> &values) {
        return " --positions " + write<std::int64_t>(dir, name, {2}, values);
    };
    const auto axes = " --positions " + write<std::int32_t>(dir, "axes.npy", {3, 2}, {0, 1, 0, 1, 0, 9});
    const auto rows = " --positions " + write<std::int32_t>(dir, "rows.npy", {2, 2}, {0, 1, 0, 7});
    const auto list = [&](const char *name, const std::vector<double> &values) {
        return " --inv-freq " + write<double>(dir, name, {static_cast<std::int64_t>(values.size())}, values);
    };
    const auto rotate = "rotate " + x + " -o " + (dir / "y.npy");
    const auto rotate_batch = "rotate " + write(dir, "b.npy", {2, 2, 1, 8}, make_values(32)) + " -o " + (dir / "y.npy");
    const std::vector<std::pair<std::string, std::string>> said = {
        {"rotat " + x, "'rotat' is no command; is it rotate?"},
        {"plto", "'plto' is no command; is it plot?"},
        {"freq", "is it frequencies?"},
        {"spin", "'spin' is no command; there are list, explain, rotate, angles, frequencies, plot"},
        {"--spin", "'--spin' is no option here, where a command comes first"},
        {"", "a command is needed: list,"},
        {rotate + " --postions 0:2", "'--postions' is no option of 'rotate'; is it --positions?"},
        {rotate + " --spin=3", "'--spin' is no option of 'rotate'\n"},
        {rotate + " more.npy", "'more.npy' is one argument too many"},
        {rotate + " --base", "--base has no value"},
        {rotate + " --max-position 6" + p("p6.npy", {5, 6}),
         "token 1 has position 6 in '" + (dir / "p6.npy") +
             "', but --max-position 6 allows 0 to 5 (see --bad-position)"},
        {rotate + " --max-position 6" + p("p16.npy", {-1, 3}), "token 0 has position -1 in"},
        {rotate + " --max-position 1", "token 1 has position 1, but --max-position 1 allows 0 to 0"},
        {rotate + p("p31.npy", {5, std::int64_t{1} << 31}),
         "has position 2147483648 in '" + (dir / "p31.npy") +
             "', but positions of 32 bits are -2147483648 to 2147483647"},
        {rotate + " --angles phase" + p("p31.npy", {5, std::int64_t{1} << 31}), "positions of 32 bits are"},
        {rotate + " --axis-map sections:2,1,1 --max-position 9" + axes, "token 1 has position 9 on axis 2 in"},
        {rotate_batch + " --max-position 7" + rows, "token 1 of batch row 1 has position 7 in"},
        {"angles --rotary-dim 8 -o y.npy" + p("p31.npy", {5, std::int64_t{1} << 31}),
         "positions of 32 bits are -2147483648 to 2147483647\n"},
        {rotate + " --rotary-dim 10", "a rotary_dim of 10 and --rotary-offset 0 don't fit a head of 8 columns"},
        {rotate + " --rotary-offset 2", "a rotary_dim of 8 and --rotary-offset 2 don't fit a head of 8 columns"},
        {rotate + " --rotary-offset 9223372036854775807", "don't fit"},
        {rotate + " --base 0", "--base is 0"},
        {rotate + " --base 1e-300", "--base is 1e-300"},
        {rotate + list("f0.npy", {}) + " --rotary-dim 0", "f0.npy' holds no inverse frequency"},
        {rotate + list("fn.npy", {1, 0.5, std::nan(""), 0.1}), "in --inv-freq, inv_freq[2] is nan"},
        {rotate + list("f.npy", {1, 0.5, 0.2, 0.1}) + " --attention-factor 0", "--attention-factor is 0"},
        {rotate + " --target nothing", "--target is \"nothing\", which is none of x86"},
        {rotate + " --axis-map sections:2,1,2" + axes, "the numbers of --axis-map add up to 5"},
        {rotate + " --axis-map sections:2,-1,3" + axes, "the second number of --axis-map is -1"},
        {rotate + " --axis-map interleaved:0,0,4" + axes, "the third number of --axis-map is 4"},
        {rotate + " --reference hf_f32 --angles phase", "--reference is hf_f32, which --angles phase cannot"},
        {rotate + " --reference hf_f32 --angles factored", "--reference is hf_f32, which --angles factored cannot"},
        {rotate + " --reference vllm_f16 --angles phase", "--reference is vllm_f16, which --angles phase cannot"},
        {rotate + " --reference vllm_bf16 --base 0.5", "--reference is vllm_bf16, but the frequencies' base is 0.5"},
        {rotate + list("f.npy", {1, 0.5, 0.2, 0.1}) + " --reference ggml", "--reference is ggml, but the frequencies'"},
        {"explain --rotary-offset 3", "--rotary-offset 3"},
        {"explain --head-dim 7", "a head has 7 columns"},
        {"frequencies --config " HALYARD_CONFIG_DIR "/llama-2-7b.json --seq-len 9223372036854775807",
         "--seq-len is 9223372036854775807, but it must be"},
    };
    for (const auto &[command, words] : said) {
        const auto result = run_tool(split(command));
        INFO(command);
        CAPTURE(result.errors);
        CHECK((result.status == 1 || result.status == 2));
        CHECK(result.errors.find(words) != std::string::npos);
        CHECK(find_api_words(result.errors) == "");
        CHECK(std::count(result.errors.begin(), result.errors.end(), '\n') == result.status);
    }
    CHECK(!std::filesystem::exists(dir / "y.npy"));
    const auto explained = succeed({"explain", "--target", "nothing"});
    CHECK(explained.find("--target is \"nothing\"") != std::string::npos);
    // A position that is held needs no place of its own.
    succeed(split(rotate + " --max-position 6 --bad-position clamp" + p("p6.npy", {5, 6})));
}

TEST_CASE("tool: a failure leaves an existing output alone", "[tool]") {
    const ScratchDir dir;
    const auto x = write(dir, "x.npy", {3, 2, 8}, make_values(48));
    dir.write("y.npy", "precious");
    check_fails(1, {"rotate", x, "-o", dir / "y.npy", "--rotary-dim", "10"}, dir);
    check_fails(1, {"rotate", x, "-o", dir / "y.npy", "--max-position", "1"}, dir);
    CHECK(dir.read("y.npy") == "precious");
    succeed({"rotate", x, "-o", dir / "y.npy"});
    const auto y = bytes_of(dir / "y.npy");
    // The output may be the input.
    succeed({"rotate", x, "-o", x});
    CHECK(bytes_of(x) == y);
    CHECK(dir.count_entries() == 2);
}

TEST_CASE("tool: killed at any moment, it leaves a whole output, the old one or the new one", "[tool]") {
    const ScratchDir dir;
    const auto x = write(dir, "x.npy", {2048, 8, 128}, make_values(2048 * 8 * 128));
    const Arguments rotate = {"rotate", x, "-o", dir / "y.npy"};
    const Arguments kinds[] = {rotate, rotate + Arguments{"--inverse"}};
    std::string whole[2];
    std::chrono::nanoseconds usual{0};
    for (int kind = 0; kind < 2; kind++) {
        const auto start = std::chrono::steady_clock::now();
        succeed(kinds[kind]);
        usual = std::chrono::steady_clock::now() - start;
        whole[kind] = dir.read("y.npy");
    }
    int n_killed = 0;
    for (int i = 0; i < 24; i++) {
        const bool was_there = std::filesystem::exists(dir / "y.npy");
        n_killed += run_tool(kinds[i % 2], "", usual * i / 24).status == 128 + SIGKILL ? 1 : 0;
        CAPTURE(i, n_killed);
        if (was_there || std::filesystem::exists(dir / "y.npy")) {
            const auto y = dir.read("y.npy");
            CHECK((y == whole[0] || y == whole[1]));
        }
        if (i % 3 == 0) {
            std::filesystem::remove(dir / "y.npy");
        }
    }
    CHECK(n_killed > 0);
}

TEST_CASE("tool: a broken standard output is an error", "[tool]") {
    if (!std::filesystem::exists("/dev/full")) {
        SKIP("there is no /dev/full here");
    }
    const auto arguments = GENERATE(Arguments{"list"}, Arguments{"list", "--json"}, Arguments{"explain"},
                                    Arguments{"frequencies", "--rotary-dim", "8"}, Arguments{"--help"});
    const auto result = run_tool(arguments, "/dev/full");
    CHECK(result.status == 1);
    CHECK(result.errors.starts_with("halyard: "));
}
