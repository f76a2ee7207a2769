// The tool stores heads as records of groups, reads them back and moves them: by presets and fields, in arrays and in
// caches, with scales in the record or apart. Which bytes groups are stored as is for python/tests/test_writers.py.
#include "tool/road_arrays.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace {

constexpr std::int64_t n_tokens = 5, n_heads = 2, head_dim = 64, n_slots = 8;

using Bytes = std::vector<unsigned char>;

struct GroupFiles : ToolFolder {
    GroupFiles() {
        ::write(*this, "x.npy", {n_tokens, n_heads, head_dim}, make_values(n_tokens * n_heads * head_dim));
        ::write<std::int64_t>(*this, "slots.npy", {n_tokens}, {5, 0, -1, 7, 2});
    }

    Bytes read_bytes(const std::string &name, const Shape &shape) const {
        const auto array = halyard::tool::read_npy(*this / name, {"|u1"});
        REQUIRE(array.shape == shape);
        const auto bytes = array.elements<unsigned char>();
        return {bytes.begin(), bytes.end()};
    }
    void write_bytes(const std::string &name, const Shape &shape, const Bytes &bytes) const {
        halyard::tool::write_npy(*this / name, "|u1", shape, bytes.data(), bytes.size());
    }
};

/// What read_bytes has of a record's token and head.
Bytes record_of(const Bytes &all, std::int64_t row, std::int64_t n_bytes) {
    return {all.begin() + row * n_bytes, all.begin() + (row + 1) * n_bytes};
}

const std::string convert = "rotate x.npy -o y.npy --no-rotation ";
const std::string fields_of_q8_0 = "element=int8,rule=largest,reciprocal=of_largest,scale_dtype=f16,group=32,"
                                   "data_offset=2,data_stride=34,scale_stride=34";

}  // namespace

TEST_CASE("tool: records of groups, and what they are read back as", "[tool][road][groups]") {
    const GroupFiles dir;
    dir.succeed(convert + "--groups ggml_q8_0");
    const auto bytes = dir.read_bytes("y.npy", {n_tokens, n_heads, 68});
    const auto x = floats_of(dir / "x.npy");
    dir.succeed("rotate y.npy -o z.npy --no-rotation --from-groups ggml_q8_0");
    const auto back = floats_of(dir / "z.npy");
    REQUIRE(back.size() == x.size());
    std::size_t n_wrong = 0;
    for (std::size_t group = 0; group < x.size() / 32; group++) {
        float most = 0.0f;
        std::uint16_t word;
        std::memcpy(&word, &bytes[34 * group], 2);
        for (std::size_t i = 32 * group; i < 32 * group + 32; i++) {
            most = std::max(most, std::fabs(x[i]));
        }
        const auto scale = static_cast<float>(oracle::decode(HALYARD_F16, word));
        n_wrong += std::fabs(scale - most / 127.0f) > 0x1p-11f * scale ? 1 : 0;
        for (std::size_t i = 0; i < 32; i++) {
            const auto q = static_cast<signed char>(bytes[34 * group + 2 + i]);
            n_wrong += q != std::nearbyint(x[32 * group + i] * (127.0f / most)) ? 1 : 0;
            n_wrong += back[32 * group + i] != static_cast<float>(q) * scale ? 1 : 0;
        }
    }
    CHECK(n_wrong == 0);
    // Fields say what the preset says, or what it leaves open.
    for (const std::string &groups : {fields_of_q8_0, std::string("ggml_q8_0,n_grouped=64,group=32")}) {
        dir.succeed("rotate x.npy -o f.npy --no-rotation --groups " + groups);
        CHECK(dir.read("f.npy") == dir.read("y.npy"));
    }
    dir.succeed("rotate x.npy -o f.npy --no-rotation --groups ggml_q8_0,n_grouped=64,record_bytes=72");
    CHECK(dir.read_bytes("f.npy", {n_tokens, n_heads, 72}).size() == 720);
    dir.succeed("rotate f.npy -o z2.npy --no-rotation --from-groups ggml_q8_0,n_grouped=64,record_bytes=72");
    CHECK(floats_of(dir / "z2.npy") == back);
    // From records to others, and to another dtype.
    dir.succeed("rotate y.npy -o a.npy --no-rotation --from-groups ggml_q8_0 --groups ggml_q4_0");
    dir.succeed("rotate z.npy -o b.npy --no-rotation --groups ggml_q4_0");
    CHECK(dir.read("a.npy") == dir.read("b.npy"));
    dir.succeed("rotate y.npy -o a.npy --no-rotation --from-groups ggml_q8_0 --out-dtype f16");
    dir.succeed("rotate z.npy -o b.npy --no-rotation --out-dtype f16");
    CHECK(dir.read("a.npy") == dir.read("b.npy"));
}

