// Runs that look odd but are right. They must be accepted, and give the bits of a plain run.
#include "checks/rotate.h"
#include "scene.h"

#include <algorithm>

TEST_CASE("runs: a clamped position and an identity rotate as they should", "[errors]") {
    const auto rotated = [](std::int32_t position, std::int32_t policy) {
        Scene scene;
        scene.args.positions = &scene.positions;
        scene.args.bad_position = policy;
        std::fill_n(reinterpret_cast<std::int32_t *>(scene.at(2048)), 6, position);
        check_accepted(scene);
        return std::vector<float>(scene.at(1024), scene.at(1024 + 96));
    };
    for (const std::int32_t bad : {10, INT32_MAX}) {
        CHECK(rotated(bad, HALYARD_BAD_POSITION_CLAMP) == rotated(9, HALYARD_BAD_POSITION_ERROR));
        CHECK(rotated(bad, HALYARD_BAD_POSITION_IDENTITY) == rotated(0, HALYARD_BAD_POSITION_ERROR));
    }
    for (const std::int32_t bad : {-1, INT32_MIN}) {
        CHECK(rotated(bad, HALYARD_BAD_POSITION_CLAMP) == rotated(0, HALYARD_BAD_POSITION_ERROR));
        CHECK(rotated(bad, HALYARD_BAD_POSITION_IDENTITY) == rotated(0, HALYARD_BAD_POSITION_ERROR));
    }
    CHECK(rotated(9, HALYARD_BAD_POSITION_ERROR) != rotated(0, HALYARD_BAD_POSITION_ERROR));
}

namespace {

/// Rotates dense copies of the scene's inputs out of place, and checks that the scene's own run gives the same bits and
/// writes nothing but its outputs.
void check_same_as_dense(Scene &scene) {
    Scene dense;
    dense.desc = scene.desc;
    dense.args.positions = scene.args.positions;
    const auto bytes_of_arena = [&] {
        const char *const bytes = reinterpret_cast<const char *>(scene.arena.data());
        return std::vector<char>(bytes, bytes + scene.arena.size() * 4);
    };
    for (std::size_t k = 0; k < scene.desc.tensors.size(); k++) {
        for (std::int64_t i = 0; i < count_elements(scene.x[k]); i++) {
            std::memcpy(dense.at(256 * static_cast<std::int64_t>(k) + i), element_at(scene.x[k], i), 4);
        }
    }
    std::vector<char> expected_bytes = bytes_of_arena();
    check_accepted(dense);
    check_accepted(scene);
    for (std::size_t k = 0; k < scene.desc.tensors.size(); k++) {
        for (std::int64_t i = 0; i < count_elements(scene.y[k]); i++) {
            const auto offset = element_at(scene.y[k], i) - reinterpret_cast<const char *>(scene.arena.data());
            std::memcpy(expected_bytes.data() + offset, dense.at(1024 + 256 * static_cast<std::int64_t>(k) + i), 4);
        }
    }
    CHECK(bytes_of_arena() == expected_bytes);
}

}  // namespace

TEST_CASE("runs: layouts that share a buffer without sharing elements", "[errors]") {
    Scene s;
    // [batch, tokens, q q k v, head_dim] in one buffer.
    constexpr std::int64_t row = 4 * Scene::head_dim;
    const Strides packed = {Scene::tokens * row, row, Scene::head_dim, 1};
    const auto slice = [&](halyard_tensor &tensor, std::int64_t head) {
        tensor.data = s.at(head * Scene::head_dim);
        set_strides(tensor, packed);
    };
    SECTION("packed QKV in place") {
        slice(s.x[0], 0);
        slice(s.x[1], 2);
        s.y[0] = s.x[0];
        s.y[1] = s.x[1];
    }
    SECTION("packed QKV, k into the slot of v") {
        slice(s.x[0], 0);
        slice(s.x[1], 2);
        s.y[0] = s.x[0];
        slice(s.y[1], 3);
    }
    SECTION("packed QKV, q into another buffer of the same kind") {
        slice(s.x[0], 0);
        slice(s.y[0], 0);
        s.y[0].data = s.at(512);
        slice(s.x[1], 2);
        s.y[1] = s.x[1];
    }
    SECTION("[batch, heads, tokens, head_dim] in place, with room between the heads") {
        for (int i = 0; i < 2; i++) {
            set_strides(s.x[i], {Scene::n_heads[i] * 64, Scene::head_dim, 64, 1});
            s.y[i] = s.x[i];
        }
    }
    SECTION("from [batch, tokens, heads, head_dim] to [batch, heads, tokens, head_dim]") {
        set_strides(s.y[0], {48, Scene::head_dim, Scene::tokens * Scene::head_dim, 1});
    }
    SECTION("an axis for the tensors, between heads and head_dim") {
        set_strides(s.x[0], {96, 32, 16, 1});
        s.y[0] = s.x[0];
        s.y[0].data = static_cast<float *>(s.x[0].data) + Scene::head_dim;
    }
    SECTION("even elements in, odd elements out") {
        set_strides(s.x[0], {96, 32, 16, 2});
        s.y[0] = s.x[0];
        s.y[0].data = static_cast<float *>(s.x[0].data) + 1;
    }
    SECTION("backwards") {
        for (int d = 0; d < 4; d++) {
            s.x[0].data = static_cast<float *>(s.x[0].data) + (s.x[0].shape[d] - 1) * s.x[0].strides[d];
            s.x[0].strides[d] = -s.x[0].strides[d];
        }
        set_strides(s.y[0], {-48, 16, -8, 1});
        s.y[0].data = static_cast<float *>(s.y[0].data) + 48 + 8;
    }
    SECTION("misaligned by a byte") {
        for (int i = 0; i < 2; i++) {
            s.x[i].data = static_cast<char *>(s.x[i].data) + 1;
            s.y[i].data = static_cast<char *>(s.y[i].data) + 3;
        }
    }
    SECTION("misaligned in place") {
        for (int i = 0; i < 2; i++) {
            s.x[i].data = static_cast<char *>(s.x[i].data) + 2;
            s.y[i] = s.x[i];
        }
    }
    SECTION("one token for all batch rows") { s.x[0].strides[0] = 0; }
    SECTION("one head for all heads and tokens") { s.x[0].strides[1] = s.x[0].strides[2] = 0; }
    SECTION("one element for all") { set_strides(s.x[0], {0, 0, 0, 0}); }
    SECTION("inputs that share memory with each other") { s.x[1].data = s.x[0].data; }
    SECTION("strides that are never walked") {
        s.x[1].strides[2] = INT64_MIN;
        s.y[1].strides[2] = INT64_MAX;
    }
    SECTION("in place, though strides that are never walked differ") {
        s.y[1] = s.x[1];
        s.x[1].strides[2] = INT64_MAX;
        s.y[1].strides[2] = 0;
    }
    check_same_as_dense(s);
}

