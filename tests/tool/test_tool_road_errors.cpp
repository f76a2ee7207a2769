// What the tool refuses of the road's options, and that it speaks of them.
#include "tool/arrays.h"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

namespace {

/// Four tokens of two heads of eight columns, and files that go with them, or don't.
struct RoadFiles : ToolFolder {
    RoadFiles() {
        ::write(*this, "x.npy", {4, 2, 8}, make_values(64));
        ::write(*this, "w.npy", {8}, make_values(8));
        ::write(*this, "rows.npy", {6, 2, 8}, make_values(96));
        ::write(*this, "pages.npy", {3, 2, 2, 8}, make_values(96));
        ::write(*this, "tiles.npy", {3, 2, 32}, make_values(192));
        ::write<std::int64_t>(*this, "slots.npy", {4}, {5, -1, 0, -1});
    }
};

const std::string rotate = "rotate x.npy -o y.npy";

/// Options that store in a cache by a layout.
std::string store(const std::string &cache, const std::string &layout, const std::string &slots = "slots.npy") {
    return "--slots " + slots + " --cache " + cache + " --cache-layout " + layout;
}
std::string store_by(const std::string &slots) { return store("rows.npy", "rows", slots); }
std::string tile(const std::string &numbers) { return store("tiles.npy", "tile:" + numbers); }

}  // namespace

TEST_CASE("tool: wrong usage of the road's options", "[tool][road]") {
    const RoadFiles dir;
    dir.fail_saying(2, rotate,
                    {
                        {"--norm l2", "--norm: 'l2' is not one of rms or layer"},
                        {"--norm-weight w.npy", "--norm-weight requires --norm"},
                        {"--norm-bias w.npy", "--norm-bias requires --norm"},
                        {"--norm layer --norm-bias w.npy", "--norm-bias requires --norm-weight"},
                        {"--norm rms --norm-weight w.npy --norm-bias w.npy", "--norm-bias: it is for --norm layer"},
                        {"--norm-eps 1e-5", "--norm-eps requires --norm"},
                        {"--norm-width row", "--norm-width requires --norm"},
                        {"--norm-order after", "--norm-order requires --norm"},
                        {"--norm-round", "--norm-round requires --norm"},
                        {"--norm rms --norm-unit-offset", "--norm-unit-offset requires --norm-weight"},
                        {"--norm rms --norm-eps nan", "--norm-eps: 'nan' is not a finite number"},
                        {"--norm rms --norm-eps inf", "--norm-eps: 'inf' is not a finite number"},
                        {"--norm rms --norm-eps small", "--norm-eps: 'small' is not a finite number"},
                        {"--norm rms --norm-width all", "--norm-width: 'all' is not one of head or row"},
                        {"--norm rms --norm-order both", "--norm-order: 'both' is not one of before or after"},
                        {"--norm rms --norm-weight ''", "--norm-weight: it is empty"},
                        {"--out-dtype f64", "--out-dtype: 'f64' is not one of f32, f16, bf16, e4m3, e5m2 or int8"},
                        {"--scale ''", "--scale: it is empty"},
                        {"--scale 1e999", "--scale: '1e999' is neither a number"},
                        {"--scale 0,5", "--scale: '0,5' is neither a number"},
                        {"--scale 2 --out-dtype int8 --scale-dynamic s.npy", "excludes"},
                        {"--out-dtype int8 --scale-dynamic -", "--scale-dynamic: it has to be a file's name"},
                        {"--out-dtype int8 --scale-dynamic ./y.npy", "is where Y is written"},
                        {"--position-scales ''", "--position-scales: it is empty"},
                        {"--position-scales - --norm rms --norm-weight -", "only one input can be '-'"},
                        {"--slots slots.npy", "--slots requires --cache"},
                        {"--cache rows.npy", "--cache requires --slots"},
                        {"--cache-layout rows", "--cache-layout requires --slots"},
                        {"--slots slots.npy --cache rows.npy", "requires --cache-layout"},
                        {store("rows.npy", "pages"), "--cache-layout: 'pages' is not rows, nhd, hnd or tile:bs"},
                        {store_by("-") + " --norm rms --norm-weight -", "only one input can be '-'"},
                        {"--norm layer --norm-weight - --norm-bias -", "only one input can be '-'"},
                        {store_by("slots.npy") + " --in-place", "--in-place: --cache contradicts it"},
                        {tile("4,4,0,8,8,0"), "seven whole numbers"},
                        {tile("4,4,0,8,8,0,1,1"), "seven whole numbers"},
                        {tile("4,4,0,8,8,0,"), "seven whole numbers"},
                        {tile("4,4,,8,8,0,1"), "seven whole numbers"},
                        {tile("4,4,0,8,8,0,99999999999999999999"), "seven whole numbers"},
                        {tile("0,4,0,8,8,0,1"), "bs of 'tile:0,4,0,8,8,0,1' is 0, but must be at least 1"},
                        {tile("4,0,0,8,8,0,1"), "Tt of 'tile:4,0,0,8,8,0,1' is 0, but must be at least 1"},
                        {tile("4,4,0,8,-8,0,1"), "Dt of 'tile:4,4,0,8,-8,0,1' is -8, but must be at least 1"},
                        {tile("4,4,0,-8,8,0,1"), "s1 of 'tile:4,4,0,-8,8,0,1' is -8, but must be at least 0"},
                    });
}

