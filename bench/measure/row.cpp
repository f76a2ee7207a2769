#include "measure/row.h"

#include "measure/rotation.h"
#include "measure/share.h"
#include "rivals/loops.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace halyard::bench {

namespace {

/// From this error on, a result is wrong. What rounds angles to float32 or results to bf16 stays below it.
constexpr double wrong_error = 0.05;

/// Something in this process that does the work.
struct Local {
    std::function<void()> call_once;  // on slot 0
    Subject subject;
};

template <typename Call>
Local make_local(std::string name, PlacedWork &placed, Call call) {
    return {[call]() mutable { call(std::size_t(0)); },
            make_subject(std::move(name), [call, &placed]() mutable { call(placed.next_slot()); })};
}

std::vector<const halyard_loops *> all_loops() {
    std::vector<const halyard_loops *> all;
#if defined(HALYARD_LOOPS_GCC)
    all.push_back(&halyard_loops_gcc);
#endif
#if defined(HALYARD_LOOPS_CLANG)
    all.push_back(&halyard_loops_clang);
#endif
    return all;
}

Local make_loop(const halyard_loops &loops, PlacedWork &placed, const halyard_executor *executor) {
    const Work &work = placed.work();
    const int out = work.model.out == pairing::half ? 0 : 1;
    const int which = work.in_place ? 4 + out : work.model.in == work.model.out ? out : 3 - out;
    halyard_loop *const rotate = loops.rotate[static_cast<int>(work.type) - HALYARD_F32][which];
    const auto rotate_tokens = [&placed, rotate](std::size_t slot, std::int64_t first, std::int64_t last) {
        const Work &work = placed.work();
        const std::int64_t at = first * work.model.n_heads() * work.model.head_dim * work.element_bytes();
        const std::int64_t row = first * work.model.rotary_dim / 2;
        rotate(placed.x(slot) + at, placed.y(slot) + at, placed.cos_rows() + row, placed.sin_rows() + row, last - first,
               work.model.n_heads(), work.model.head_dim, work.model.rotary_dim);
    };
    const std::int64_t n = work.n_tokens;
    const halyard_executor *used = executor != nullptr && n >= executor->n_threads ? executor : nullptr;
    return make_local(loops.compiler, placed, [=](std::size_t slot) {
        share(used, n, [&](std::int64_t first, std::int64_t last) { rotate_tokens(slot, first, last); });
    });
}

double error_of(const PlacedWork &placed, const Local &local) {
    placed.reset();
    local.call_once();
    return placed.max_error(placed.y(0));
}

Local make_rotation(std::string name, PlacedWork &placed, const char *target, const halyard_executor *executor) {
    return make_local(
        std::move(name), placed,
        [rotation = std::make_shared<Rotation>(placed, target, executor)](std::size_t slot) { rotation->run(slot); });
}

/// Notes the error of a peer. Returns whether it can be timed.
bool check_peer(const PlacedWork &placed, Peers &peers, Rival &rival) {
    placed.reset();
    const auto at = peers.result(rival.name);
    if (!at || *at + placed.work().tensor_bytes() > placed.arena_bytes()) {
        return false;
    }
    rival.max_error = placed.max_error(placed.at(*at));
    rival.wrong = !(rival.max_error <= wrong_error);
    return true;
}

}  // namespace

const Rival *Row::best(Rival::Kind kind) const {
    const Rival *best = nullptr;
    for (const Rival &rival : rivals) {
        if (rival.kind == kind && !rival.wrong && rival.timing.median > 0.0 &&
            (best == nullptr || rival.timing.median < best->timing.median)) {
            best = &rival;
        }
    }
    return best;
}

bool Row::loses() const {
    return std::any_of(rivals.begin(), rivals.end(), [&](const Rival &rival) {
        return (rival.kind == Rival::Kind::loop || rival.kind == Rival::Kind::peer) && !rival.wrong &&
               rival.timing.median > 0.0 && rival.timing.median + rival.timing.spread < timing.median - timing.spread;
    });
}

