#include "road/road_row.h"

#include "rivals/road_loops.h"
#include "road/road_call.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstdio>
#include <functional>

namespace halyard::bench {

namespace {

using nlohmann::json;
using Kind = RoadWay::Kind;

/// What values that are rounded to bf16 on their way may be off beyond the bound, in lengths of a pair.
constexpr double rounded_between = 0.02;

std::vector<const halyard_road_loops *> all_loops() {
    std::vector<const halyard_road_loops *> all;
#if defined(HALYARD_LOOPS_GCC)
    all.push_back(&halyard_road_loops_gcc);
#endif
#if defined(HALYARD_LOOPS_CLANG)
    all.push_back(&halyard_road_loops_clang);
#endif
    return all;
}

std::function<void()> make_loop(const halyard_road_loops &loops, const PlacedRoad &placed) {
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
json describe(const PlacedRoad &placed) {
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
            {"cache", work.cache == dtype::e4m3 ? "e4m3" : "bf16"},
            {"n_slots", road_pages * road_page_size},
            {"scale", road_scale},
            {"x", layout.x},
            {"positions", layout.positions},
            {"slots", layout.slots},
            {"parts", std::move(parts)}};
}

}  // namespace

const RoadWay *RoadRow::find(Kind kind, const std::string &name) const {
    const auto found = std::find_if(ways.begin(), ways.end(), [&](const RoadWay &way) {
        return way.kind == kind && (name.empty() || way.name == name);
    });
    return found == ways.end() ? nullptr : &*found;
}

bool RoadRow::is_wrong() const {
    return std::any_of(ways.begin(), ways.end(),
                       [](const RoadWay &way) { return way.kind < Kind::loop && way.is_wrong(); });
}

bool RoadRow::loses() const {
    const Timing &own = ways.front().timing;
    return std::any_of(ways.begin(), ways.end(), [&](const RoadWay &way) {
        return way.kind >= Kind::loop && !way.is_wrong() && way.timing.median > 0.0 &&
               way.timing.median + way.timing.spread < own.median - own.spread;
    });
}

RoadRow measure_road(const RoadWork &work, const Arena &arena, const Setting &setting) {
    const PlacedRoad placed(work, arena);
    const char *target = setting.target.empty() ? nullptr : setting.target.c_str();
    const RoadCall fused(placed, RoadForm::fused, target), without_norm(placed, RoadForm::without_norm, target),
        separate(placed, RoadForm::separate, target);
    RoadRow row = {work, fused.target(), {}};
    std::vector<Subject> subjects;
    const auto check = [&](Kind kind, const std::string &name, const std::string &form) {
        const bool rounds = kind == Kind::separate || kind == Kind::peer;
        row.ways.push_back(
            {kind, name, form, placed.check(kind != Kind::without_norm, rounds ? rounded_between : 0.0), {}});
    };
    const auto add = [&](Kind kind, const std::string &name, const auto &call) {
        placed.reset();
        call();
        check(kind, name, "");
        subjects.push_back(make_subject(name, call));
    };
    add(Kind::fused, "", [&] { fused.run_bound(); });
    if (work.n_tokens == 1) {
        add(Kind::unbound, "", [&] { fused.run(); });
    }
    if (work.model.has_norm()) {
        add(Kind::without_norm, "", [&] { without_norm.run_bound(); });
    }
    add(Kind::separate, "", [&] { separate.run_bound(); });
    for (const halyard_road_loops *loops : all_loops()) {
        add(Kind::loop, loops->compiler, make_loop(*loops, placed));
    }
    if (setting.peers != nullptr) {
        for (const Peers::Ready &peer : setting.peers->prepare(describe(placed))) {
            placed.reset();
            if (setting.peers->result(peer.name)) {
                check(Kind::peer, peer.name, peer.form);
                subjects.push_back({peer.name, [&setting, name = peer.name](long n_calls) {
                                        return setting.peers->run(name, n_calls);
                                    }});
            }
        }
    }
    measure(subjects, setting.effort);
    for (std::size_t i = 0; i < subjects.size(); i++) {
        row.ways[i].timing = summarise(subjects[i].seconds);
    }
    return row;
}

std::vector<RoadRow> measure_roads(const Selection &selection, const std::vector<std::string> &peers,
                                   double peer_seconds, const Setting &given) {
    std::vector<RoadWork> works;
    std::size_t n_bytes = 0;
    for (const RoadWork &work : road_works()) {
        if (fnmatch(selection.filter.c_str(), work.name().c_str(), 0) == 0 &&
            (!selection.quick || work.n_tokens < 512)) {
            works.push_back(work);
            n_bytes = std::max(n_bytes, PlacedRoad::bytes_needed(work));
        }
    }
    if (works.empty()) {
        return {};
    }
    const Arena arena(n_bytes);
    Setting setting;
    setting.effort = given.effort;
    setting.target = given.target;
    pin_to_one_cpu(true);
    std::unique_ptr<Peers> running;
    if (!peers.empty()) {
        running = std::make_unique<Peers>(peers, arena, peer_seconds);
        setting.peers = running.get();
    }
    std::vector<RoadRow> rows;
    for (const RoadWork &work : works) {
        rows.push_back(measure_road(work, arena, setting));
    }
    for (const char *const why : {"absent", "refused"}) {
        for (const json &peer : running == nullptr ? json::array() : running->list()[why]) {
            const std::string name = peer["name"];
            if (name.starts_with("torch") || name == "every peer") {
                std::fprintf(stderr, "%s: %s\n", name.c_str(), peer["why"].get<std::string>().c_str());
            }
        }
    }
    return rows;
}

std::string format_roads(const std::vector<RoadRow> &rows) {
    std::vector<std::string> rivals;
    for (const RoadRow &row : rows) {
        for (const RoadWay &way : row.ways) {
            if (way.kind >= Kind::loop && std::find(rivals.begin(), rivals.end(), way.name) == rivals.end()) {
                rivals.push_back(way.name);
            }
        }
    }
    const auto pad = [](const std::string &text, std::size_t width) {
        return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
    };
    std::string text = "road                            us              unbound  norm adds  separate";
    for (const std::string &rival : rivals) {
        text += "  " + pad("x " + rival, 7);
    }
    text += "\n";
    for (const RoadRow &row : rows) {
        const Timing &own = row.ways.front().timing;
        const auto number = [](const char *pattern, double value) {
            char cell[64];
            std::snprintf(cell, sizeof(cell), pattern, value);
            return std::string(cell);
        };
        const auto times = [&](const RoadWay *way) {
            return way == nullptr || way->timing.median == 0.0 ? "-" : number("%.2f", way->timing.median / own.median);
        };
        text += row.work.name() + std::string(24 - std::min<std::size_t>(24, row.work.name().size()), ' ');
        text += number("%10.3f", own.median * 1e6) + number(" +- %7.3f", own.spread * 1e6);
        text += "  " + pad(times(row.find(Kind::unbound)), 7);
        const RoadWay *const plain = row.find(Kind::without_norm);
        text +=
            "  " + pad(plain == nullptr ? "-" : number("%.0f %%", 100 * (own.median / plain->timing.median - 1)), 9);
        text += "  " + pad(times(row.find(Kind::separate)), 8);
        for (const std::string &rival : rivals) {
            const auto found = std::find_if(row.ways.begin(), row.ways.end(), [&](const RoadWay &way) {
                return way.kind >= Kind::loop && way.name == rival;
            });
            text +=
                "  " + pad(found == row.ways.end() ? "-" : times(&*found), std::max<std::size_t>(7, rival.size() + 2));
        }
        text += row.loses() ? "  loses" : "";
        for (const RoadWay &way : row.ways) {
            constexpr const char *names[] = {"this", "unbound", "without norm", "separate", "", ""};
            text += way.is_wrong() ? "  (" + (way.name.empty() ? names[static_cast<int>(way.kind)] : way.name) +
                                         " is wrong: error " + number("%.1e", way.check.max_error) + ")"
                                   : "";
        }
        text += "\n";
    }
    for (const std::string &rival : rivals) {
        for (const RoadRow &row : rows) {
            const RoadWay *const peer = row.find(Kind::peer, rival);
            if (peer != nullptr) {
                text += rival + ": " + peer->form + "\n";
                break;
            }
        }
    }
    const auto n_noisy = std::count_if(rows.begin(), rows.end(), [](const RoadRow &row) {
        return std::any_of(row.ways.begin(), row.ways.end(),
                           [](const RoadWay &way) { return way.timing.relative_spread() > 0.1; });
    });
    if (n_noisy > 0) {
        text += "This machine is noisy: " + std::to_string(n_noisy) + " of " + std::to_string(rows.size()) +
                " rows have a spread of more than 10 % of a median.\n";
    }
    return text;
}

json to_json(const RoadRow &row) {
    constexpr const char *kinds[] = {"fused", "unbound", "without_norm", "separate", "loop", "peer"};
    json ways = json::array();
    for (const RoadWay &way : row.ways) {
        ways.push_back({{"kind", kinds[static_cast<int>(way.kind)]},
                        {"name", way.name},
                        {"form", way.form},
                        {"median_seconds", way.timing.median},
                        {"spread_seconds", way.timing.spread},
                        {"fastest_seconds", way.timing.fastest},
                        {"max_error", way.check.max_error},
                        {"wrong", way.is_wrong()}});
    }
    return {{"name", row.work.name()}, {"model", row.work.model.name}, {"tokens", row.work.n_tokens},
            {"target", row.target},    {"loses", row.loses()},         {"ways", std::move(ways)}};
}

}  // namespace halyard::bench
