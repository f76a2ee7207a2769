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
    using Shape = std::array<std::int64_t, 3>;
    constexpr std::int64_t most = INT64_MAX;
    const halyard::pool pool(2);
    for (const Shape &shape : {Shape{0, 3, 2}, Shape{2, 0, 2}, Shape{2, 3, 0}, Shape{0, 0, 0}, Shape{0, most, most},
                               Shape{most, 0, most}, Shape{most, most, 0}, Shape{1, 1LL << 40, 0}}) {
        CAPTURE(shape);
        RotationRun s;
        for (halyard_tensor *tensor : {&s.x[0], &s.y[0], &s.x[1], &s.y[1]}) {
            tensor->data = nullptr;
            std::copy(shape.begin(), shape.end(), tensor->shape);
            set_strides(*tensor, {INT64_MAX, INT64_MIN, 0, 0});
        }
        const std::vector<float> before = s.arena;
        for (const halyard_executor *executor : {static_cast<const halyard_executor *>(nullptr), pool.executor()}) {
            s.args.executor = executor;
            s.run();
            CHECK(s.holds(before));
        }
        // Positions of no token may lie nowhere, with any strides.
        s.args.positions = &s.positions;
        s.positions = {s.positions.size, HALYARD_INT32, 0, nullptr, {shape[0], shape[1]}, {INT64_MIN, INT64_MIN}, 0, 0};
        if (shape[0] == 0 || shape[1] == 0) {
            s.run();
        }
    }
}

TEST_CASE("runs: an empty tensor does not matter, wherever it lies, and does not stop the others", "[errors]") {
    RotationRun s, whole;
    s.x[1].data = s.y[1].data = s.y[0].data;
    // This leaves its spans on the stack, which the next run must not read.
    s.runs.refuse(HALYARD_ERROR_OVERLAP, {"y[1]", "y[0]"}, {});
    s.runs.accept({{s.x[1].shape[2], 0}, {s.y[1].shape[2], 0}});
    s.x[1] = whole.x[1];
    s.y[1] = whole.y[1];
    s.x[1].data = s.at(256);
    s.y[1].data = s.at(1280);
    s.x[0].shape[2] = s.y[0].shape[2] = 0;
    s.x[0].data = s.y[0].data = nullptr;
    s.run();
    whole.run();
    CHECK(std::equal(s.at(1280), s.at(1536), whole.at(1280)));
    CHECK(*s.at(1024) == 1025.0f);
    // Its shape is still checked.
    s.x[0].shape[1] = s.y[0].shape[1] = 7;
    s.runs.refuse(HALYARD_ERROR_SHAPE, {"x[1].shape[1] is 3", "7"}, {});
}
