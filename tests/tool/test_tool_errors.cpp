// What the tool refuses, and what it leaves behind when it fails. The files themselves are for test_npy.cpp, models'
// configs for tests/config, and shapes and values for the tests of the library.
#include "tool/run_tool.h"

#include <sys/stat.h>

#include <cmath>
#include <sstream>

namespace {

/// Three tokens of two heads of eight columns, and files that go with them, or do not.
struct Files : ToolFolder {
    Files() {
        const auto zeros = [&](const std::string &name, const Shape &shape, std::size_t n) {
            ::write(*this, name, shape, std::vector<std::int32_t>(n));
        };
        const auto floats = [&](const std::string &name, const Shape &shape, std::size_t n, const char *descr = "<f4") {
            ::write(*this, name, shape, make_values(n), descr);
        };
        floats("x.npy", {3, 2, 8}, 48);
        floats("b.npy", {2, 3, 1, 8}, 48);
        floats("two.npy", {6, 8}, 48);
        floats("five.npy", {1, 1, 3, 2, 8}, 48);
        floats("odd.npy", {3, 2, 7}, 42);
        floats("no_columns.npy", {3, 2, 0}, 0);
        floats("untyped.npy", {3, 4, 8}, 48, "<u2");
        floats("f2.npy", {3, 4, 8}, 48, "<f2");
        floats("bf16.npy", {3, 4, 8}, 48, "<V2");
        floats("cs.npy", {3, 2, 4}, 24);
        floats("cs2.npy", {2, 2, 4}, 16);
        floats("cs3.npy", {3, 3, 4}, 36);
        floats("cs5.npy", {3, 2, 5}, 30);
        floats("cs0.npy", {3, 2, 0}, 0);
        ::write<double>(*this, "f.npy", {4}, {1, 2, 3, 4});
        ::write<double>(*this, "f0.npy", {0}, {});
        ::write<double>(*this, "f5.npy", {5}, {1, 2, 3, 4, 5});
        ::write<double>(*this, "fn.npy", {4}, {1, 2, std::nan(""), 3});
        ::write<double>(*this, "square.npy", {2, 2}, {1, 2, 3, 4});
        ::write<std::int32_t>(*this, "p.npy", {3}, {1, 2, 3});
        ::write<std::int64_t>(*this, "p16.npy", {3}, {0, -1, 3});
        ::write<std::int64_t>(*this, "p31.npy", {3}, {5, std::int64_t{1} << 31, 0});
        ::write<std::int32_t>(*this, "axes.npy", {3, 3}, {0, 1, 2, 3, 4, 5, 0, 9, 8});
        ::write<std::int32_t>(*this, "rows.npy", {2, 3}, {0, 1, 2, 0, 7, 2});
        zeros("p0.npy", {}, 1);
        zeros("p2.npy", {2}, 2);
        zeros("many.npy", {1, 1, 3}, 3);
        for (const char *name : {"llama-2-7b", "gpt-j-6b", "deepseek-v3", "gemma-3-4b"}) {
            std::filesystem::create_symlink(places::configs() + "/" + name + ".json",
                                            *this / (name + std::string(".json")));
        }
        std::filesystem::resize_file(write("big.json", "{}"), (std::uintmax_t{1} << 26) + 1);
        std::filesystem::create_directory(*this / "folder");
        REQUIRE(mkfifo((*this / "pipe").c_str(), 0600) == 0);
    }
};

const std::string rotate = "rotate x.npy -o y.npy ";

/// Each command, which | parts, says the words.
void fail_all(int status, const std::string &before, const std::vector<std::pair<std::string, std::string>> &rows) {
    const Files dir;
    for (const auto &[commands, words] : rows) {
        std::istringstream stream(commands + "|");
        for (std::string command; std::getline(stream, command, '|');) {
            dir.fail(status, before + command, words);
        }
    }
}

/// Each option with each of its values, which spaces part.
void fail_values(int status, const std::vector<std::pair<std::string, std::string>> &options) {
    const Files dir;
    for (const auto &[option, values] : options) {
        for (const auto &value : split(values)) {
            dir.fail(status, rotate + option + " " + (value.empty() ? "''" : value));
        }
    }
}

}  // namespace