TEST_CASE("tool: biases that can't be", "[tool][road]") {
    const RoadFiles dir;
    const std::string layer = "--norm layer --norm-weight w.npy --norm-bias ";
    dir.fail_saying(
        1, rotate,
        {
            {layer + "missing.npy", "can't read 'missing.npy'"},
            {layer + write(dir, "b4.npy", {4}, make_values(4)), "has shape [4], but the biases have the shape of the"},
            {layer + write(dir, "b28.npy", {2, 8}, make_values(16)), "has shape [2, 8], but the biases"},
            {layer + write(dir, "bf2.npy", {8}, std::vector<float>(4), "<f2"), "its type is '<f2'"},
        });
}

TEST_CASE("tool: norms, dtypes and scales that can't be", "[tool][road]") {
    const RoadFiles dir;
    const auto scales = [&](const char *name, const Shape &shape, const std::vector<float> &values) {
        return "--scale " + write(dir, name, shape, values);
    };
    const auto weight = [&](const std::string &file) { return "--norm rms --norm-weight " + file; };
    const std::string positive = ", but a scale and its reciprocal must be positive and finite";
    dir.fail_saying(
        1, rotate,
        {
            {"--norm rms --norm-eps -1e-6", "--norm-eps is -1e-06, but must be at least 0"},
            {"--norm rms --norm-eps 1e39", "--norm-eps is 1e+39, but must be at least 0, and finite in f32"},
            {weight("missing.npy"), "can't read 'missing.npy'"},
            {weight(write(dir, "w4.npy", {4}, make_values(4))),
             "has shape [4], but the weights are [head_dim] or [heads, head_dim], for 2 heads of 8"},
            {weight(write(dir, "w82.npy", {8, 2}, make_values(16))), "has shape [8, 2], but the weights"},
            {weight("w.npy") + " --norm-width row", "--norm-width row are [heads * head_dim], for 2 heads of 8"},
            {weight(write(dir, "w28.npy", {2, 8}, make_values(16))) + " --norm-width row", "has shape [2, 8], but"},
            {weight(write(dir, "w0.npy", {}, make_values(1))), "has shape [], but the weights"},
            {weight(write(dir, "wf8.npy", {8}, std::vector<double>(8, 1.0))), "its type is '<f8'"},
            {weight(write(dir, "wi1.npy", {8}, std::vector<float>(2), "|i1")), "its type is '|i1'"},
            {"--in-place --out-dtype f16", "--in-place keeps X's type, but --out-dtype is f16"},
            {"--in-place --out-dtype int8", "--in-place keeps X's type, but --out-dtype is int8"},
            {"--scale 0", "--scale is 0" + positive},
            {"--scale -0.5", "--scale is -0.5" + positive},
            {"--scale nan", "--scale is nan" + positive},
            {"--scale inf", "--scale is inf" + positive},
            {"--scale 1e39", "--scale is 1e+39" + positive},
            {"--scale 1e-39", "--scale is 1e-39" + positive},
            {"--scale ten", "can't read 'ten'"},
            {scales("s0.npy", {}, {0}), "scale 0 of 's0.npy' is 0" + positive},
            {scales("s2.npy", {2}, {1, std::nanf("")}), "scale 1 of 's2.npy' is nan" + positive},
            {scales("st.npy", {2}, {1, 0x1p-130f}), "scale 1 of '"},
            {scales("s1.npy", {1}, {1}), "has shape [1], but scales are [], [heads], [head_dim] or [heads, head_dim]"},
            {scales("s3.npy", {3}, {1, 1, 1}), "has shape [3], but scales are"},
            {scales("s82.npy", {8, 2}, make_values(16)), "has shape [8, 2], but scales are"},
            {scales("s128.npy", {1, 2, 8}, make_values(16)), "has shape [1, 2, 8], but scales are"},
            {"--scale " + write(dir, "sf8.npy", {2}, std::vector<double>{1, 1}), "its type is '<f8', but <f4"},
            {"--scale-dynamic s.npy", "--scale-dynamic is for e4m3, e5m2 and int8, but what is written is f32"},
            {"--scale-dynamic s.npy --out-dtype bf16", "but what is written is bf16 (see --out-dtype)"},
            {"--scale-dynamic /dev/null --out-dtype int8", "can't write '/dev/null'"},
            {"--scale-dynamic no/s.npy --out-dtype int8", "no/s.npy'"},
        });
    // A width that is also the number of heads says nothing about which of them is meant.
    write(dir, "square.npy", {4, 8, 8}, make_values(256));
    write(dir, "each.npy", {8, 8}, std::vector<float>(64, 2.0f));
    dir.fail(1, "rotate square.npy -o y.npy --scale w.npy", "as many heads as columns");
    dir.succeed("rotate square.npy -o y.npy --scale each.npy");
    std::filesystem::remove(dir / "y.npy");
    // The library's limit.
    write(dir, "wide.npy", {1, 1, 2050}, make_values(2050));
    dir.fail(1, "rotate wide.npy -o y.npy --out-dtype f16", "halyard: X's head_dim is 2050, but stages");
}

