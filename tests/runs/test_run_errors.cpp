// Bad arguments of runs: everything that can be wrong is made wrong, one thing at a time. Each mistake has its own
// status and a sentence that names the argument and its value, and nothing is written.
#include "scene.h"

namespace {

using Change = std::function<void(Scene &)>;

void refuse(const std::string &what, halyard_status status, const Words &words, const Change &change) {
    CAPTURE(what);
    Scene scene;
    change(scene);
    check_refused(scene, status, words);
}

/// The same for an argument that holds a bad value: the sentence names both.
void refuse_value(const std::string &name, std::int64_t value, halyard_status status, const Change &change) {
    refuse(name, status, {name, text(value)}, change);
}

/// Passes positions to the run, and changes something about them.
template <typename Function>
Change with_positions(Function change) {
    return [=](Scene &s) {
        s.args.positions = &s.positions;
        change(s.positions);
    };
}

/// Passes an executor to the run, and changes something about it.
template <typename Function>
Change with_executor(Function change) {
    return [=](Scene &s) {
        s.args.executor = &s.executor;
        change(s.executor);
    };
}

}  // namespace

TEST_CASE("errors: runs, pointers and enumerations", "[errors]") {
    const auto refuse_null = [](const std::string &name, const Change &change) {
        refuse(name, HALYARD_ERROR_NULL_POINTER, {name + " is NULL"}, change);
    };
    refuse_null("angles", [](Scene &s) { s.args.angles = nullptr; });
    refuse_null("x", [](Scene &s) { s.args.x = nullptr; });
    refuse_null("y", [](Scene &s) { s.args.y = nullptr; });
    refuse_null("x[0].data", [](Scene &s) { s.x[0].data = nullptr; });
    refuse_null("y[1].data", [](Scene &s) { s.y[1].data = nullptr; });
    refuse_null("executor.parallel_for", with_executor([](auto &executor) { executor.parallel_for = nullptr; }));
    refuse_null("positions.data", with_positions([](auto &positions) { positions.data = nullptr; }));

    for (const std::uint32_t size : bad_sizes<halyard_run_args>()) {
        refuse_value("args.size", size, HALYARD_ERROR_STRUCT_SIZE, [=](Scene &s) { s.args.size = size; });
    }
    for (const std::uint32_t size : bad_sizes<halyard_executor>()) {
        refuse_value("executor.size", size, HALYARD_ERROR_STRUCT_SIZE,
                     with_executor([=](auto &executor) { executor.size = size; }));
    }
    for (const std::uint32_t size : bad_sizes<halyard_positions>()) {
        refuse_value("positions.size", size, HALYARD_ERROR_STRUCT_SIZE,
                     with_positions([=](auto &positions) { positions.size = size; }));
    }
    for (const std::uint32_t size : bad_sizes<halyard_tensor>()) {
        refuse_value("x[1].size", size, HALYARD_ERROR_STRUCT_SIZE, [=](Scene &s) { s.x[1].size = size; });
        refuse_value("y[0].size", size, HALYARD_ERROR_STRUCT_SIZE, [=](Scene &s) { s.y[0].size = size; });
    }
    for (const std::int32_t value : {-1, 7, INT32_MAX, INT32_MIN}) {
        const auto unknown = [=](const char *name, const Change &change) {
            refuse_value(name, value, HALYARD_ERROR_UNKNOWN_VALUE, change);
        };
        unknown("bad_position", [=](Scene &s) { s.args.bad_position = value; });
        unknown("x[1].dtype", [=](Scene &s) { s.x[1].dtype = value; });
        unknown("y[0].dtype", [=](Scene &s) { s.y[0].dtype = value; });
        unknown("positions.type", with_positions([=](auto &positions) { positions.type = value; }));
        unknown("positions.consecutive", with_positions([=](auto &positions) { positions.consecutive = value; }));
        unknown("x[0].device", [=](Scene &s) { s.x[0].device = value; });
        unknown("y[1].device", [=](Scene &s) { s.y[1].device = value; });
        unknown("x[1].reserved", [=](Scene &s) { s.x[1].reserved = value; });
        unknown("y[0].reserved", [=](Scene &s) { s.y[0].reserved = value; });
    }
    for (const std::int32_t device : {HALYARD_CUDA, HALYARD_OPENCL}) {
        refuse_value("x[0].device", device, HALYARD_ERROR_UNSUPPORTED, [=](Scene &s) { s.x[0].device = device; });
        refuse_value("y[1].device", device, HALYARD_ERROR_UNSUPPORTED, [=](Scene &s) { s.y[1].device = device; });
    }
    for (const std::int32_t value : {0, -1, 1025, INT32_MAX, INT32_MIN}) {
        refuse_value("executor.n_threads", value, HALYARD_ERROR_THREADS,
                     with_executor([=](auto &executor) { executor.n_threads = value; }));
    }

    Scene scene;
    const halyard::plan plan(scene.desc);
    check_refused(HALYARD_ERROR_NULL_POINTER, {"plan is NULL"},
                  [&](auto *error) { return halyard_run(nullptr, &scene.args, error); });
    check_refused(HALYARD_ERROR_NULL_POINTER, {"args is NULL"},
                  [&](auto *error) { return halyard_run(plan.get(), nullptr, error); });
}