TEST_CASE("runs: nothing to do is fine, however large", "[errors]") {
    struct Empty {
        std::int64_t batch, tokens, heads;
    };
    for (const auto &[n_batch, n_tokens, heads] : std::vector<Empty>{{0, 3, 2},
                                                                     {2, 0, 2},
                                                                     {2, 3, 0},
                                                                     {0, 0, 0},
                                                                     {0, INT64_MAX, INT64_MAX},
                                                                     {INT64_MAX, 0, INT64_MAX},
                                                                     {INT64_MAX, INT64_MAX, 0},
                                                                     {1, std::int64_t{1} << 40, 0}}) {
        CAPTURE(n_batch, n_tokens, heads);
        Scene s;
        for (int i = 0; i < 2; i++) {
            for (halyard_tensor *tensor : {&s.x[i], &s.y[i]}) {
                tensor->data = nullptr;
                tensor->shape[0] = n_batch;
                tensor->shape[1] = n_tokens;
                tensor->shape[2] = heads;
                set_strides(*tensor, {INT64_MAX, INT64_MIN, 0, 0});
            }
        }
        const halyard::pool pool(2);
        const std::vector<float> before = s.arena;
        for (const halyard_executor *executor : {static_cast<const halyard_executor *>(nullptr), pool.executor()}) {
            s.args.executor = executor;
            check_accepted(s);
            CHECK(s.arena == before);
        }
    }
}

TEST_CASE("runs: positions of no token may lie nowhere, with any strides", "[errors]") {
    for (const int d : {0, 1}) {
        Scene s;
        s.args.positions = &s.positions;
        s.positions.data = nullptr;
        s.positions.strides[0] = s.positions.strides[1] = INT64_MIN;
        s.positions.shape[d] = 0;
        for (halyard_tensor *tensor : {&s.x[0], &s.y[0], &s.x[1], &s.y[1]}) {
            tensor->shape[d] = 0;
        }
        check_accepted(s);
    }
}

TEST_CASE("runs: where an empty tensor would lie does not matter", "[errors]") {
    Scene s;
    s.x[1].data = s.y[1].data = s.y[0].data;
    check_refused(s, HALYARD_ERROR_OVERLAP,
                  {"y[1]", "y[0]"});  // this leaves its spans on the stack, which the next run must not read
    s.x[1].shape[2] = s.y[1].shape[2] = 0;
    check_accepted(s);
}

TEST_CASE("runs: an empty tensor does not stop the others", "[errors]") {
    Scene s, whole;
    s.x[0].shape[2] = s.y[0].shape[2] = 0;
    s.x[0].data = s.y[0].data = nullptr;
    check_accepted(s);
    check_accepted(whole);
    CHECK(std::equal(s.at(1280), s.at(1536), whole.at(1280)));
    CHECK(*s.at(1024) == 1025.0f);
    // Its shape is still checked.
    s.x[0].shape[1] = s.y[0].shape[1] = 7;
    s.x[1].shape[1] = s.y[1].shape[1] = 3;
    check_refused(s, HALYARD_ERROR_SHAPE, {"x[1].shape[1] is 3", "7"});
}
