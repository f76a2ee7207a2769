#include "server/prepared_rotation.h"

#include "measure/ceilings.h"
#include "measure/rotation.h"
#include "measure/share.h"
#include "rivals/loops.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace halyard::bench {

namespace {

using nlohmann::json;

auto make_loop(const halyard_loops &loops, const PlacedWork &placed, const halyard_executor *executor) {
    const Work &work = placed.work();
    const int out = work.out == pairing::half ? 0 : 1;
    const int which = work.in_place ? 4 + out : work.in == work.out ? out : 3 - out;
    halyard_loop *const rotate = loops.rotate[static_cast<int>(work.type) - HALYARD_F32][which];
    const std::int64_t n = work.n_tokens;
    const halyard_executor *used = executor != nullptr && n >= executor->n_threads ? executor : nullptr;
    return [&placed, rotate, used, n](std::size_t slot) {
        share(used, n, [&](std::int64_t first, std::int64_t last) {
            const Work &work = placed.work();
            const std::int64_t at = first * work.n_heads() * work.head_dim * work.element_bytes();
            const std::int64_t row = first * work.rotary_dim / 2;
            rotate(placed.x(slot) + at, placed.y(slot) + at, placed.cos_rows() + row, placed.sin_rows() + row,
                   last - first, work.n_heads(), work.head_dim, work.rotary_dim);
        });
    };
}

/// What bench/rivals/peers.py is told.
json describe_for_peers(const PlacedWork &placed) {
    const Work &work = placed.work();
    if (work.in != work.out || work.cold_table) {
        return nullptr;
    }
    json slots = json::array();
    for (const PlacedWork::Slot &slot : placed.slots()) {
        slots.push_back({slot.x, slot.y});
    }
    return {{"do", "prepare"},
            {"dtype", name_of(work.type)},
            {"pairing", name_of(work.in)},
            {"in_place", work.in_place},
            {"tokens", work.n_tokens},
            {"heads", work.n_heads()},
            {"head_dim", work.head_dim},
            {"rotary_dim", work.rotary_dim},
            {"base", rope_base},
            {"threads", work.n_threads},
            {"positions", placed.positions_offset()},
            {"max_position", placed.last_position() + 1},
            {"slots", std::move(slots)}};
}

class PreparedRotation : public Prepared {
public:
    PreparedRotation(const json &request, const Site &site)
        : placed_(read_work(request), site.arena), executor_(site.executor(placed_.work().n_threads)),
          target_(request.value("target", "")) {
        if (request.contains("rivals")) {
            wanted_ = request["rivals"].get<std::vector<std::string>>();
        }
        const auto own = add_rotation("halyard", "halyard", target_, executor_, placed_.work().angles);
        subjects.front().wrong = !(subjects.front().max_error <= placed_.promised_error());
        add_own_rivals(own->target());
        if (!placed_.work().cold_table) {  // rows that lie ready are in a cache
#if defined(HALYARD_LOOPS_GCC)
            add_loop(halyard_loops_gcc);
#endif
#if defined(HALYARD_LOOPS_CLANG)
            add_loop(halyard_loops_clang);
#endif
        }
        placed_.reset();
        if (is_wanted("ceiling")) {
            add_ceilings(subjects, placed_, executor_);
            if (executor_ != nullptr) {
                add_ceilings(subjects, placed_, nullptr);  // one thread copies small tensors faster
            }
        }
        about = {{"target", own->target()},
                 {"plan_bytes", own->plan_bytes()},
                 {"angle_bytes", own->angle_bytes()},
                 {"peers", request.value("with_peers", false) ? describe_for_peers(placed_) : nullptr}};
    }

    void reset() override { placed_.reset(); }

    json check(std::size_t at) const override {
        const double error =
            at + placed_.work().tensor_bytes() > placed_.arena_bytes() ? INFINITY : placed_.max_error(placed_.at(at));
        return {{"max_error", error}, {"wrong", !(error <= wrong_error)}};
    }

private:
    PlacedWork placed_;
    const halyard_executor *executor_;
    std::string target_;
    std::vector<std::string> wanted_ = {"reference", "one_thread", "bound", "kernels", "angles", "loop", "ceiling"};

    bool is_wanted(const char *kind) const { return std::find(wanted_.begin(), wanted_.end(), kind) != wanted_.end(); }

    /// Runs it once on slot 0 and compares, then has it timed on one slot after the other.
    template <typename Call>
    void add(const std::string &name, const char *kind, Call call) {
        placed_.reset();
        call(std::size_t(0));
        const double error = placed_.max_error(placed_.y(0));
        subjects.push_back(make_subject(name, kind, [call, this]() mutable { call(placed_.next_slot()); }));
        subjects.back().max_error = error;
        subjects.back().wrong = !(error <= wrong_error);
    }

    std::shared_ptr<Rotation> add_rotation(const std::string &name, const char *kind, const std::string &target,
                                           const halyard_executor *executor, std::int32_t angles) {
        auto rotation =
            std::make_shared<Rotation>(placed_, target.empty() ? nullptr : target.c_str(), executor, angles);
        add(name, kind, [rotation](std::size_t slot) { rotation->run(slot); });
        return rotation;
    }

    void add_own_rivals(const std::string &target) {
        const Work &work = placed_.work();
        if (target != "reference" && is_wanted("reference")) {
            add_rotation("reference", "reference", "reference", executor_, work.angles);
        }
        if (executor_ != nullptr && is_wanted("one_thread")) {
            add_rotation("one thread", "one_thread", target_, nullptr, work.angles);
        }
        if (work.n_tokens == 1 && is_wanted("bound")) {
            const auto bound =
                std::make_shared<Rotation>(placed_, target_.empty() ? nullptr : target_.c_str(), executor_);
            add("bound", "bound", [bound](std::size_t slot) { bound->run_bound(slot); });
            if (bound->makes_single_calls()) {
                add("kernels", "kernels", [bound](std::size_t slot) { bound->run_kernels(slot); });
            }
        }
        if (work.cold_table && is_wanted("angles")) {
            add_rotation("phase", "angles", target_, executor_, HALYARD_ANGLES_PHASE);
            add_rotation("factored", "angles", target_, executor_, HALYARD_ANGLES_FACTORED);
        }
    }

    void add_loop(const halyard_loops &loops) {
        if (is_wanted("loop")) {
            add(loops.compiler, "loop", make_loop(loops, placed_, executor_));
        }
    }
};

}  // namespace

std::unique_ptr<Prepared> prepare_rotation(const json &request, const Site &site) {
    return std::make_unique<PreparedRotation>(request, site);
}

}  // namespace halyard::bench
