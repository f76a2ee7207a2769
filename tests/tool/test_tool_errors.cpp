// What the tool refuses, and what it leaves behind when it fails or is killed.
#include "tool/arrays.h"

#include <catch2/generators/catch_generators.hpp>

#include <sys/stat.h>

#include <cmath>

namespace {

/// Three tokens of two heads of eight columns, and files that go with them.
struct Files : ToolFolder {
    Files() {
        ::write(*this, "x.npy", {3, 2, 8}, make_values(48));
        ::write<double>(*this, "f.npy", {4}, {1, 2, 3, 4});
        ::write<std::int32_t>(*this, "p.npy", {3}, {1, 2, 3});
        ::write(*this, "cs.npy", {3, 2, 4}, make_values(24));
    }
};

const std::string rotate = "rotate x.npy -o y.npy";

using Options = std::vector<std::pair<std::string, Arguments>>;

/// Gives each option each of its values.
void fail_values(const ToolFolder &dir, int status, const Options &wrong) {
    for (const auto &[option, values] : wrong) {
        dir.fail_each(status, rotate + " " + option, values);
    }
}

}  // namespace

TEST_CASE("tool: wrong usage has exit status 2", "[tool]") {
    const Files dir;
    for (const char *command :
         {"", "spin", "--spin", "list --yaml", "list more", "list explain", "rotate", "rotate x.npy", "rotate -o y.npy",
          "angles --rotary-dim 8 -o y.npy", "angles --rotary-dim 8 --positions 0:3", "angles --positions 0:3 -o y.npy",
          "frequencies", "frequencies --base 100", "explain --head-dim big", "explain --dtype f64"}) {
        dir.fail(2, command);
    }
    fail_values(dir, 2,
                {{"--base", {"ten", "1e4x", "nan", "inf", "1e999", "''"}},
                 {"--inv-freq", {"''"}},
                 {"--rotary-dim", {"8.0", "99999999999999999999", "0x8"}},
                 {"--rotary-offset", {"one"}},
                 {"--pairing", {"Half", "neox"}},
                 {"--out-pairing", {"''"}},
                 {"--dtype", {"f64"}},
                 {"--layout", {"sbhd"}},
                 {"--threads", {"0", "1025", "-1", "two"}},
                 {"--bad-position", {"wrap"}},
                 {"--max-position", {"0", "2147483649", "x"}},
                 {"--angles", {"exact"}},
                 {"--reference", {"torch", "vllm", "ggml_f32"}},
                 {"--axis-map", {"16,24,24", "sections:", "sections:1,,2"}},
                 {"--seq-len", {"long"}},
                 {"--config", {"''"}},
                 {"--target", {"''"}},
                 {"--positions", {"3", ":", "0:", ":3", "0:3:1", "0:x", "0.0:3.0", "3:0", "''"}},
                 {"--positions", {"2147483646:2147483649", "-2147483649:-2147483646", "99999999999999999999:3"}}});
    dir.fail(2, Arguments{"rotate", "x.npy", "-o", "y.npy", "--positions", "0: 3"});
}

TEST_CASE("tool: options that are unknown, incomplete, given twice or at odds have exit status 2", "[tool]") {
    const Files dir;
    dir.fail_each(2, rotate,
                  {"--spin", "extra.npy", "--base", "--base 100 --base 100", "--base 100 --inv-freq f.npy",
                   "--base 100 --config config.json", "--inv-freq f.npy --config config.json", "--attention-factor 1.5",
                    "--inv-freq f.npy --attention-factor much", "--seq-len 4096", "--layer-type full_attention",
                    "--layer 0", "--config config.json --layer -1",
                   "--config config.json --seq-len 0", "--config config.json --layer-type ''",
                   "--config config.json --attention-factor 1"});
    dir.fail_each(2, rotate + " --cos-sin cs.npy",
                  {"--config config.json", "--positions p.npy", "--base 100", "--inv-freq f.npy", "--max-position 5",
                   "--angles table"});
}