TEST_CASE("tool: wrong usage has exit status 2", "[tool]") {
    fail_all(2, "",
             {{"", "a command is needed"},
              {"spin", "'spin' is no command"},
              {"--spin", "'--spin' is no command"},
              {"list --yaml|list explain|rotate x.npy|rotate -o y.npy|angles --rotary-dim 8 -o y.npy|"
               "angles --rotary-dim 8 --positions 0:3|angles --positions 0:3 -o y.npy|frequencies --base 100|"
               "frequencies --rotary-dim 8 --seq-len 8|explain --head-dim big",
               ""}});
    fail_all(2, rotate,
             {{"--spin=3", "--spin=3"},
              {"more.npy", "more.npy"},
              {"--base|--base 100 --base 100|--base 100 --inv-freq f.npy|--base 100 --config gpt-j-6b.json", "--base"},
              {"--inv-freq f.npy --config gpt-j-6b.json", "--inv-freq"},
              {"--attention-factor 1.5|--config gpt-j-6b.json --attention-factor 1", "--attention-factor"},
              {"--layer-type full_attention|--config gpt-j-6b.json --layer-type ''", "--layer-type"},
              {"--layer 0|--config gpt-j-6b.json --layer -1", "--layer"},
              {"--config gpt-j-6b.json --seq-len 0", "--seq-len"}});
    fail_all(2, rotate + "--cos-sin cs.npy ",
             {{"--config gpt-j-6b.json|--positions p.npy|--base 100|--inv-freq f.npy|--max-position 5|--angles table",
               "--cos-sin"}});
    fail_values(2,
                {{"--base", "ten 1e4x nan inf 1e999 ''"},
                 {"--inv-freq", "''"},
                 {"--rotary-dim", "8.0 99999999999999999999 0x8"},
                 {"--pairing", "Half neox"},
                 {"--dtype", "f64"},
                 {"--layout", "sbhd"},
                 {"--threads", "0 1025 -1 two"},
                 {"--bad-position", "wrap"},
                 {"--max-position", "0 2147483649 x"},
                 {"--angles", "exact"},
                 {"--reference", "torch ggml_f32"},
                 {"--axis-map", "16,24,24 sections: sections:1,,2"},
                 {"--target", "''"},
                 {"--positions", "3 : 0: :3 0:3:1 0:x 0.0:3.0 3:0 '' 2147483646:2147483649 -2147483649:-2147483646"}});
    Files().fail(2, Arguments{"rotate", "x.npy", "-o", "y.npy", "--positions", "0: 3"});
}

TEST_CASE("tool: what can't be done has exit status 1", "[tool]") {
    fail_values(
        1, {{"--dtype", "f16"},
            {"--layout", "bhsd"},
            {"--rotary-dim", "7 0 -2"},
            {"--inv-freq", "missing.npy f5.npy p.npy square.npy"},
            {"--positions", "missing.npy 0:4 0:2 x.npy bf16.npy p2.npy p0.npy rows.npy many.npy axes.npy"},
            {"--cos-sin", "missing.npy p.npy cs2.npy cs3.npy cs5.npy cs0.npy"},
            {"--cos-sin cs.npy --rotary-dim", "6 9"},
            {"--target", "cuda_sm80"},
            {"--positions axes.npy --axis-map", "sections:2,1,-1 sections:2,2 sections:0,0,0,2,2 interleaved:0,4,0"},
            {"--axis-map sections:2,1,1 --positions", "p.npy 0:3"},
            {"--config", "llama-2-7b.json gemma-3-4b.json missing.json folder /dev/zero big.json x.npy"}});
    for (const char *input : {"missing.npy", "./", "f.npy", "two.npy", "five.npy", "odd.npy", "no_columns.npy",
                              "untyped.npy", "line\nbreak\x1b.npy"}) {
        Files().fail(1, Arguments{"rotate", input, "-o", "y.npy"});
    }
    const Files dir;
    for (const std::string &output : Arguments{"folder", "missing/y.npy", "pipe", "/proc/halyard.npy"}) {
        dir.fail(1, "rotate x.npy -o " + output);
        dir.fail(1, "angles --positions p.npy --rotary-dim 8 -o " + output);
    }
}