TEST_CASE("tool: a rotation goes to records as to floats", "[tool][road][groups]") {
    const GroupFiles dir;
    const std::string how = " --norm rms --positions 9:14 --hadamard 64 --threads 2";
    dir.succeed("rotate x.npy -o r.npy" + how);
    for (const std::string preset : {"ggml_q8_0", "ggml_q8_0_neon", "ggml_q8_0_reference", "ggml_q4_0", "vllm_int8",
                                     "vllm_fp8", "openvino_u8", "openvino_u4", "mx"}) {
        CAPTURE(preset);
        const bool apart = preset.starts_with("vllm");
        const std::string groups = " --groups " + preset;
        dir.succeed("rotate x.npy -o y.npy" + how + groups + (apart ? " --scale-dynamic s.npy" : ""));
        dir.succeed("rotate r.npy -o z.npy --no-rotation" + groups + (apart ? " --scale-dynamic s2.npy" : ""));
        CHECK(dir.read("y.npy") == dir.read("z.npy"));
        if (apart) {
            CHECK(dir.read("s.npy") == dir.read("s2.npy"));
            CHECK(halyard::tool::read_npy(dir / "s.npy", {"<f4"}).shape == Shape{n_tokens, n_heads});
        }
        dir.succeed("rotate y.npy -o back.npy --no-rotation --from-groups " + preset +
                    (apart ? " --cache-scales s.npy" : ""));
        const auto back = floats_of(dir / "back.npy"), plain = floats_of(dir / "r.npy");
        float most = 0.0f;
        for (std::size_t i = 0; i < plain.size(); i++) {
            most = std::max(most, std::fabs(back[i] - plain[i]));
        }
        CHECK(most < (preset.ends_with("4") || preset.ends_with("q4_0") ? 0.4f : 0.25f));
    }
}

TEST_CASE("tool: records in caches, written and moved", "[tool][road][groups]") {
    const GroupFiles dir;
    struct Layout {
        const char *name;
        Shape shape;
    };
    const auto layout = GENERATE(Layout{"rows", {n_slots, n_heads, 68}}, Layout{"nhd", {2, 4, n_heads, 68}},
                                 Layout{"hnd", {2, n_heads, 4, 68}});
    CAPTURE(layout.name);
    const std::int64_t slots[] = {5, 0, -1, 7, 2};
    Bytes cache(n_slots * n_heads * 68, 3);
    dir.write_bytes("cache.npy", layout.shape, cache);
    const std::string store = std::string(" --slots slots.npy --cache-layout ") + layout.name;
    const std::string groups = " --groups ggml_q8_0 --hadamard 64";
    dir.succeed("rotate x.npy -o c.npy --cache cache.npy --positions 3:8" + store + groups);
    dir.succeed("rotate x.npy -o y.npy --positions 3:8" + groups);
    const auto check = [&](const std::string &stored, const std::string &plain) {
        auto bytes = dir.read_bytes(stored, layout.shape);
        const auto records = dir.read_bytes(plain, {n_tokens, n_heads, 68});
        for (std::int64_t token = 0; token < n_tokens; token++) {
            for (std::int64_t head = 0; head < n_heads && slots[token] >= 0; head++) {
                const auto page = slots[token] / 4, t = slots[token] % 4;
                const auto row =
                    layout.name[0] == 'h' ? (page * n_heads + head) * 4 + t : slots[token] * n_heads + head;
                CHECK(record_of(bytes, row, 68) == record_of(records, token * n_heads + head, 68));
                std::fill_n(bytes.begin() + row * 68, 68, static_cast<unsigned char>(3));
            }
        }
        CHECK(bytes == cache);
    };
    check("c.npy", "y.npy");
    const std::string move = " --from-positions 3:8 --positions 100:105" + groups;
    dir.succeed("rotate c.npy -o d.npy" + store + move);
    dir.succeed("rotate y.npy -o z.npy" + move);
    check("d.npy", "z.npy");
    dir.succeed("rotate y.npy -o z2.npy --in-place" + move);
    CHECK(dir.read("z2.npy") == dir.read("z.npy"));
}