TEST_CASE("tool: inputs that can't be had have exit status 1", "[tool]") {
    const Files dir;
    const auto bytes = dir.read("x.npy");
    dir.write("empty.npy", "");
    dir.write("text.npy", "hello");
    dir.write("short.npy", bytes.substr(0, bytes.size() - 1));
    dir.write("long.npy", bytes + "x");
    dir.write("fortran.npy", std::string(bytes).replace(bytes.find("False"), 5, "True "));
    write<double>(dir, "f8.npy", {3, 2, 8}, std::vector<double>(48));
    write<float>(dir, "big_endian.npy", {3, 2, 8}, make_values(48), ">f4");
    write<float>(dir, "two.npy", {6, 8}, make_values(48));
    write<float>(dir, "five.npy", {1, 1, 3, 2, 8}, make_values(48));
    write<float>(dir, "odd.npy", {3, 2, 7}, make_values(42));
    write<float>(dir, "no_columns.npy", {3, 2, 0}, {});
    write<float>(dir, "untyped.npy", {3, 4, 8}, make_values(48), "<u2");
    for (const char *input :
         {"missing.npy", "./", "/dev/null", "empty.npy", "text.npy", "short.npy", "long.npy", "fortran.npy", "f8.npy",
          "big_endian.npy", "two.npy", "five.npy", "odd.npy", "no_columns.npy", "untyped.npy", "line\nbreak\x1b.npy"}) {
        dir.fail(1, Arguments{"rotate", input, "-o", "y.npy"});
    }
    write<float>(dir, "bf16.npy", {3, 4, 8}, make_values(48), "<V2");
    dir.fail(1, "rotate bf16.npy -o y.npy", "save its bits, x.view('<u2'), and say --dtype bf16");
    dir.fail(1, "rotate x.npy -o y.npy --positions bf16.npy", "'<V2', but <i4 or <i8 is needed");
    write<float>(dir, "f2.npy", {3, 4, 8}, make_values(48), "<f2");
    dir.fail_each(1, "rotate f2.npy -o y.npy", {"--dtype f32", "--dtype bf16"});
}

TEST_CASE("tool: options that don't go with the input have exit status 1", "[tool]") {
    const Files dir;
    write<double>(dir, "long.npy", {5}, {1, 2, 3, 4, 5});
    write<double>(dir, "nan.npy", {4}, {1, 2, std::nan(""), 3});
    write<double>(dir, "square.npy", {2, 2}, {1, 2, 3, 4});
    write(dir, "p0.npy", {}, std::vector<std::int32_t>(1));
    write(dir, "p2.npy", {2}, std::vector<std::int32_t>(2));
    write(dir, "rows.npy", {2, 3}, std::vector<std::int32_t>(6));
    write(dir, "axes.npy", {1, 1, 3}, std::vector<std::int32_t>(3));
    write(dir, "cs2.npy", {2, 2, 4}, make_values(16));
    write(dir, "cs3.npy", {3, 3, 4}, make_values(36));
    write(dir, "cs5.npy", {3, 2, 5}, make_values(30));
    write(dir, "cs0.npy", {3, 2, 0}, make_values(0));
    fail_values(dir, 1,
                {{"--dtype", {"f16"}},
                 {"--layout", {"bhsd"}},
                 {"--rotary-dim", {"7", "0", "-2", "10"}},
                 {"--rotary-offset", {"2", "-2 --rotary-dim 4", "9223372036854775807 --rotary-dim 4"}},
                 {"--base", {"0", "-1"}},
                 {"--inv-freq",
                  {"missing.npy", "long.npy", "long.npy --rotary-dim 8", "f.npy --rotary-dim 9", "p.npy", "nan.npy",
                   "square.npy", "f.npy --attention-factor 0"}},
                 {"--positions", {"missing.npy", "0:4", "0:2", "x.npy", "p2.npy", "p0.npy", "rows.npy", "axes.npy"}},
                 {"--cos-sin",
                  {"missing.npy", "p.npy", "cs2.npy", "cs3.npy", "cs5.npy", "cs0.npy", "cs.npy --rotary-dim 6",
                   "cs.npy --rotary-dim 9"}},
                 {"--target", {"x86_nothing", "cuda_sm80"}},
                 {"--reference hf_f32 --angles", {"phase"}}});
    write<std::int32_t>(dir, "axes.npy", {3, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8});
    fail_values(dir, 1,
                {{"--positions axes.npy --axis-map",
                  {"sections:2,1,2", "sections:2,1,-1", "sections:2,2", "sections:0,0,0,2,2", "interleaved:0,4,0"}},
                 {"--axis-map sections:2,1,1 --positions", {"p.npy", "0:3"}},
                 {"--positions", {"axes.npy"}}});
}