TEST_CASE("tool: scales by position that can't be", "[tool][road]") {
    const RoadFiles dir;
    const auto by_position = [&](const char *name, const Shape &shape, int n) {
        return "--position-scales " + write(dir, name, shape, make_values(static_cast<std::size_t>(n)));
    };
    dir.fail_saying(
        1, rotate,
        {
            {by_position("p3.npy", {3}, 3),
             "has shape [3], but X has scales by position [tokens] or [tokens, heads], [4"},
            {by_position("p8.npy", {4, 8}, 32), "has shape [4, 8], but X has scales by position"},
            {by_position("p14.npy", {1, 4}, 4), "has shape [1, 4], but"},
            {by_position("p0.npy", {}, 1), "has shape [], but"},
            {"--position-scales " + write(dir, "pn.npy", {4}, std::vector<float>{1, 0, -1, std::nanf("")}),
             "number 3 of 'pn.npy' is nan, but what tokens are multiplied by must be finite"},
            {"--position-scales " + write(dir, "pi.npy", {4}, std::vector<float>{1, INFINITY, 0, 0}),
             "number 1 of 'pi.npy' is inf"},
            {"--position-scales " + write(dir, "pf8.npy", {4}, std::vector<double>{1, 1, 1, 1}), "its type is '<f8'"},
            {"--position-scales missing.npy", "can't read 'missing.npy'"},
        });
    dir.fail_each(1, rotate + " " + by_position("p.npy", {4}, 4), {"--target opencl", "--target cuda_sm80"});
}

