#include "native/native.h"

#include "native/work.h"
#include "rivals/loops.h"

namespace {

std::string why, text;

/// Calls; a failure becomes a sentence and this value.
template <typename Value, typename Call>
Value guarded(Value failed, const Call &call) {
    why.clear();
    try {
        return call();
    } catch (const std::exception &error) {
        why = error.what();
        return failed;
    }
}

}  // namespace

const char *bench_error() { return why.c_str(); }

const char *bench_compilers() {
    text = HALYARD_COMPILER "\nHalide " HALYARD_HALIDE;
    for (const auto &[name, loops] : bench::all_loops()) {
        text += std::string("\n") + loops->compiler;
    }
    return text.c_str();
}

bench_library *bench_open(const char *path) {
    return guarded<bench_library *>(nullptr, [&] { return new bench_library(path); });
}
void bench_close(bench_library *library) { delete library; }
const char *bench_targets(const bench_library *library) { return library->targets.c_str(); }

bench_work *bench_prepare(const bench_desc *desc) {
    return guarded<bench_work *>(nullptr, [&] {
        if (desc->size != sizeof(*desc)) {
            throw bench::Failed("the description has another size than native.h's");
        }
        return new bench_work(*desc);
    });
}
void bench_release(bench_work *work) { delete work; }
void bench_reset(bench_work *work) { work->reset(); }
void bench_keep(bench_work *work) { work->keep(); }
double bench_difference(const bench_work *work) { return work->difference(); }

void *bench_place(const bench_work *work, const char *what, int64_t copy, int64_t part) {
    const bench_work::Layout &layout = work->layout;
    const std::size_t step = static_cast<std::size_t>(copy) * layout.step;
    const std::map<std::string, std::size_t> places = {
        {"positions", layout.positions}, {"slots", layout.slots},         {"rows", layout.rows + step},
        {"x", layout.x[part].at + step}, {"y", layout.y[part].at + step}, {"weight", layout.weight[part]}};
    const auto found = places.find(what);
    return found == places.end() ? nullptr : work->at<void>(found->second);
}
int64_t bench_copies(const bench_work *work) { return static_cast<int64_t>(work->layout.n_copies); }

bench_subject *bench_subject_of(bench_work *work, const char *way, bench_library *library, const char *target) {
    return guarded<bench_subject *>(nullptr, [&]() -> bench_subject * {
        auto made = bench::make_loop(*work, way);
        if (made == nullptr) {
            made = bench::make_call(*work, way, *library, target != nullptr && *target != 0 ? target : nullptr);
        }
        if (made == nullptr) {
            return nullptr;
        }
        work->subjects.push_back(std::move(made));
        return work->subjects.back().get();
    });
}
const char *bench_target(const bench_subject *subject) { return subject->target.c_str(); }
double bench_seconds(bench_subject *subject, int64_t n) {
    return guarded(-1.0, [&] { return subject->seconds(n); });
}