TEST_CASE("errors: runs, shapes that do not agree", "[errors]") {
    refuse("rotary_dim of the source", HALYARD_ERROR_MISMATCH, {"angles", "6", "4"}, [](Scene &s) {
        s.take_source(halyard::angle_source::table(halyard::frequencies::from_base(100.0, 6), 0, 9));
    });
    refuse("x dtype", HALYARD_ERROR_MISMATCH, {"x[1].dtype is f16, but the plan's is f32"},
           [](Scene &s) { s.x[1].dtype = HALYARD_F16; });
    refuse("y dtype", HALYARD_ERROR_MISMATCH, {"y[0].dtype is bf16, but the plan's is f32"},
           [](Scene &s) { s.y[0].dtype = HALYARD_BF16; });
    refuse("plan's dtype", HALYARD_ERROR_MISMATCH, {"x[1].dtype is f32, but the plan's is f16"},
           [](Scene &s) { s.desc.tensors[1].dtype = HALYARD_F16; });

    const auto refuse_shape = [](const Words &words, const Change &change) {
        refuse("shape", HALYARD_ERROR_SHAPE, words, change);
    };
    refuse_shape({"y[0].shape[1] is 4", "3"}, [](Scene &s) { s.y[0].shape[1] = 4; });
    refuse_shape({"x[1].shape[1] is 2", "3"}, [](Scene &s) { s.x[1].shape[1] = s.y[1].shape[1] = 2; });
    refuse_shape({"x[1].shape[0] is 1", "2"}, [](Scene &s) { s.x[1].shape[0] = s.y[1].shape[0] = 1; });
    refuse_shape({"y[1].shape[2] is 2", "1"}, [](Scene &s) { s.y[1].shape[2] = 2; });
    refuse_shape({"y[0].shape[1] is 0"}, [](Scene &s) { s.y[0].shape[1] = 0; });
    refuse_shape({"y[0].shape[2] is 2"}, [](Scene &s) { s.x[0].shape[2] = 0; });
    for (const int d : {0, 1, 2, 3}) {
        for (const std::int64_t value : Numbers{-1, INT64_MIN}) {
            const std::string where = ".shape[" + text(d) + "] is " + text(value);
            refuse_shape({"x[1]" + where}, [=](Scene &s) { s.x[1].shape[d] = value; });
            refuse_shape({"y[0]" + where}, [=](Scene &s) { s.y[0].shape[d] = value; });
        }
    }
    for (const int d : {0, 1}) {  // even where all tensors agree on it
        refuse_shape({"x[0].shape[" + text(d) + "] is -1"},
                     [=](Scene &s) { s.x[0].shape[d] = s.y[0].shape[d] = s.x[1].shape[d] = s.y[1].shape[d] = -1; });
    }
    const std::int64_t head_dim = Scene::head_dim;
    for (const std::int64_t value : Numbers{0, head_dim - 1, head_dim + 1, INT64_MAX}) {
        refuse("head_dim", HALYARD_ERROR_MISMATCH, {"x[1].shape[3] is " + text(value), text(head_dim)},
               [=](Scene &s) { s.x[1].shape[3] = value; });
        refuse("head_dim", HALYARD_ERROR_MISMATCH, {"y[0].shape[3] is " + text(value), text(head_dim)},
               [=](Scene &s) { s.y[0].shape[3] = value; });
    }
    struct PositionShape {
        std::int32_t consecutive;
        std::int64_t rows, columns;
    };
    for (const PositionShape &bad : std::vector<PositionShape>{
             {0, 2, 2}, {0, 3, 3}, {0, 0, 3}, {0, 2, 0}, {0, -1, 3}, {0, 2, -3}, {1, 2, 3}, {1, 3, 1}, {1, 2, 0}}) {
        refuse_shape({"positions.shape", text(bad.rows), text(bad.columns)}, with_positions([=](auto &positions) {
                         positions.consecutive = bad.consecutive;
                         positions.shape[0] = bad.rows;
                         positions.shape[1] = bad.columns;
                     }));
    }
}