TEST_CASE("tool: outputs, angles and frequencies that can't be had have exit status 1", "[tool]") {
    const Files dir;
    std::filesystem::create_directory(dir / "folder");
    REQUIRE(mkfifo((dir / "pipe").c_str(), 0600) == 0);
    for (const std::string &output : Arguments{"folder", "folder/", "missing/y.npy", "pipe", "x.npy/y.npy",
                                               "/proc/halyard.npy", std::string(300, 'y')}) {
        dir.fail(1, "rotate x.npy -o " + output);
        CHECK(std::filesystem::is_empty(dir / "folder"));
        dir.fail(1, "angles --positions p.npy --rotary-dim 8 -o " + output);
    }
    write<std::int32_t>(dir, "rows.npy", {1, 3}, {1, 2, 3});
    write<std::int64_t>(dir, "beyond.npy", {1}, {std::int64_t(1) << 31});
    dir.fail_each(1, "angles -o y.npy",
                  {"--positions rows.npy --rotary-dim 8", "--positions beyond.npy --rotary-dim 8",
                   "--positions p.npy --rotary-dim 7"});
    dir.fail_each(1, "frequencies", {"--rotary-dim 7", "--rotary-dim 6 --inv-freq f.npy", "--inv-freq missing.npy"});
    dir.fail(1, "explain --rotary-dim 256");
}

namespace {

struct SaidFiles : ToolFolder {
    SaidFiles() {
        ::write(*this, "x.npy", {2, 2, 8}, make_values(32));
        ::write(*this, "b.npy", {2, 2, 1, 8}, make_values(32));
        ::write<std::int64_t>(*this, "p6.npy", {2}, {5, 6});
        ::write<std::int64_t>(*this, "p16.npy", {2}, {-1, 3});
        ::write<std::int64_t>(*this, "p31.npy", {2}, {5, std::int64_t{1} << 31});
        ::write<std::int32_t>(*this, "axes.npy", {3, 2}, {0, 1, 0, 1, 0, 9});
        ::write<std::int32_t>(*this, "rows.npy", {2, 2}, {0, 1, 0, 7});
        ::write<double>(*this, "f0.npy", {0}, {});
        ::write<double>(*this, "fn.npy", {4}, {1, 0.5, std::nan(""), 0.1});
        ::write<double>(*this, "f.npy", {4}, {1, 0.5, 0.2, 0.1});
        std::filesystem::create_symlink(places::configs() + "/llama-2-7b.json", *this / "llama.json");
    }
};

}  // namespace

