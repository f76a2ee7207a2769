// Commands that the tool must refuse. When it fails, it must leave no files behind. Bad .npy files are in test_npy.cpp,
// bad configs in tests/config, bad shapes and values in the library's tests.
#include "tool/run_tool.h"

#include <sys/stat.h>

#include <cmath>
#include <regex>
#include <sstream>

namespace {

/// A folder with x.npy (3 tokens, 2 heads, head_dim 8), and with good and bad files for the other options.
struct Files : ToolFolder {
    Files() {
        const std::tuple<const char *, const char *, Shape> zeros[] = {
            {"x.npy", "<f4", {3, 2, 8}},       {"b.npy", "<f4", {2, 3, 1, 8}},    {"two.npy", "<f4", {6, 8}},
            {"odd.npy", "<f4", {3, 2, 7}},     {"five.npy", "<f4", {1, 1, 3, 2, 8}}, {"none.npy", "<f4", {3, 2, 0}},
            {"untyped.npy", "<u2", {3, 4, 8}}, {"f2.npy", "<f2", {3, 4, 8}},      {"bf16.npy", "<V2", {3, 4, 8}},
            {"cs.npy", "<f4", {3, 2, 4}},      {"cs2.npy", "<f4", {2, 2, 4}},     {"cs3.npy", "<f4", {3, 3, 4}},
            {"cs5.npy", "<f4", {3, 2, 5}},     {"cs0.npy", "<f4", {}},            {"f0.npy", "<f8", {0}},
            {"f5.npy", "<f8", {5}},            {"square.npy", "<f8", {2, 2}},     {"p0.npy", "<i4", {}},
            {"p2.npy", "<i4", {2}},            {"many.npy", "<i4", {1, 1, 3}}};
        const std::vector<char> bytes(1024);
        for (const auto &[name, descr, shape] : zeros) {
            std::size_t n_bytes = static_cast<std::size_t>(descr[2] - '0');
            for (const std::int64_t n : shape) {
                n_bytes *= static_cast<std::size_t>(n);
            }
            halyard::tool::write_npy(*this / name, descr, shape, bytes.data(), n_bytes);
        }
        ::write<double>(*this, "f.npy", {4}, {1, 2, 3, 4});
        ::write<std::int32_t>(*this, "p.npy", {3}, {1, 2, 3});
        ::write<std::int64_t>(*this, "p16.npy", {3}, {0, -1, 3});
        ::write<std::int64_t>(*this, "p31.npy", {3}, {5, std::int64_t{1} << 31, 0});
        ::write<std::int32_t>(*this, "axes.npy", {3, 3}, {0, 1, 2, 3, 4, 5, 0, 9, 8});
        ::write<std::int32_t>(*this, "rows.npy", {2, 3}, {0, 1, 2, 0, 7, 2});
        add_config("gpt-j-6b");
        add_config("gemma-3-4b");
        std::filesystem::resize_file(write("big.json", "{}"), (std::uintmax_t{1} << 26) + 1);
        std::filesystem::create_directory(*this / "folder");
        REQUIRE(mkfifo((*this / "pipe").c_str(), 0600) == 0);
    }
};

const std::string rotate = "rotate x.npy -o y.npy ";

/// The beginning of bad commands, their endings (separated by `between`), and words of the error message.
struct BadCommand {
    std::string begin, ends, words = "";
    char between = '|';
};

/// Bad values of an option of `rotate`, separated by spaces.
BadCommand values(const std::string &option, const std::string &all, const std::string &words = "") {
    return {rotate + option + " ", all, words, ' '};
}

void fail_all(int status, const std::vector<BadCommand> &rows) {
    const Files dir;
    for (const auto &[begin, ends, words, between] : rows) {
        std::istringstream stream(ends + between);
        for (std::string end; std::getline(stream, end, between);) {
            dir.fail(status, begin + end, words);
        }
    }
}

}  // namespace

TEST_CASE("tool: wrong usage has exit status 2", "[tool]") {
    fail_all(2,
             {{"", "", "a command is needed"},
              {"", "spin|--spin", "spin' is no command"},
              {"list ", "--yaml|explain"},
              {"", "explain --head-dim big|rotate x.npy|rotate -o y.npy|angles --rotary-dim 8 -o y.npy|"
                   "angles --rotary-dim 8 --positions 0:3|angles --positions 0:3 -o y.npy|frequencies --base 100|"
                   "frequencies --rotary-dim 8 --seq-len 8"},
              {rotate, "--spin=3", "--spin=3"},
              {rotate, "more.npy", "more.npy"},
              {rotate, "--base|--base 100 --base 100|--base 100 --inv-freq f.npy|--base 100 --config gpt-j-6b.json",
               "--base"},
              {rotate, "--inv-freq f.npy --config gpt-j-6b.json", "--inv-freq"},
              {rotate, "--attention-factor 1.5|--config gpt-j-6b.json --attention-factor 1", "--attention-factor"},
              {rotate, "--layer-type full_attention|--config gpt-j-6b.json --layer-type ''", "--layer-type"},
              {rotate, "--layer 0|--config gpt-j-6b.json --layer -1", "--layer"},
              {rotate, "--config gpt-j-6b.json --seq-len 0", "--seq-len"},
              {rotate + "--cos-sin cs.npy ",
               "--config gpt-j-6b.json|--positions p.npy|--base 100|--inv-freq f.npy|--max-position 5|--angles table",
               "--cos-sin"},
              values("--base", "ten 1e4x nan inf 1e999 ''"),
              values("--inv-freq", "''"),
              values("--rotary-dim", "8.0 99999999999999999999 0x8"),
              values("--pairing", "Half neox"),
              values("--dtype", "f64"),
              values("--layout", "sbhd"),
              values("--threads", "0 1025 -1 two"),
              values("--bad-position", "wrap"),
              values("--max-position", "0 2147483649 x"),
              values("--angles", "exact"),
              values("--reference", "torch ggml_f32"),
              values("--axis-map", "16,24,24 sections: sections:1,,2"),
              values("--target", "''"),
              values("--positions", "3 : 0: :3 0:3:1 0:x 0.0:3.0 3:0 '' 2147483646:2147483649 -2147483649:-2147483646"),
              {rotate, "--positions '0: 3'"}});
}