TEST_CASE("errors: runs, sizes and strides that leave the address space", "[errors]") {
    const auto refuse_overflow = [](const std::string &what, const std::string &name, const std::string &number,
                                    const Change &change) {
        refuse(what, HALYARD_ERROR_OVERFLOW, {name, "address space", number}, change);
    };
    for (const std::int64_t stride :
         Numbers{INT64_MIN, INT64_MAX, INT64_MAX / 2, INT64_MIN / 4, 1LL << 60, -(1LL << 60)}) {
        for (const int d : {0, 1, 2, 3}) {
            refuse_overflow("stride of x", "x[0]", text(stride), [=](Scene &s) { s.x[0].strides[d] = stride; });
            refuse_overflow("stride of y", "y[0]", text(stride), [=](Scene &s) { s.y[0].strides[d] = stride; });
        }
        refuse_overflow("stride of positions", "positions", text(stride),
                        with_positions([=](auto &positions) { positions.strides[1] = stride; }));
    }
    for (const std::int64_t size : Numbers{INT64_MAX, INT64_MAX / 2, 1LL << 59}) {
        refuse_overflow("heads", "x[1]", text(size), [=](Scene &s) { s.x[1].shape[2] = s.y[1].shape[2] = size; });
        refuse_overflow("tokens", "y[0]", text(size), [=](Scene &s) {
            for (int i = 0; i < 2; i++) {
                s.x[i].shape[1] = s.y[i].shape[1] = size;
                s.x[i].strides[1] = 0;  // only the output is at fault
            }
        });
    }
    // Each dimension would fit, but not their sum: with elements on both sides of data, and above it.
    refuse_overflow("below zero", "x[0]", "", [](Scene &s) {
        set_strides(s.x[0], {-(1LL << 56), -(1LL << 56), 8, 1});
    });
    refuse_overflow("below zero by 2^64, which wraps to nothing", "x[0]", "", [](Scene &s) {
        set_strides(s.x[0], {-(1LL << 61), -(1LL << 60), 8, 1});
    });
    refuse_overflow("the end of memory", "x[0]", "",
                    [](Scene &s) { s.x[0].data = reinterpret_cast<void *>(UINTPTR_MAX - 63); });
    refuse_overflow("the start of memory", "y[1]", "", [](Scene &s) {
        s.y[1].data = reinterpret_cast<void *>(std::uintptr_t{8});
        s.y[1].strides[3] = -1;
    });
}