TEST_CASE("tool: slots and caches that can't be", "[tool][road]") {
    const RoadFiles dir;
    const auto slots = [&](const char *name, const std::vector<std::int32_t> &values) {
        return store_by(write(dir, name, {std::ssize(values)}, values));
    };
    const auto bytes = write(dir, "u1.npy", {6, 2, 8}, std::vector<float>(24), "|u1");
    const auto integers = write(dir, "i1.npy", {6, 2, 8}, std::vector<float>(24), "|i1");
    const auto other = write(dir, "other.npy", {5, 2}, make_values(10));
    dir.fail_saying(
        1, rotate,
        {
            {slots("s6.npy", {0, 6, 1, 2}), "in --slots, [batch 0, token 1] is 6, but must be -1 to 5"},
            {slots("s-2.npy", {0, 1, 2, -2}), "in --slots, [batch 0, token 3] is -2, but must be -1 to 5"},
            {slots("sd.npy", {3, -1, -1, 3}), "in --slots, [batch 0, token 3] is 3, as is [batch 0, token 0]"},
            {slots("s3.npy", {0, 1, 2}), "has shape [3], but X needs slots [tokens], [4]"},
            {store_by(write<std::int32_t>(dir, "s14.npy", {1, 4}, {0, 1, 2, 3})), "has shape [1, 4], but X needs"},
            {store_by(write(dir, "sf.npy", {4}, make_values(4))), "its type is '<f4', but <i4 or <i8 is needed"},
            {store_by("missing.npy"), "can't read 'missing.npy'"},
            {store("missing.npy", "rows"), "can't read 'missing.npy'"},
            {store("rows.npy", "nhd"), "has shape [6, 2, 8], but --cache-layout nhd is [pages, bs, heads"},
            {store("pages.npy", "rows"), "but --cache-layout rows is [slots, heads, head_dim], for 2 heads of 8"},
            {store(write(dir, "h3.npy", {6, 3, 8}, make_values(144)), "rows"), "has shape [6, 3, 8], but"},
            {store(write(dir, "d4.npy", {6, 2, 4}, make_values(48)), "rows"), "has shape [6, 2, 4], but"},
            {store(write(dir, "n.npy", {3, 4, 2, 8}, make_values(192)), "hnd"), "[pages, heads, bs, head_dim]"},
            {store(write(dir, "h.npy", {3, 2, 4, 8}, make_values(192)), "nhd"), "[pages, bs, heads, head_dim]"},
            {store(write<float>(dir, "none.npy", {0, 2, 8}, {}), "rows"), "has shape [0, 2, 8], but it needs a"},
            {store(bytes, "rows"), "holds |u1, but what is stored is f32, <f4, as X is (see --out-dtype)"},
            {store("rows.npy", "rows") + " --out-dtype f16", "holds <f4, but what is stored is f16, <f2"},
            {store(bytes, "rows") + " --out-dtype int8", "holds |u1, but what is stored is int8, |i1"},
            {store(integers, "rows") + " --out-dtype e5m2", "holds |i1, but what is stored is e5m2, |u1"},
            {store(integers, "rows") + " --out-dtype int8 --scale-dynamic " + other,
             "has shape [5, 2], but the scales of this cache are [slots, heads], [6, 2]"},
            {store(integers, "rows") + " --out-dtype int8 --scale-dynamic " + integers, "its type is '|i1'"},
            {tile("2,2,0,8,8,0,1"), "but --cache-layout tile:2,2,0,8,8,0,1 is [pages, heads, bs * head_dim]"},
            {tile("4611686018427387908,4,0,8,8,0,1"), "is [pages, heads, bs * head_dim]"},
            {tile("4,4,0,9,8,0,1"), "bs * head_dim of --cache-layout is 32, but a block's tiles reach element 34"},
            {tile("4,4,0,1,1,5,0"), "bs * head_dim of --cache-layout is 32, but a block's tiles reach element 38"},
            {tile("4,4,0,7,8,0,1"), "by --cache-layout two elements of the cache could meet"},
            {tile("4,4,0,0,8,0,1"), "by --cache-layout two elements of the cache could meet"},
            {tile("4,4,0,8,8,0,0"), "has an s3 of 0, by which neighbouring elements would meet"},
            {tile("4,4,0,9223372036854775807,2,9223372036854775807,1"),
             "--cache-layout leaves the address space, with 12 slots"},
        });
    // Names of GPUs' targets, whether or not there is one.
    for (const std::string &options :
         Arguments{"--norm rms", "--scale 2", "--out-dtype bf16", "--no-rotation", "--hadamard 2",
                   store_by("slots.npy"), "--out-dtype int8 --scale-dynamic s.npy"}) {
        dir.fail_each(1, rotate + " " + options, {"--target opencl", "--target cuda_sm80"});
    }
    // Whatever fails, existing files stay as they were.
    dir.write("y.npy", "precious");
    const auto kept = dir.read("other.npy");
    const auto doubled = write<std::int32_t>(dir, "twice.npy", {4}, {1, 1, 2, 3});
    write(dir, "six.npy", {6, 2}, make_values(12));
    const auto six = dir.read("six.npy");
    dir.fail_each(1, rotate + " --out-dtype int8",
                  {"--scale-dynamic six.npy " + store(integers, "rows", doubled), "--scale-dynamic /dev/null"});
    CHECK(dir.read("y.npy") == "precious");
    CHECK(dir.read("six.npy") == six);
    CHECK(dir.read("other.npy") == kept);
}