TEST_CASE("tool: each option that takes a number or a word refuses others by its name", "[tool]") {
    const std::regex described(R"(^  (--[\w-]+) (N|NUMBER|\w+\|[\w|]+)\b)");
    const Files dir;
    std::size_t n_options = 0;
    for (const std::string command : {"explain", "rotate", "angles", "frequencies"}) {
        std::istringstream help(dir.succeed(command + " --help"));
        for (std::string line; std::getline(help, line);) {
            if (std::smatch option; std::regex_search(line, option, described)) {
                dir.fail(2, command + " " + option.str(1) + " 1e999", option.str(1) + ": '1e999' is not ");
                n_options++;
            }
        }
    }
    CHECK(n_options > 30);
}

TEST_CASE("tool: what can't be done has exit status 1", "[tool]") {
    fail_all(1, {values("--layout", "bhsd"),
                 values("--rotary-dim", "7 0 -2"),
                 values("--inv-freq", "missing.npy f5.npy p.npy square.npy"),
                 values("--positions", "missing.npy 0:4 0:2 x.npy bf16.npy p2.npy p0.npy rows.npy many.npy axes.npy"),
                 values("--cos-sin", "missing.npy p.npy cs0.npy cs2.npy cs3.npy cs5.npy none.npy"),
                 values("--cos-sin cs.npy --rotary-dim", "6 9"),
                 values("--target", "cuda_sm80"),
                 values("--positions axes.npy --axis-map", "sections:2,1,-1 sections:2,2 interleaved:0,4,0"),
                 values("--axis-map sections:2,1,1 --positions", "p.npy 0:3"),
                 values("--config", "gemma-3-4b.json missing.json folder /dev/zero big.json x.npy"),
                 {"rotate -o y.npy ", "missing.npy|./|f.npy|two.npy|five.npy|odd.npy|none.npy|untyped.npy|"
                                      "\"$(printf 'line\\nbreak\\033.npy')\""},
                 {"rotate x.npy -o ", "folder|missing/y.npy|pipe|/proc/halyard.npy"},
                 {"angles --positions p.npy --rotary-dim 8 -o ", "folder|missing/y.npy|pipe|/proc/halyard.npy"}});
}

TEST_CASE("tool: what is said names the argument and its value", "[tool]") {
    const std::string beyond = "positions of 32 bits are -2147483648 to 2147483647";
    fail_all(
        1,
        {values("--max-position 3 --positions", "p.npy",
                "token 2 has position 3 in 'p.npy', but --max-position 3 allows 0 to 2 (see --bad-position)"),
         values("--max-position 6 --positions", "p16.npy -1:2", "has position -1"),
         values("--max-position", "1", "token 1 has position 1, but --max-position 1 allows 0 to 0"),
         values("--positions", "p31.npy", "has position 2147483648 in 'p31.npy', but " + beyond),
         values("--angles phase --positions", "p31.npy", "positions of 32 bits are"),
         values("--axis-map sections:2,1,1 --max-position 9 --positions", "axes.npy",
                "token 1 has position 9 on axis 2 in"),
         values("--inv-freq", "f0.npy", "f0.npy' holds no inverse frequency"),
         values("--inv-freq f.npy --rotary-dim", "9", "holds 4 inverse frequencies, for a rotary_dim of 8, not 9"),
         values("--config gpt-j-6b.json --rotary-dim", "32", "makes a rotary_dim of 64, but --rotary-dim is 32"),
         values("--config gemma-3-4b.json --layer-type", "global", "(see --layer-type and --layer)"),
         {"rotate b.npy -o y.npy --max-position 7 --positions ", "rows.npy",
          "token 1 of batch row 1 has position 7 in"},
         {"rotate bf16.npy -o y.npy", "", "save its bits, x.view('<u2'), and say --dtype bf16"},
         {"rotate f2.npy -o y.npy --dtype f32", "", "holds <f2, but --dtype says f32"},
         {"angles --rotary-dim 8 -o y.npy --positions ", "p31.npy", beyond + "\n"},
         {"angles --rotary-dim 8 -o y.npy --positions ", "rows.npy", "has shape [2, 3], but 'angles' needs positions"},
         {"angles --config gemma-3-4b.json --positions 0:3 -o y.npy", "", "layer_type"},
         {"frequencies --inv-freq ", "missing.npy", "missing.npy"},
         // Error messages of the library.
         values("--target", "nothing", "target is \"nothing\", which is none of x86"),
         values("--in-place --out-pairing", "interleaved", "y[0].data shares elements with x[0].data"),
         {"explain --head-dim ", "7", "rotary_dim is 7"},
         {"frequencies --config gpt-j-6b.json --seq-len ", "9223372036854775807", "seq_len is 9223372036854775807"}});
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
        const auto result = ToolFolder().run(command, "/dev/null", "/dev/full");
        CHECK(result.status == 1);
        CHECK(result.errors.starts_with("halyard: "));
    }
}
