#include "server/prepared.h"

#include "server/call.h"
#include "server/loops.h"

#include <algorithm>

namespace halyard::bench {

namespace {

using nlohmann::json;

// What results may be off by beyond the bound, in lengths of a pair.
constexpr double promised = 0.0;
constexpr double rounded_products = 0x1p-22;  // of a loop that contracts other products than Halyard
constexpr double rounded_between = 0.02;      // rounded to bf16 on the way
constexpr double wrong_rival = 0.05;          // what rounds angles to f32 or results to bf16 stays below it

}  // namespace

Prepared::Prepared(const json &request, const Site &site)
    : placed_(read_work(request), site.arena), executor_(site.executor(placed_.work().n_threads)),
      target_(request.value("target", "")) {
    if (request.contains("rivals")) {
        wanted_ = request["rivals"].get<std::vector<std::string>>();
    }
    const Work &work = placed_.work();
    if (request.value("with_peers", false)) {
        about["places"] = find_places();
    }
    work.n_slots > 0 ? prepare_road() : prepare_rotation();
}

json Prepared::check() {
    const Placed::Found found = placed_.check(placed_.work().is_road() ? rounded_between : wrong_rival);
    return {{"max_error", found.max_error}, {"wrong", found.n_wrong > 0}};
}

bool Prepared::is_wanted(const char *kind) const {
    return std::find(wanted_.begin(), wanted_.end(), kind) != wanted_.end();
}

/// Runs it once and compares, then has it timed on one copy after the other.
template <typename Run>
void Prepared::add(const std::string &name, const char *kind, double slack, Run run, bool with_norm) {
    placed_.reset();
    run(std::size_t(0));
    const Placed::Found found = placed_.check(slack, with_norm);
    subjects.push_back(make_subject(name, kind, [run, this]() mutable { run(placed_.next_copy()); }));
    subjects.back().max_error = found.max_error;
    subjects.back().wrong = found.n_wrong > 0;
}

// ---- A rotation ----------------------------------------------------------------------------------------------------

void Prepared::prepare_rotation() {
    const Work &work = placed_.work();
    const auto own = std::make_shared<Call>(placed_, Call::How{target_, executor_, work.angles});
    add("halyard", "halyard", promised, [own](std::size_t copy) { own->run(copy); });
    add_own_rivals(own->target());
    for (const auto &[name, loops] : all_loops) {
        if (loops != nullptr && is_wanted("loop") && !work.cold_table) {  // rows that lie ready are in a cache
            add(loops->compiler, "loop", wrong_rival, rotation_loop(*loops, placed_, executor_));
        }
    }
    placed_.reset();
    if (is_wanted("ceiling")) {
        add_ceilings(executor_);
        if (executor_ != nullptr) {
            add_ceilings(nullptr);  // one thread copies small tensors faster
        }
    }
    about["target"] = own->target();
}

void Prepared::add_own_rivals(const std::string &target) {
    const Work &work = placed_.work();
    const auto add_call = [&](const char *name, const char *kind, const Call::How &how) {
        const auto call = std::make_shared<Call>(placed_, how);
        add(name, kind, wrong_rival, [call](std::size_t copy) { call->run(copy); });
    };
    if (target != "reference" && is_wanted("reference")) {
        add_call("reference", "reference", {"reference", executor_, work.angles});
    }
    if (executor_ != nullptr && is_wanted("one_thread")) {
        add_call("one thread", "one_thread", {target_, nullptr, work.angles});
    }
    if (work.n_tokens == 1 && is_wanted("bound")) {
        const auto bound = std::make_shared<Call>(placed_, Call::How{target_, executor_, work.angles});
        add("bound", "bound", wrong_rival, [bound](std::size_t copy) { bound->run_bound(copy); });
        if (bound->makes_single_calls()) {
            add("kernels", "kernels", wrong_rival, [bound](std::size_t copy) { bound->run_kernels(copy); });
        }
    }
    if (work.cold_table && is_wanted("angles")) {
        add_call("phase", "angles", {target_, executor_, HALYARD_ANGLES_PHASE});
    }
}

/// What memory allows, and for 16-bit elements what converting them allows.
void Prepared::add_ceilings(const halyard_executor *executor) {
    using Of = CeilingLoop::Of;
    const Work &work = placed_.work();
    for (const CeilingLoop &loop : ceiling_loops()) {
        const bool is_its_conversion =
            (loop.of == Of::f16 && work.type == dtype::f16) || (loop.of == Of::bf16 && work.type == dtype::bf16);
        if ((work.in_place ? loop.in_place : loop.out_of_place) && (loop.of == Of::memory || is_its_conversion)) {
            const auto run = ceiling_loop(loop, placed_, executor);
            subjects.push_back(make_subject(loop.name, loop.of == Of::memory ? "memory" : "conversion",
                                            [run, this] { run(placed_.next_copy()); }));
        }
    }
}

// ---- A layer's road from projection to cache, or a context shift of a whole paged cache ----------------------------

void Prepared::prepare_road() {
    const Work &work = placed_.work();
    const auto call_of = [&](Stages stages, Stages done) {
        return std::make_shared<const Call>(placed_, Call::How{target_, nullptr, work.angles, stages, done});
    };
    const auto add_way = [&](const std::string &name, const char *kind, double slack, auto run, bool with_norm = true) {
        const auto run_all_layers = [run, n = static_cast<std::size_t>(work.n_layers)](std::size_t) mutable {
            for (std::size_t layer = 0; layer < n; layer++) {
                run(layer);
            }
        };
        add(name, kind, slack, run_all_layers, with_norm);
    };
    const auto fused = call_of({}, no_stages);
    add_way("", "fused", promised, [fused](std::size_t layer) { fused->run_bound(layer); });
    if (work.is_road() && work.n_tokens == 1) {
        add_way("", "unbound", promised, [fused](std::size_t layer) { fused->run(layer); });
    }
    // Each stage a run over whole tensors, with bf16 between them.
    std::vector<std::shared_ptr<const Call>> separate;
    if (work.has_norm()) {
        const auto without = call_of({false, true, true}, no_stages);
        const auto run = [without](std::size_t layer) { without->run_bound(layer); };
        add_way("", "without_norm", promised, run, false);
        separate.push_back(call_of({true, false, false}, no_stages));
    }
    if (work.is_road()) {
        separate.push_back(call_of({false, true, false}, {true, false, false}));
        separate.push_back(call_of({false, false, true}, {true, true, false}));
        add_way("", "separate", rounded_between, [separate](std::size_t layer) {
            for (const auto &call : separate) {
                call->run_bound(layer);
            }
        });
    }
    const double slack = work.is_shift() ? rounded_products : promised;
    for (const auto &[name, loops] : all_loops) {
        if (loops != nullptr) {
            add_way(name, "loop", slack, road_loop(*loops, placed_, false));
            if (work.is_shift() || work.cache == dtype::uint8) {
                add_way(name + std::string(work.is_shift() ? " by f32" : " by passes"), "loop", slack,
                        road_loop(*loops, placed_, true));
            }
        }
    }
    placed_.reset();
    about["target"] = fused->target();
    about["bytes"] = 2 * work.tensor_bytes() * static_cast<std::size_t>(work.n_layers);
}

// ---- Peers ---------------------------------------------------------------------------------------------------------

/// What bench/rivals/peers.py is told beside the work: offsets into the arena, and constants.
json Prepared::find_places() const {
    const Placed::Layout &layout = placed_.layout();
    json copies = json::array(), y = json::array();
    for (std::size_t i = 0; i < layout.n_copies; i++) {
        copies.push_back({layout.x[0].at + i * layout.step, layout.y[0].at + i * layout.step});
    }
    for (const Placed::View &view : layout.y) {
        y.push_back(view.at);
    }
    return {{"base", rope_base},
            {"eps", road_eps},
            {"scale", road_scale},
            {"max_position", placed_.last_position() + 1},
            {"positions", layout.positions},
            {"slots", layout.slots},
            {"weights", layout.weight},
            {"copies", std::move(copies)},
            {"outputs", std::move(y)}};
}

}  // namespace halyard::bench