TEST_CASE("tool: scales of records apart, by slot", "[tool][road][groups]") {
    const GroupFiles dir;
    write(dir, "wide.npy", {n_tokens, 1, 512}, make_values(n_tokens * 512));
    struct Preset {
        const char *x, *name, *scales;
        Shape cache, shape;
        std::int64_t heads;
    };
    const auto preset =
        GENERATE(Preset{"x.npy", "vllm_int8", "<f4", {n_slots, n_heads, 64}, {n_slots, n_heads}, n_heads},
                 Preset{"x.npy", "vllm_fp8", "<f4", {n_slots, n_heads, 64}, {n_slots, n_heads}, n_heads},
                 Preset{"wide.npy", "mla_v4", "|u1", {n_slots, 1, 576}, {n_slots, 1, 7}, 1},
                 Preset{"wide.npy", "mla_v41", "|u1", {n_slots, 1, 512}, {n_slots, 1, 16}, 1});
    CAPTURE(preset.name);
    dir.write_bytes("cache.npy", preset.cache,
                    Bytes(static_cast<std::size_t>(n_slots * preset.heads * preset.cache.back())));
    const std::string store = " --slots slots.npy --cache-layout rows",
                      groups = std::string(" --groups ") + preset.name;
    const std::string frequencies = " --rotary-dim 64";
    dir.succeed(std::string("rotate ") + preset.x + " -o c.npy --cache cache.npy --scale-dynamic s.npy" + frequencies +
                store + groups);
    const auto scales = halyard::tool::read_npy(dir / "s.npy", {preset.scales});
    REQUIRE(scales.shape == preset.shape);
    const std::size_t row = scales.n_bytes / n_slots;
    const auto row_of = [&](const halyard::tool::NpyArray &array, std::size_t slot) {
        return bytes_of(array).substr(slot * row, row);
    };
    // Of slots that no token has they are 1: 1.0f, or 2^0.
    const std::string one = preset.scales[1] == 'f' ? std::string("\0\0\x80\x3f", 4) : std::string("\x7f");
    for (const std::size_t slot : {1, 3, 4, 6}) {
        for (std::size_t at = 0; at < row; at += one.size()) {
            CHECK(row_of(scales, slot).substr(at, one.size()) == one);
        }
    }
    // The same records without a cache.
    dir.succeed(std::string("rotate ") + preset.x + " -o y.npy --scale-dynamic t.npy" + frequencies + groups);
    const auto apart = halyard::tool::read_npy(dir / "t.npy", {preset.scales});
    CHECK(row_of(scales, 5) == row_of(apart, 0));
    CHECK(row_of(scales, 2) == row_of(apart, 4));
    // Moves read scales and renew them; here, or where they are told to.
    const std::string move = " --from-positions 0:5 --positions 50:55" + frequencies + groups;
    dir.succeed("rotate c.npy -o d.npy --cache-scales s.npy --scale-dynamic new.npy" + store + move);
    dir.succeed("rotate c.npy -o e.npy --scale-dynamic s.npy" + store + move);
    CHECK(dir.read("d.npy") == dir.read("e.npy"));
    CHECK(dir.read("new.npy") == dir.read("s.npy"));
    dir.succeed("rotate y.npy -o z.npy --cache-scales t.npy" + move);
    const auto moved = halyard::tool::read_npy(dir / "s.npy", {preset.scales});
    CHECK(row_of(moved, 5) == row_of(halyard::tool::read_npy(dir / "t.npy", {preset.scales}), 0));
    CHECK(row_of(moved, 1) == row_of(scales, 1));
    // An existing file of scales is renewed by a store too: other slots keep theirs.
    write<std::int64_t>(dir, "slots.npy", {n_tokens}, {-1, -1, -1, -1, 6});
    dir.succeed(std::string("rotate ") + preset.x + " -o f.npy --cache d.npy --scale-dynamic s.npy" + frequencies +
                store + groups);
    const auto after = halyard::tool::read_npy(dir / "s.npy", {preset.scales});
    CHECK(row_of(after, 5) == row_of(moved, 5));
    CHECK(row_of(after, 6) == row_of(scales, 2));
}

