#include "server/prepared_road.h"

#include "rivals/road_loops.h"
#include "road/road_call.h"

#include <algorithm>

namespace halyard::bench {

namespace {

using nlohmann::json;

/// What values that are rounded to bf16 on their way may be off beyond the bound, in lengths of a pair.
constexpr double rounded_between = 0.02;

auto make_loop(const halyard_road_loops &loops, const PlacedRoad &placed) {
    const RoadWork &work = placed.work();
    const PlacedRoad::Layout &layout = placed.layout();
    struct Call {
        halyard_road_loop *loop;
        halyard_road_part part;
    };
    std::vector<Call> calls;
    for (std::size_t i = 0; i < work.model.parts.size(); i++) {
        const RoadPart &part = work.model.parts[i];
        halyard_road_part call = {};
        call.x = placed.at<std::uint16_t>(layout.x) + part.x_offset;
        call.stride_token = work.model.row_elements;
        call.stride_head = part.x_stride_head;
        call.heads = part.n_heads;
        call.head_dim = part.head_dim;
        call.rotary_dim = part.rotates ? work.model.rotary_dim : 0;
        call.rotary_offset = part.rotary_offset;
        call.norm_size = part.norm_size;
        call.weight = placed.at<std::uint16_t>(layout.weight[i]);
        call.weight_offset = work.model.unit_offset ? 1.0f : 0.0f;
        call.y = placed.at<void>(layout.y[i]);
        call.slots = part.is_cached ? placed.at<std::int64_t>(layout.slots) : nullptr;
        call.r = 1.0f / road_scale;
        calls.push_back(
            {loops.road[work.stored_bytes(part) == 1 ? 1 : 0][work.model.how == pairing::half ? 0 : 1], call});
    }
    const float *const cos = placed.at<float>(layout.cos), *const sin = placed.at<float>(layout.sin);
    return [calls, cos, sin, n = work.n_tokens] {
        for (const Call &call : calls) {
            call.loop(&call.part, cos, sin, n, road_eps);
        }
    };
}

/// What bench/rivals/road_peers.py is told.
json describe_for_peers(const PlacedRoad &placed) {
    const RoadWork &work = placed.work();
    const PlacedRoad::Layout &layout = placed.layout();
    json parts = json::array();
    for (std::size_t i = 0; i < work.model.parts.size(); i++) {
        const RoadPart &part = work.model.parts[i];
        parts.push_back({{"heads", part.n_heads},
                         {"head_dim", part.head_dim},
                         {"x_offset", part.x_offset},
                         {"x_stride_head", part.x_stride_head},
                         {"rotates", part.rotates},
                         {"rotary_offset", part.rotary_offset},
                         {"norm_size", part.norm_size},
                         {"is_cached", part.is_cached},
                         {"weight", layout.weight[i]},
                         {"y", layout.y[i]}});
    }
    return {{"do", "prepare"},
            {"road", true},
            {"tokens", work.n_tokens},
            {"row_elements", work.model.row_elements},
            {"rotary_dim", work.model.rotary_dim},
            {"pairing", name_of(work.model.how)},
            {"unit_offset", work.model.unit_offset},
            {"base", rope_base},
            {"eps", road_eps},
            {"cache", name_of(work.cache)},
            {"n_slots", road_pages * road_page_size},
            {"scale", road_scale},
            {"x", layout.x},
            {"positions", layout.positions},
            {"slots", layout.slots},
            {"parts", std::move(parts)}};
}

class PreparedRoad : public Prepared {
public:
    PreparedRoad(const json &request, const Site &site) : placed_(read_road(request), site.arena) {
        const std::string wanted = request.value("target", "");
        const char *const target = wanted.empty() ? nullptr : wanted.c_str();
        const RoadModel &model = placed_.work().model;
        const auto call_of = [&](RoadForm form) { return std::make_shared<const RoadCall>(placed_, form, target); };
        const auto fused = call_of(RoadForm::fused);
        add("fused", "", true, 0.0, [fused] { fused->run_bound(); });
        if (placed_.work().n_tokens == 1) {
            add("unbound", "", true, 0.0, [fused] { fused->run(); });
        }
        if (model.has_norm()) {
            const auto without = call_of(RoadForm::without_norm);
            add("without_norm", "", false, 0.0, [without] { without->run_bound(); });
        }
        const auto separate = call_of(RoadForm::separate);
        add("separate", "", true, rounded_between, [separate] { separate->run_bound(); });
#if defined(HALYARD_LOOPS_GCC)
        add("loop", halyard_road_loops_gcc.compiler, true, 0.0, make_loop(halyard_road_loops_gcc, placed_));
#endif
#if defined(HALYARD_LOOPS_CLANG)
        add("loop", halyard_road_loops_clang.compiler, true, 0.0, make_loop(halyard_road_loops_clang, placed_));
#endif
        about = {{"target", fused->target()}, {"peers", describe_for_peers(placed_)}};
    }

    void reset() override { placed_.reset(); }

    /// Peers leave their results where Halyard does.
    json check(std::size_t) const override {
        const PlacedRoad::Check found = placed_.check(true, rounded_between);
        return {{"max_error", found.max_error}, {"wrong", found.n_wrong > 0}};
    }

private:
    PlacedRoad placed_;

    template <typename Call>
    void add(const char *kind, const char *name, bool with_norm, double slack, Call call) {
        placed_.reset();
        call();
        const PlacedRoad::Check found = placed_.check(with_norm, slack);
        subjects.push_back(make_subject(name, kind, call));
        subjects.back().max_error = found.max_error;
        subjects.back().wrong = found.n_wrong > 0;
    }
};

}  // namespace

RoadWork read_road(const json &described) {
    const std::string name = described.at("model");
    for (const RoadModel &model : road_models()) {
        if (model.name == name) {
            return {model, described.at("tokens"), read_dtype(described.at("cache"))};
        }
    }
    throw std::runtime_error("there is no road of \"" + name + "\"");
}

std::unique_ptr<Prepared> prepare_road(const json &request, const Site &site) {
    return std::make_unique<PreparedRoad>(request, site);
}

}  // namespace halyard::bench