TEST_CASE("tool: what is said names the argument and its value", "[tool]") {
    const SaidFiles dir;
    const std::string beyond = "positions of 32 bits are -2147483648 to 2147483647";
    dir.fail_saying(2, "",
                    {{"spin", "'spin' is no command"},
                     {"--spin", "'--spin' is no command"},
                     {"", "a command is needed"},
                     {rotate + " --spin=3", "--spin=3"},
                     {rotate + " more.npy", "more.npy"},
                     {rotate + " --base", "--base"}});
    dir.fail_saying(
        1, rotate,
        {{"--max-position 6 --positions p6.npy",
          "token 1 has position 6 in 'p6.npy', but --max-position 6 allows 0 to 5 (see --bad-position)"},
         {"--max-position 6 --positions p16.npy", "token 0 has position -1 in"},
         {"--max-position 1", "token 1 has position 1, but --max-position 1 allows 0 to 0"},
         {"--positions p31.npy", "has position 2147483648 in 'p31.npy', but " + beyond},
         {"--angles phase --positions p31.npy", "positions of 32 bits are"},
         {"--axis-map sections:2,1,1 --max-position 9 --positions axes.npy", "token 1 has position 9 on axis 2 in"},
         {"--rotary-dim 10", "10 elements from there are not inside a head_dim of 8"},
         {"--rotary-offset 2", "rotary_offset is 2: 8 elements"},
         {"--rotary-offset 9223372036854775807", "rotary_offset is 9223372036854775807"},
         {"--base 0", "base is 0"},
         {"--base 1e-300", "base is 1e-300"},
         {"--inv-freq f0.npy --rotary-dim 0", "f0.npy' holds no inverse frequency"},
         {"--inv-freq fn.npy", "inv_freq[2] is nan"},
         {"--inv-freq f.npy --attention-factor 0", "attention_factor is 0"},
         {"--target nothing", "target is \"nothing\", which is none of x86"},
         {"--axis-map sections:2,1,2 --positions axes.npy", "axis_counts add up to 5"},
         {"--axis-map sections:2,-1,3 --positions axes.npy", "axis_counts[1] is -1"},
         {"--axis-map interleaved:0,0,4 --positions axes.npy", "axis_counts[2] is 4"},
         {"--reference hf_f32 --angles phase", "reference is HALYARD_REFERENCE_HF_F32"},
         {"--in-place --out-pairing interleaved", "y[0].data shares elements with x[0].data"}});
    dir.fail_saying(
        1, "",
        {{"rotate b.npy -o y.npy --max-position 7 --positions rows.npy", "token 1 of batch row 1 has position 7 in"},
         {"angles --rotary-dim 8 -o y.npy --positions p31.npy", beyond + "\n"},
         {"angles --rotary-dim 8 -o y.npy --positions rows.npy", "has shape [2, 2], but 'angles' needs positions"},
         {"explain --rotary-offset 3", "rotary_offset is 3"},
         {"explain --head-dim 7", "rotary_dim is 7"},
         {"frequencies --config llama.json --seq-len 9223372036854775807",
          "seq_len is 9223372036854775807, but it must be"}});
    CHECK(dir.succeed("explain --target nothing").find("target is \"nothing\"") != std::string::npos);
    // A position that is held needs no place of its own.
    dir.succeed(rotate + " --max-position 6 --bad-position clamp --positions p6.npy");
}

TEST_CASE("tool: a failure leaves an existing output alone", "[tool]") {
    const ToolFolder dir;
    write(dir, "x.npy", {3, 2, 8}, make_values(48));
    dir.write("y.npy", "precious");
    dir.fail_each(1, rotate, {"--rotary-dim 10", "--max-position 1"});
    CHECK(dir.read("y.npy") == "precious");
    dir.succeed(rotate);
    // The output may be the input.
    dir.succeed("rotate x.npy -o x.npy");
    CHECK(bytes_of(dir / "x.npy") == bytes_of(dir / "y.npy"));
    CHECK(dir.count_entries() == 2);
}

TEST_CASE("tool: a broken standard output is an error", "[tool]") {
    if (!std::filesystem::exists("/dev/full")) {
        SKIP("there is no /dev/full here");
    }
    const char *const command = GENERATE("list", "list --json", "explain", "frequencies --rotary-dim 8", "--help");
    const auto result = ToolFolder().run(command, {.output = "/dev/full"});
    CHECK(result.status == 1);
    CHECK(result.errors.starts_with("halyard: "));
}