TEST_CASE("errors: runs, outputs whose elements could meet", "[errors]") {
    struct BadStrides {
        std::string what;
        Strides strides;
    };
    for (const BadStrides &bad : std::vector<BadStrides>{
             {"one batch row over the other", {0, 16, 8, 1}},
             {"one token over the other", {48, 0, 8, 1}},
             {"one head over the other", {48, 16, 0, 1}},
             {"one element over the other", {48, 16, 8, 0}},
             {"all on one", {0, 0, 0, 0}},
             {"heads nested by one element", {48, 16, 7, 1}},
             {"tokens nested in heads", {48, 8, 8, 1}},
             {"tokens nested by one element", {48, 15, 8, 1}},
             {"batch rows nested by one element", {47, 16, 8, 1}},
             {"downwards, nested by one element", {-47, 16, 8, 1}},
             {"two ways down, nested", {48, -16, -7, 1}},
             {"downwards within the head", {48, 16, 7, -1}},
             {"heads that meet only across the members", {48, 16, 4, 2}},
         }) {
        Words words = {"y[0]"};
        for (const std::int64_t stride : bad.strides) {
            words.push_back(text(stride));
        }
        refuse(bad.what, HALYARD_ERROR_STRIDE, words, [=](Scene &s) { set_strides(s.y[0], bad.strides); });
        refuse(bad.what + ", in place", HALYARD_ERROR_STRIDE, words, [=](Scene &s) {
            s.x[0].data = s.y[0].data;
            set_strides(s.x[0], bad.strides);
            set_strides(s.y[0], bad.strides);
        });
    }
}

TEST_CASE("errors: runs, outputs over other arguments", "[errors]") {
    const auto refuse_overlap = [](const std::string &what, const std::string &output, const std::string &other,
                                   const Change &change) {
        refuse(what, HALYARD_ERROR_OVERLAP, {output, other}, change);
    };
    const std::ptrdiff_t n_bytes = Scene::batch * Scene::tokens * Scene::n_heads[0] * Scene::head_dim * 4;
    for (const std::ptrdiff_t bytes : {1, -1, 4, -4, 32, 64, static_cast<int>(n_bytes) - 1}) {
        refuse_overlap("shifted by " + text(bytes) + " bytes", "y[0]", "x[0]",
                       [=](Scene &s) { s.y[0].data = static_cast<char *>(s.x[0].data) + bytes; });
    }
    const auto refuse_in_place = [&](const std::string &what, const Change &change) {
        refuse_overlap("in place, but " + what, "y[0]", "x[0]", [=](Scene &s) {
            s.y[0].data = s.x[0].data;
            change(s);
        });
    };
    refuse_in_place("heads and tokens are transposed", [](Scene &s) { set_strides(s.y[0], {48, 8, 24, 1}); });
    refuse_in_place("the heads change places", [](Scene &s) {
        s.y[0].data = static_cast<float *>(s.x[0].data) + Scene::head_dim;
        s.y[0].strides[2] = -Scene::head_dim;
    });
    refuse_in_place("to another pairing",
                    [](Scene &s) { s.desc.tensors[0].out_pairing = HALYARD_PAIRING_INTERLEAVED; });
    refuse_in_place("tokens further apart", [](Scene &s) { set_strides(s.y[0], {96, 32, 8, 1}); });
    refuse_in_place("heads further apart", [](Scene &s) {
        set_strides(s.x[0], {120, 40, 16, 1});
        set_strides(s.y[0], {120, 40, 20, 1});
    });
    refuse_in_place("batch rows further apart", [](Scene &s) { s.y[0].strides[0] += 1; });
    refuse_in_place("elements further apart", [](Scene &s) {
        set_strides(s.x[0], {120, 40, 20, 1});
        set_strides(s.y[0], {120, 40, 20, 2});
    });
    refuse_in_place("x is one token for all", [](Scene &s) { s.x[0].strides[1] = 0; });

    refuse_overlap("q's output over k's input", "y[0]", "x[1]", [](Scene &s) { s.y[0].data = s.x[1].data; });
    refuse_overlap("k's output over q's input", "y[1]", "x[0]", [](Scene &s) { s.y[1].data = s.x[0].data; });
    refuse_overlap("k's output over q's output", "y[1]", "y[0]",
                   [](Scene &s) { s.y[1].data = static_cast<float *>(s.y[0].data) + 95; });
    refuse_overlap("both in place of the same memory", "y[1]", "y[0]",
                   [](Scene &s) { s.x[1] = s.y[1] = s.y[0] = s.x[0]; });
    refuse_overlap("an output over the positions", "y[1]", "positions", [](Scene &s) {
        s.args.positions = &s.positions;
        s.y[1].data = s.at(2048 + 5);
    });
    const auto take_given = [](Scene &s) {
        s.args.positions = &s.positions;
        s.take_source(halyard::angle_source::given(s.at(3072), s.at(3080), 4, 2, Scene::rotary_dim));
    };
    refuse_overlap("an output over given cos", "y[1]", "rows of the angle source", [=](Scene &s) {
        take_given(s);
        s.y[1].data = s.at(3072 - Scene::batch * Scene::tokens * Scene::head_dim + 1);
    });
    refuse_overlap("an output over given sin", "y[0]", "rows of the angle source", [=](Scene &s) {
        take_given(s);
        s.y[0].data = s.at(3087);
    });
}