TEST_CASE("tool: records of a batch, and of DeepSeek", "[tool][road][groups]") {
    const GroupFiles dir;
    write(dir, "b.npy", {2, n_heads, 3, head_dim}, make_values(12 * head_dim));
    dir.succeed("rotate b.npy -o y.npy --layout bhsd --groups vllm_fp8 --scale-dynamic s.npy");
    CHECK(dir.read_bytes("y.npy", {2, n_heads, 3, head_dim}).size() == 12 * head_dim);
    CHECK(halyard::tool::read_npy(dir / "s.npy", {"<f4"}).shape == Shape{2, 3, n_heads});
    write(dir, "mla.npy", {3, 1, 576}, make_values(3 * 576));
    dir.succeed("rotate mla.npy -o y.npy --rotary-dim 64 --rotary-offset 512 --groups mla_v32");
    dir.read_bytes("y.npy", {3, 1, 656});
    dir.succeed("rotate y.npy -o z.npy --rotary-dim 64 --rotary-offset 512 --groups mla_v32 --from-positions 0:3 "
                "--positions 7:10");
    const auto before = dir.read_bytes("y.npy", {3, 1, 656}), after = dir.read_bytes("z.npy", {3, 1, 656});
    for (std::int64_t token = 0; token < 3; token++) {  // what is in groups does not turn, and keeps its bytes
        CHECK(
            std::equal(before.begin() + token * 656, before.begin() + token * 656 + 528, after.begin() + token * 656));
    }
    CHECK(before != after);
    // Nothing is done about no tokens.
    write<float>(dir, "none.npy", {0, n_heads, head_dim}, {});
    dir.succeed("rotate none.npy -o y.npy --groups ggml_q8_0");
    dir.read_bytes("y.npy", {0, n_heads, 68});
}

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
    dir.write_bytes("records.npy", {n_tokens, n_heads, 68}, Bytes(n_tokens * n_heads * 68));
    dir.write_bytes("cache.npy", {n_slots, n_heads, 64}, Bytes(n_slots * n_heads * 64));
    write(dir, "three.npy", {n_tokens, 3}, std::vector<float>(n_tokens * 3, 1.0f));
    dir.fail(2, "rotate records.npy -o y.npy --from-positions 0:5 --groups ggml_q8_0 --dtype e4m3",
             "--dtype: --groups");
    dir.fail(2, "rotate records.npy -o y.npy --from-positions 0:5 --from-groups ggml_q8_0",
             "--from-groups contradicts");
    dir.write_bytes("heads.npy", {n_tokens, n_heads, 64}, Bytes(n_tokens * n_heads * 64));
    dir.fail(2, "rotate heads.npy -o y.npy --no-rotation --from-groups vllm_int8", "requires --cache-scales");
    dir.fail(2, "rotate heads.npy -o y.npy --from-positions 0:5 --groups vllm_int8", "requires --scale-dynamic");
    dir.fail_saying(
        1, convert,
        {
            {"--groups element=int8", "halyard: in --groups, "},
            {"--groups ggml_q8_0,group=16", "in --groups, group is 16, but the preset's is 32"},
            {"--groups ggml_q8_0,record_bytes=60", "in --groups, record_bytes is 60, but its places take 68"},
            {"--groups mla_v4 --scale-dynamic s.npy", "in --groups, n_grouped is 448, but must be 1 to head_dim, 64"},
            {"--groups " + fields_of_q8_0 + ",data_offset=1", "in --groups, "},
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
    dir.write_bytes("bad.npy", {n_tokens, n_heads, 68}, Bytes(n_tokens * n_heads * 68, 255));
    dir.fail(1, "rotate bad.npy -o y.npy --from-positions 0:5 --groups ggml_q8_0", "must be finite");
}
