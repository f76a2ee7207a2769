#include "road/placed_road.h"

#include "checks/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

namespace halyard::bench {

namespace {

/// q, k and v one after the other.
RoadModel packed(std::string name, std::int64_t n_heads, std::int64_t n_kv_heads, std::int64_t head_dim, bool has_norm,
                 bool unit_offset) {
    const std::int64_t norm_size = has_norm ? head_dim : 0, k = n_heads * head_dim, v = k + n_kv_heads * head_dim;
    return {std::move(name),
            v + n_kv_heads * head_dim,
            head_dim,
            pairing::half,
            unit_offset,
            {{n_heads, head_dim, 0, head_dim, true, false, 0, norm_size},
             {n_kv_heads, head_dim, k, head_dim, true, true, 0, norm_size},
             {n_kv_heads, head_dim, v, head_dim, false, true}}};
}

std::size_t bytes_of(std::int64_t n, std::int64_t each) { return static_cast<std::size_t>(n * each); }

constexpr std::int64_t n_slots = road_pages * road_page_size;

/// How long the pair of an element is, which a rotation does not change; of what is in no pair, how large it is.
long double length_at(const oracle::Road &road, const oracle::RoadValues &values, std::int64_t j) {
    const std::int64_t of_window = j % road.head_dim - road.rotary_offset, n_pairs = road.rotary_dim / 2;
    const bool is_pair = of_window >= 0 && of_window < road.rotary_dim;
    const std::int64_t other = !is_pair        ? j
                               : !road.half_in ? j + 1 - 2 * (of_window % 2)
                                               : j + (of_window < n_pairs ? n_pairs : -n_pairs);
    return is_pair
               ? std::hypot(values.value[static_cast<std::size_t>(j)], values.value[static_cast<std::size_t>(other)])
               : std::fabs(values.value[static_cast<std::size_t>(j)]);
}

}  // namespace

bool RoadModel::has_norm() const {
    return std::any_of(parts.begin(), parts.end(), [](const RoadPart &part) { return part.norm_size > 0; });
}

std::vector<RoadModel> road_models() {
    // Of MLA: the part of q that is rotated, [tokens, 128, 64] out of heads of 192, and the one row that is cached, of
    // which the latent is normed and the rest rotated.
    const RoadModel deepseek = {"deepseek-v3",
                                128 * 192 + 576,
                                64,
                                pairing::interleaved,
                                false,
                                {{128, 64, 128, 192, true, false}, {1, 576, 128 * 192, 576, true, true, 512, 512}}};
    return {packed("llama-3-8b", 32, 8, 128, false, false), packed("qwen3-8b", 32, 8, 128, true, false),
            packed("gemma-3-4b", 8, 4, 256, true, true), deepseek};
}

PlacedRoad::Layout PlacedRoad::lay_out(const RoadWork &work) {
    Layout layout = {};
    const std::int64_t n = work.n_tokens;
    const auto place = [&](std::int64_t n_elements, std::int64_t each) {
        const std::size_t at = layout.n_bytes;
        layout.n_bytes += (bytes_of(n_elements, each) + 4095) / 4096 * 4096 + 64;  // not all at one place of their page
        return at;
    };
    layout.positions = place(n, 8);
    layout.slots = place(n, 8);
    layout.cos = place(n * work.model.rotary_dim / 2, 4);
    layout.sin = place(n * work.model.rotary_dim / 2, 4);
    layout.scale = place(1, 4);
    layout.scratch = place(n_slots / 8, 1);
    layout.x = place(n * work.model.row_elements, 2);
    for (const RoadPart &part : work.model.parts) {
        const std::int64_t row = part.n_heads * part.head_dim;
        layout.weight.push_back(place(part.norm_size, 2));
        layout.between.push_back(place(n * row, 2));
        layout.y.push_back(place((part.is_cached ? n_slots : n) * row, work.stored_bytes(part)));
    }
    return layout;
}

PlacedRoad::PlacedRoad(const RoadWork &work, const Arena &arena) : work_(work), arena_(arena), layout_(lay_out(work)) {
    Work usual;
    usual.n_tokens = work.n_tokens;
    positions_ = positions_of(usual);
    slots_.resize(static_cast<std::size_t>(n_slots));
    std::iota(slots_.begin(), slots_.end(), 0);
    std::minstd_rand random(3);
    std::shuffle(slots_.begin(), slots_.end(), random);
    slots_.resize(positions_.size());
    std::copy(positions_.begin(), positions_.end(), at<std::int64_t>(layout_.positions));
    std::copy(slots_.begin(), slots_.end(), at<std::int64_t>(layout_.slots));
    const auto inv_freq = oracle::inv_freq_of(rope_base, work.model.rotary_dim);
    std::size_t row = 0;
    for (const std::int64_t position : positions_) {
        for (const long double f : inv_freq) {
            at<float>(layout_.cos)[row] = static_cast<float>(std::cos(f * static_cast<long double>(position)));
            at<float>(layout_.sin)[row++] = static_cast<float>(std::sin(f * static_cast<long double>(position)));
        }
    }
    *at<float>(layout_.scale) = road_scale;
    const auto draw = [&](double least, double most) {
        return static_cast<std::uint16_t>(oracle::narrow(
            HALYARD_BF16, static_cast<float>(std::uniform_real_distribution<double>(least, most)(random))));
    };
    for (std::int64_t i = 0; i < work.n_tokens * work.model.row_elements; i++) {
        at<std::uint16_t>(layout_.x)[i] = draw(-2.0, 2.0);
    }
    for (std::size_t i = 0; i < work.model.parts.size(); i++) {
        for (std::int64_t j = 0; j < work.model.parts[i].norm_size; j++) {
            const double middle = work.model.unit_offset ? 0.0 : 1.0;
            at<std::uint16_t>(layout_.weight[i])[j] = draw(middle - 0.25, middle + 0.25);
        }
    }
}

void PlacedRoad::reset() const {
    for (std::size_t i = 0; i < work_.model.parts.size(); i++) {
        const RoadPart &part = work_.model.parts[i];
        const std::int64_t row = part.n_heads * part.head_dim;
        std::memset(at<char>(layout_.between[i]), 0xff, bytes_of(work_.n_tokens * row, 2));
        std::memset(at<char>(layout_.y[i]), 0xff,
                    bytes_of((part.is_cached ? n_slots : work_.n_tokens) * row, work_.stored_bytes(part)));
    }
}

PlacedRoad::Check PlacedRoad::check(bool with_norm, double slack) const {
    Check check;
    const auto inv_freq = oracle::inv_freq_of(rope_base, work_.model.rotary_dim);
    const std::int64_t n_checked = std::min<std::int64_t>(work_.n_tokens, 64);
    for (std::int64_t i = 0; i < n_checked; i++) {
        const std::int64_t token = n_checked == 1 ? 0 : i * (work_.n_tokens - 1) / (n_checked - 1);
        std::vector<long double> cos, sin;
        for (const long double f : inv_freq) {
            const long double theta = f * static_cast<long double>(positions_[static_cast<std::size_t>(token)]);
            cos.push_back(std::cos(theta));
            sin.push_back(std::sin(theta));
        }
        for (std::size_t p = 0; p < work_.model.parts.size(); p++) {
            const oracle::Road road = describe(p, with_norm);
            compare(p, token, road, oracle::road_of(road, read_x(p, token), cos, sin), slack, check);
        }
    }
    return check;
}

oracle::Road PlacedRoad::describe(std::size_t p, bool with_norm) const {
    const RoadPart &part = work_.model.parts[p];
    oracle::Road road;
    road.dtype = HALYARD_BF16;
    road.n_heads = part.n_heads;
    road.head_dim = part.head_dim;
    road.rotary_dim = part.rotates ? work_.model.rotary_dim : 0;
    road.rotary_offset = part.rotary_offset;
    road.half_in = road.half_out = work_.model.how == pairing::half;
    if (with_norm && part.norm_size > 0) {
        road.norm.emplace();
        road.norm->eps = road_eps;
        road.norm->size = part.norm_size;
        for (std::int64_t j = 0; j < part.norm_size; j++) {
            const float w = oracle::widen(HALYARD_BF16, at<std::uint16_t>(layout_.weight[p])[j]);
            road.norm->weight.push_back(work_.model.unit_offset ? 1.0f + w : w);
        }
    }
    return road;
}

std::vector<float> PlacedRoad::read_x(std::size_t p, std::int64_t token) const {
    const RoadPart &part = work_.model.parts[p];
    std::vector<float> x;
    for (std::int64_t j = 0; j < part.n_heads * part.head_dim; j++) {
        const std::int64_t place = token * work_.model.row_elements + part.x_offset +
                                   j / part.head_dim * part.x_stride_head + j % part.head_dim;
        x.push_back(oracle::widen(HALYARD_BF16, at<std::uint16_t>(layout_.x)[place]));
    }
    return x;
}

void PlacedRoad::compare(std::size_t p, std::int64_t token, const oracle::Road &road, const oracle::RoadValues &values,
                         double slack, Check &check) const {
    const RoadPart &part = work_.model.parts[p];
    const std::int32_t stored = work_.stored_bytes(part) == 1 ? std::int32_t{HALYARD_E4M3} : HALYARD_BF16;
    const std::optional<long double> scale =
        stored == HALYARD_E4M3 ? std::optional<long double>(road_scale) : std::nullopt;
    const long double unit = scale.value_or(1.0L);
    const std::int64_t row = part.is_cached ? slots_[static_cast<std::size_t>(token)] : token;
    const std::int64_t n = part.n_heads * part.head_dim;
    for (std::int64_t j = 0; j < n; j++) {
        const std::int64_t place = row * n + j;
        const auto word =
            stored == HALYARD_E4M3 ? at<std::uint8_t>(layout_.y[p])[place] : at<std::uint16_t>(layout_.y[p])[place];
        const long double value = values.value[static_cast<std::size_t>(j)], length = length_at(road, values, j);
        const long double bound = values.bound[static_cast<std::size_t>(j)] + slack * length;
        check.n_wrong += oracle::may_be_stored(stored, word, value, bound, scale) ? 0 : 1;
        const long double error =
            std::fabs(oracle::decode(stored, word) * unit - value) - oracle::half_step(stored, value / unit) * unit;
        if (length > 0 && !(error / length <= check.max_error)) {
            check.max_error = static_cast<double>(error / length);
        }
    }
}

}  // namespace halyard::bench