TEST_CASE("errors: runs, positions that the source does not cover", "[errors]") {
    // The run is refused, but the other policies accept it.
    const auto refuse_position = [](const std::string &what, const Words &words, const Change &change) {
        refuse(what, HALYARD_ERROR_POSITION, words, change);
        for (const std::int32_t policy : {HALYARD_BAD_POSITION_CLAMP, HALYARD_BAD_POSITION_IDENTITY}) {
            CAPTURE(what, policy);
            Scene scene;
            change(scene);
            scene.args.bad_position = policy;
            check_accepted(scene);
        }
    };
    const std::string where = "positions[batch 1, token 1] is ";
    for (const std::int32_t value : {-1, 10, INT32_MAX, INT32_MIN}) {
        refuse_position("int32", {where + text(value), "0 to 9"}, [=](Scene &s) {
            s.args.positions = &s.positions;
            std::memcpy(s.at(2048 + 4), &value, 4);
        });
    }
    for (const std::int64_t value : Numbers{-1, 10, 1LL << 32, (1LL << 32) + 1, -(1LL << 32), INT64_MAX, INT64_MIN}) {
        refuse_position("int64", {where + text(value), "0 to 9"}, [=](Scene &s) {
            s.args.positions = &s.positions;
            s.positions.type = HALYARD_INT64;
            const std::int64_t values[] = {0, 1, 2, 3, value, 5};
            std::memcpy(s.at(2048), values, sizeof(values));
        });
    }
    const auto refuse_start = [&](std::int64_t value, const std::string &words) {
        refuse_position("start " + text(value), {words}, [=](Scene &s) {
            const std::int64_t values[] = {0, value};
            std::memcpy(s.at(2048), values, sizeof(values));
            s.positions = halyard::consecutive_positions(reinterpret_cast<const std::int64_t *>(s.at(2048)), 2);
            s.args.positions = &s.positions;
        });
    };
    refuse_start(8, "positions[batch 1, token 2] is 10");
    refuse_start(-1, "positions[batch 1, token 0] is -1");
    refuse_start(INT64_MAX, "positions[batch 1, token 0]");
    refuse_position("no positions, but too few rows", {"positions[batch 0, token 2] is 2", "0 to 1"},
                    [](Scene &s) { s.take_source(halyard::angle_source::table(s.frequencies, 0, 1)); });
}