TEST_CASE("tool: what is said names the argument and its value", "[tool]") {
    const std::string beyond = "positions of 32 bits are -2147483648 to 2147483647";
    fail_all(
        1, rotate,
        {{"--max-position 3 --positions p.npy",
          "token 2 has position 3 in 'p.npy', but --max-position 3 allows 0 to 2 (see --bad-position)"},
         {"--max-position 6 --positions p16.npy", "token 1 has position -1 in"},
         {"--max-position 1", "token 1 has position 1, but --max-position 1 allows 0 to 0"},
         {"--positions p31.npy", "has position 2147483648 in 'p31.npy', but " + beyond},
         {"--angles phase --positions p31.npy", "positions of 32 bits are"},
         {"--axis-map sections:2,1,1 --max-position 9 --positions axes.npy", "token 1 has position 9 on axis 2 in"},
         {"--rotary-dim 10", "10 elements from there are not inside a head_dim of 8"},
         {"--rotary-offset 9223372036854775807", "rotary_offset is 9223372036854775807"},
         {"--base 1e-300", "base is 1e-300"},
         {"--inv-freq f0.npy --rotary-dim 0", "f0.npy' holds no inverse frequency"},
         {"--inv-freq fn.npy", "inv_freq[2] is nan"},
         {"--inv-freq f.npy --rotary-dim 9", "holds 4 inverse frequencies, for a rotary_dim of 8, not 9"},
         {"--inv-freq f.npy --attention-factor 0", "attention_factor is 0"},
         {"--target nothing", "target is \"nothing\", which is none of x86"},
         {"--axis-map sections:2,1,2 --positions axes.npy", "axis_counts add up to 5"},
         {"--reference hf_f32 --angles phase", "reference is HALYARD_REFERENCE_HF_F32"},
         {"--in-place --out-pairing interleaved", "y[0].data shares elements with x[0].data"},
         {"--config gpt-j-6b.json --rotary-dim 32", "makes a rotary_dim of 64, but --rotary-dim is 32"},
         {"--config gemma-3-4b.json --layer-type global", "(see --layer-type and --layer)"}});
    fail_all(
        1, "",
        {{"rotate b.npy -o y.npy --max-position 7 --positions rows.npy", "token 1 of batch row 1 has position 7 in"},
         {"rotate bf16.npy -o y.npy", "save its bits, x.view('<u2'), and say --dtype bf16"},
         {"rotate f2.npy -o y.npy --dtype f32", "holds <f2, but --dtype says f32"},
         {"angles --rotary-dim 8 -o y.npy --positions p31.npy", beyond + "\n"},
         {"angles --rotary-dim 8 -o y.npy --positions rows.npy", "has shape [2, 3], but 'angles' needs positions"},
         {"angles --config gemma-3-4b.json --positions 0:3 -o y.npy", "layer_type"},
         {"explain --rotary-offset 3", "rotary_offset is 3"},
         {"explain --head-dim 7", "rotary_dim is 7"},
         {"frequencies --inv-freq missing.npy", "missing.npy"},
         {"frequencies --config llama-2-7b.json --seq-len 9223372036854775807",
          "seq_len is 9223372036854775807, but it must be"}});
    CHECK(ToolFolder().succeed("explain --target nothing").find("target is \"nothing\"") != std::string::npos);
}

TEST_CASE("tool: a failure leaves an existing output alone", "[tool]") {
    const ToolFolder dir;
    write(dir, "x.npy", {3, 2, 8}, make_values(48));
    dir.write("y.npy", "precious");
    dir.fail(1, rotate + "--rotary-dim 10");
    dir.fail(1, rotate + "--max-position 1");
    CHECK(dir.read("y.npy") == "precious");
    dir.succeed(rotate);
    dir.succeed("rotate x.npy -o x.npy");  // the output may be the input
    CHECK(dir.read("x.npy") == dir.read("y.npy"));
    CHECK(dir.count_entries() == 2);
}

TEST_CASE("tool: a broken standard output is an error", "[tool]") {
    for (const char *command : {"list", "list --json", "explain", "frequencies --rotary-dim 8", "--help"}) {
        const auto result = ToolFolder().run(command, {.output = "/dev/full"});
        CHECK(result.status == 1);
        CHECK(result.errors.starts_with("halyard: "));
    }
}