TEST_CASE("tool: slots of a batch, and Hadamard transforms, that can't be", "[tool][road]") {
    const RoadFiles dir;
    write(dir, "b.npy", {2, 2, 2, 8}, make_values(64));
    dir.fail(1, "rotate b.npy -o y.npy " + store_by("slots.npy"), "but X needs slots [batch, tokens], [2, 2]");
    dir.fail_each(2, rotate, {"--hadamard 1", "--hadamard -4", "--hadamard x"});
    dir.fail_each(1, rotate, {"--hadamard 3", "--hadamard 16"});
}

TEST_CASE("tool: what contradicts keys that move", "[tool][road][moves]") {
    const ToolFolder dir;
    write(dir, "keys.npy", {2, 2, 4}, make_values(4), "|i1");
    write(dir, "x.npy", {2, 2, 4}, std::vector<float>(16));
    write(dir, "slots.npy", {2}, std::vector<std::int64_t>{0, 1});
    write(dir, "zeros.npy", {2, 2}, std::vector<float>(4));
    const std::string move = rotate + " --from-positions 0:2";
    for (const std::string options :
         {"--out-pairing interleaved --pairing half", "--no-rotation", "--norm rms", "--position-scales p.npy",
          "--reference hf_f32", "--bad-position clamp", "--max-position 9", "--cos-sin x.npy"}) {
        dir.fail_saying(2, move, {{options, "--from-positions"}, {options, split(options)[0]}});
    }
    dir.fail_saying(2, move,
                    {{"--scale-dynamic s.npy", "--scale-dynamic requires --cache-scales"},
                     {"--slots slots.npy", "--slots requires --cache-layout"},
                     {"--slots slots.npy --cache-layout rows --cache x.npy", "--cache"}});
    dir.fail_saying(1, move,
                    {{"--slots slots.npy --cache-layout hnd", "[2, 2, 4]"},
                     {"--slots slots.npy --cache-layout hnd", "[pages, heads, bs, head_dim]"},
                     {"--cache-scales x.npy", "--cache-scales is for e4m3, e5m2 and int8"},
                     {"--out-dtype f16", "--out-dtype is f16, but X holds f32, and keys keep their type"}});
    dir.succeed(move + " --out-dtype f32 --out-pairing half --pairing half");
    dir.fail_saying(2, rotate,
                    {{"--cache-scales x.npy", "--cache-scales requires --from-positions"},
                     {"--slots slots.npy --cache-layout rows", "--slots requires --cache"},
                     {"--dtype int8", "--dtype"},
                     {"--dtype int8", "int8 is for keys that move"}});
    dir.fail(1, rotate + " --from-positions 0:3", "--from-positions 0:3 has positions for 3 tokens");
    dir.fail(1, "rotate keys.npy -o y.npy --from-positions 0:2 --cache-scales zeros.npy",
             "in --cache-scales, [token 0, head 0] is 0");
}

namespace {

const std::string convert = rotate + " --no-rotation ";

/// Five tokens of two heads of 64 columns.
struct GroupFiles : ToolFolder {
    GroupFiles() {
        ::write(*this, "x.npy", {5, 2, 64}, make_values(640));
        ::write<std::int64_t>(*this, "slots.npy", {5}, {5, 0, -1, 7, 2});
    }
};

}  // namespace

TEST_CASE("tool: groups that can't be", "[tool][road][groups]") {
    const GroupFiles dir;
    dir.fail_saying(
        2, convert,
        {
            {"--groups q8_0", "--groups: 'q8_0' is not one of ggml_q8_0, ggml_q8_0_neon"},
            {"--groups ''", "--groups: '' is not one of ggml_q8_0"},
            {"--groups ggml_q8_0,32", "--groups: '32' is no FIELD=VALUE"},
            {"--groups group=32,ggml_q8_0", "--groups: 'ggml_q8_0' is no FIELD=VALUE"},
            {"--groups element=int9", "--groups: element 'int9' is not one of int8, uint8, int4"},
            {"--groups size=32", "--groups: 'size' is no field; there are element, packing"},
            {"--groups group=many", "--groups: group 'many' is not a whole number of 64 bits"},
            {"--groups floor=low", "--groups: floor 'low' is not a number that a float holds"},
            {"--from-groups q8_0", "--from-groups: 'q8_0' is not one of ggml_q8_0"},
            {"--groups ggml_q8_0 --out-dtype f16", "--out-dtype excludes --groups"},
            {"--groups ggml_q8_0 --scale 2", "--scale excludes --groups"},
            {"--groups ggml_q8_0 --in-place", "--in-place: --groups and --from-groups contradict it"},
            {"--groups vllm_int8", "--groups vllm_int8 requires --scale-dynamic"},
            {"--groups ggml_q8_0 --scale-dynamic s.npy", "--scale-dynamic: --groups ggml_q8_0 keeps no"},
            {"--groups ggml_q8_0 --cache-scales s.npy", "--cache-scales: --groups ggml_q8_0 keeps no scales apart"},
            {"--from-groups vllm_int8 --dtype f32", "--dtype: --from-groups contradicts it"},
        });
}

