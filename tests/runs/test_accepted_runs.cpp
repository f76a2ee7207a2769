// Runs that look odd but are right. They must be accepted, and give the bits of a plain run.
#include "checks/rotate.h"
#include "rotation_run.h"

#include <algorithm>

namespace {

/// Rotates dense copies of a run's inputs out of place, and checks that the run itself gives the same bits and
/// writes nothing but its outputs.
void check_same_as_dense(RotationRun &given) {
    RotationRun dense;
    const auto bytes_of_arena = [&] {
        const char *const bytes = reinterpret_cast<const char *>(given.arena.data());
        return std::vector<char>(bytes, bytes + given.arena.size() * 4);
    };
    for (int k = 0; k < 2; k++) {
        for (std::int64_t i = 0; i < count_elements(given.x[k]); i++) {
            std::memcpy(dense.at(256 * k + i), element_at(given.x[k], i), 4);
        }
    }
    std::vector<char> expected_bytes = bytes_of_arena();
    dense.run();
    given.run();
    for (int k = 0; k < 2; k++) {
        for (std::int64_t i = 0; i < count_elements(given.y[k]); i++) {
            const auto offset = element_at(given.y[k], i) - reinterpret_cast<const char *>(given.arena.data());
            std::memcpy(expected_bytes.data() + offset, dense.at(1024 + 256 * k + i), 4);
        }
    }
    CHECK(bytes_of_arena() == expected_bytes);
}

}  // namespace

TEST_CASE("runs: layouts that share a buffer without sharing elements", "[errors]") {
    RotationRun s;
    // [batch, tokens, q q k v, head_dim] in one buffer.
    constexpr std::int64_t row = 4 * RotationRun::D;
    const Strides packed = {RotationRun::n_tokens * row, row, RotationRun::D, 1};
    const auto slice = [&](halyard_tensor &tensor, std::int64_t head) {
        tensor.data = s.at(head * RotationRun::D);
        set_strides(tensor, packed);
    };
    SECTION("packed QKV, k into the slot of v") {
        slice(s.x[0], 0);
        slice(s.x[1], 2);
        s.y[0] = s.x[0];
        slice(s.y[1], 3);
    }
    SECTION("even elements in, odd elements out") {
        set_strides(s.x[0], {96, 32, 16, 2});
        s.y[0] = s.x[0];
        s.y[0].data = static_cast<float *>(s.x[0].data) + 1;
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
        RotationRun s;
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
            s.run();
            CHECK(s.holds(before));
        }
    }
}

TEST_CASE("runs: positions of no token may lie nowhere, with any strides", "[errors]") {
    for (const int d : {0, 1}) {
        RotationRun s;
        s.args.positions = &s.positions;
        s.positions.data = nullptr;
        s.positions.strides[0] = s.positions.strides[1] = INT64_MIN;
        s.positions.shape[d] = 0;
        for (halyard_tensor *tensor : {&s.x[0], &s.y[0], &s.x[1], &s.y[1]}) {
            tensor->shape[d] = 0;
        }
        s.run();
    }
}

TEST_CASE("runs: where an empty tensor would lie does not matter", "[errors]") {
    RotationRun s;
    s.x[1].data = s.y[1].data = s.y[0].data;
    // This leaves its spans on the stack, which the next run must not read.
    s.runs.refuse(HALYARD_ERROR_OVERLAP, {"y[1]", "y[0]"}, {});
    s.x[1].shape[2] = s.y[1].shape[2] = 0;
    s.run();
}

TEST_CASE("runs: an empty tensor does not stop the others", "[errors]") {
    RotationRun s, whole;
    s.x[0].shape[2] = s.y[0].shape[2] = 0;
    s.x[0].data = s.y[0].data = nullptr;
    s.run();
    whole.run();
    CHECK(std::equal(s.at(1280), s.at(1536), whole.at(1280)));
    CHECK(*s.at(1024) == 1025.0f);
    // Its shape is still checked.
    s.x[0].shape[1] = s.y[0].shape[1] = 7;
    s.x[1].shape[1] = s.y[1].shape[1] = 3;
    s.runs.refuse(HALYARD_ERROR_SHAPE, {"x[1].shape[1] is 3", "7"}, {});
}