Row measure_row(const Work &work, const Arena &arena, const Setting &setting) {
    PlacedWork placed(work, arena);
    const halyard_executor *executor = work.n_threads > 1 ? setting.pools.at(work.n_threads)->executor() : nullptr;
    const char *target = setting.target.empty() ? nullptr : setting.target.c_str();
    const auto rotation = std::make_shared<Rotation>(placed, target, executor);
    Row row = {work, rotation->target(), {}, 0.0, false, {}, {}};

    std::vector<Local> locals = {make_local("halyard", placed, [rotation](std::size_t slot) { rotation->run(slot); })};
    const auto add_rival = [&](Rival::Kind kind, Local local) {
        row.rivals.push_back({kind, local.subject.name, "", {}, 0.0, 0.0, false});
        locals.push_back(std::move(local));
    };
    if (row.target != "reference") {
        add_rival(Rival::Kind::reference, make_rotation("reference", placed, "reference", executor));
    }
    if (executor != nullptr) {
        add_rival(Rival::Kind::one_thread, make_rotation("one thread", placed, target, nullptr));
    }
    if (work.n_tokens == 1) {
        const auto bound = std::make_shared<Rotation>(placed, target, executor);
        add_rival(Rival::Kind::bound,
                  make_local("bound", placed, [bound](std::size_t slot) { bound->run_bound(slot); }));
        if (bound->makes_single_calls()) {
            add_rival(Rival::Kind::kernels,
                      make_local("kernels", placed, [bound](std::size_t slot) { bound->run_kernels(slot); }));
        }
    }
    if (work.cold_table) {
        for (const auto &[name, angles] :
             {std::pair("phase", HALYARD_ANGLES_PHASE), std::pair("factored", HALYARD_ANGLES_FACTORED)}) {
            const auto other = std::make_shared<Rotation>(placed, target, executor, angles);
            add_rival(Rival::Kind::angles, make_local(name, placed, [other](std::size_t slot) { other->run(slot); }));
        }
    } else {  // rows that lie ready are in a cache
        for (const halyard_loops *loops : all_loops()) {
            add_rival(Rival::Kind::loop, make_loop(*loops, placed, executor));
        }
    }
    row.max_error = error_of(placed, locals[0]);
    row.wrong = !(row.max_error <= placed.promised_error());
    const std::size_t n_local_rivals = row.rivals.size();
    for (std::size_t i = 0; i < n_local_rivals; i++) {
        row.rivals[i].max_error = error_of(placed, locals[i + 1]);
        row.rivals[i].wrong = !(row.rivals[i].max_error <= wrong_error);
    }
    if (setting.peers != nullptr && !work.cold_table) {
        for (const Peers::Ready &peer : setting.peers->prepare(placed)) {
            Rival rival = {Rival::Kind::peer, peer.name, peer.form, {}, 0.0, 0.0, false};
            if (check_peer(placed, *setting.peers, rival)) {
                row.rivals.push_back(rival);
            }
        }
    }
    placed.reset();

    std::vector<Subject> subjects;
    for (const Local &local : locals) {
        subjects.push_back(local.subject);
    }
    for (std::size_t i = n_local_rivals; i < row.rivals.size(); i++) {
        const std::string name = row.rivals[i].name;
        subjects.push_back({name, [&setting, name](long n_calls) { return setting.peers->run(name, n_calls); }});
        subjects.push_back(
            {name + "'s call", [&setting, name](long n_calls) { return setting.peers->overhead(name, n_calls); }});
    }
    add_ceilings(subjects, placed, executor);
    if (executor != nullptr) {
        add_ceilings(subjects, placed, nullptr);  // one thread copies small tensors faster
    }
    measure(subjects, setting.effort);
    row.ceilings = find_ceilings(subjects);

    // Timings come in the order of the subjects.
    auto next = [&, i = std::size_t(0)]() mutable { return summarise(subjects[i++].seconds); };
    row.timing = next();
    for (std::size_t i = 0; i < n_local_rivals; i++) {
        row.rivals[i].timing = next();
    }
    for (std::size_t i = n_local_rivals; i < row.rivals.size(); i++) {
        row.rivals[i].timing = next();
        row.rivals[i].overhead_seconds = next().median;
    }
    return row;
}

std::vector<Work> accuracy_works() {
    std::vector<Work> works;
    for (const pairing how : {pairing::half, pairing::interleaved}) {
        works.push_back(
            {{"accuracy", 2, 0, 128, 128, how, how}, 64, dtype::f32, false, false, HALYARD_ANGLES_TABLE, 1});
    }
    return works;
}

std::vector<Accuracy> measure_accuracy(const Arena &arena, const Setting &setting) {
    std::vector<Accuracy> all;
    const auto note = [&](const std::string &name, const Work &work, double error) {
        auto found = std::find_if(all.begin(), all.end(), [&](const Accuracy &one) { return one.name == name; });
        if (found == all.end()) {
            found = all.insert(found, {name, {}});
        }
        found->max_error[name_of(work.model.in)] = error;
    };
    for (const Work &work : accuracy_works()) {
        std::vector<std::int64_t> positions;
        for (std::int64_t t = 0; t < work.n_tokens; t++) {
            positions.push_back(131072 - work.n_tokens + t);
        }
        PlacedWork placed(work, arena, positions);
        note("halyard", work, error_of(placed, make_rotation("halyard", placed, nullptr, nullptr)));
        for (const halyard_loops *loops : all_loops()) {
            note(std::string(loops->compiler) + ", exact cos and sin", work,
                 error_of(placed, make_loop(*loops, placed, nullptr)));
        }
        if (setting.peers != nullptr) {
            for (const Peers::Ready &peer : setting.peers->prepare(placed)) {
                Rival rival = {Rival::Kind::peer, peer.name, peer.form, {}, 0.0, 0.0, false};
                if (check_peer(placed, *setting.peers, rival)) {
                    note(peer.name, work, rival.max_error);
                }
            }
        }
    }
    return all;
}

}  // namespace halyard::bench