TEST_CASE("tool: groups that can't be of an array", "[tool][road][groups]") {
    const GroupFiles dir;
    write(dir, "records.npy", {5, 2, 68}, std::vector<float>(170), "|u1");
    write(dir, "cache.npy", {8, 2, 64}, std::vector<float>(256), "|u1");
    write(dir, "three.npy", {5, 3}, std::vector<float>(15, 1.0f));
    dir.fail(2, "rotate records.npy -o y.npy --from-positions 0:5 --groups ggml_q8_0 --dtype e4m3",
             "--dtype: --groups");
    dir.fail(2, "rotate records.npy -o y.npy --from-positions 0:5 --from-groups ggml_q8_0",
             "--from-groups contradicts");
    write(dir, "heads.npy", {5, 2, 64}, std::vector<float>(160), "|u1");
    dir.fail(2, "rotate heads.npy -o y.npy --no-rotation --from-groups vllm_int8", "requires --cache-scales");
    dir.fail(2, "rotate heads.npy -o y.npy --from-positions 0:5 --groups vllm_int8", "requires --scale-dynamic");
    dir.fail_saying(
        1, convert,
        {
            {"--groups element=int8", "halyard: in --groups, "},
            {"--groups ggml_q8_0,group=16", "in --groups, group is 16, but the preset's is 32"},
            {"--groups ggml_q8_0,record_bytes=60", "in --groups, record_bytes is 60, but its places take 68"},
            {"--groups mla_v4 --scale-dynamic s.npy", "in --groups, n_grouped is 448, but must be 1 to head_dim, 64"},
            {"--groups "
             "element=int8,rule=largest,reciprocal=of_largest,scale_dtype=f16,group=32,data_stride=34,scale_stride=34,"
             "data_offset=1",
             "in --groups, "},
            {"--groups element=uint8,rule=largest,scale_dtype=f32", "in --groups, rule is "},
            {"--groups element=e4m3,rule=largest,scale_dtype=e8m0_up,reciprocal=of_scale", "in --groups, scale_dtype"},
            {"--groups element=uint8,rule=range,scale_dtype=f32,data_offset=8,zero_offset=4",
             "in --groups, floor is 0"},
            {"--groups element=int8,rule=signed,scale_dtype=f32,data_offset=4", "in --groups, rule is "},
            {"--groups element=int8,rule=largest,scale_dtype=f32,scales_apart=1,scale_stride=8 --scale-dynamic s.npy",
             "scale_stride has to be 4"},
            {"--groups vllm_int8 --scale-dynamic s.npy --slots slots.npy --cache-layout nhd --cache cache.npy",
             "has shape [8, 2, 64], but --cache-layout nhd is"},
            {"--groups ggml_q8_0 --slots slots.npy --cache-layout rows --cache cache.npy",
             "has shape [8, 2, 64], but --cache-layout rows is [slots, heads, head_dim], for 2 heads of 68"},
            {"--groups vllm_int8 --scale-dynamic three.npy --slots slots.npy --cache-layout rows --cache cache.npy",
             "'three.npy' has shape [5, 3], but the scales of these records are [8, 2]"},
            {"--from-groups ggml_q8_0", "its type is '<f4', but |u1 is needed"},
        });
    dir.fail_saying(1, "rotate records.npy -o y.npy --no-rotation",
                    {
                        {"--from-groups ggml_q4_0", "by --from-groups ggml_q4_0 no head, or more than one, has a"},
                        {"--from-groups ggml_q8_0,record_bytes=68", "no head, or more than one, has a record of 68"},
                        {"", "its type is '|u1'"},
                    });
    dir.fail(1, "rotate x.npy -o y.npy --groups ggml_q8_0 --target cuda_sm80", "--target is cuda_sm80");
    write(dir, "bad.npy", {5, 2, 68}, std::vector<float>(170, std::nanf("")), "|u1");
    dir.fail(1, "rotate bad.npy -o y.npy --from-positions 0:5 --groups ggml_q8_0", "must be finite");
}
