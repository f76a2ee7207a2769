// Computes angles with Halyard from ggml's RoPE parameters.
#include "angles.h"

#include "runs.h"

#include <ggml.h>

#include <algorithm>
#include <cmath>

namespace halyard_ggml {

namespace {

/// The most rows that are kept: beyond that, old ones are dropped. There are rows for each number of tokens in a graph,
/// and a server meets about as many different numbers as it has users.
constexpr std::size_t max_rows = 32;
constexpr std::size_t max_makers = 16;

const float *factors_of(const Rope &rope) {
    return rope.factors == nullptr ? nullptr : static_cast<const float *>(rope.factors->data);
}

/// The factor that cos and sin are multiplied by.
double magnitude(const RopeParameters &p) {
    return p.attn_factor * (p.ext_factor == 0.0f ? 1.0 : 1.0 + 0.1 * std::log(1.0 / p.freq_scale));
}

halyard::frequencies exact_frequencies(const RopeParameters &p, const std::vector<float> &factors,
                                       const std::vector<PairAngle> &pairs) {
    float ends[2];  // the first and last pair of YaRN's ramp, rounded to whole numbers
    ggml_rope_yarn_corr_dims(p.n_dims, p.n_ctx_orig, p.freq_base, p.beta_fast, p.beta_slow, ends);
    const long double low = ends[0], width = std::max<long double>(0.001f, ends[1] - low);
    std::vector<double> inv_freq;
    for (std::size_t k = 0; k < pairs.size(); ++k) {
        long double ramp = 0;
        if (p.ext_factor != 0.0f) {  // without YaRN `ends` may be NaN. See rope_yarn_ramp in ggml-cpu/ops.cpp
            ramp = p.ext_factor * (1 - std::clamp((static_cast<int>(k) - low) / width, 0.0L, 1.0L));
        }
        long double value = powl(p.freq_base, -2.0L * pairs[k].exponent / p.n_dims);
        value /= factors.empty() ? 1.0f : factors[k];
        value *= p.freq_scale * (1 - ramp) + ramp;
        inv_freq.push_back(static_cast<double>(value));
    }
    return halyard::frequencies::from_list(inv_freq.data(), static_cast<std::int64_t>(inv_freq.size()), magnitude(p));
}

}  // namespace

AngleMaker::AngleMaker(const Rope &rope)
    : shift_runs(std::make_shared<Runs>()), parameters_(rope.parameters),
      pairs_(pair_angles(rope.parameters, rope.n_pairs)), n_axes_(rope.n_axes) {
    if (const float *factors = factors_of(rope)) {
        factors_.assign(factors, factors + rope.n_pairs);
    }
    std::vector<std::int32_t> axis_of_pair;
    for (const auto &[axis, exponent] : pairs_) {
        axis_of_pair.push_back(axis);
    }
    const auto frequencies = exact_frequencies(parameters_, factors_, pairs_);
    const auto axes = halyard::axis_map::list(axis_of_pair, static_cast<std::size_t>(n_axes_));
    const auto desc = halyard::describe_angles(HALYARD_ANGLES_PHASE, axes);
    source_ = std::make_unique<halyard::angle_source>(frequencies, desc);
    const auto head = halyard::describe_tensor(halyard::dtype::f32, 2 * n_pairs(), halyard::pairing::half);
    plan_ = std::make_unique<halyard::plan>(halyard::plan_desc(2 * n_pairs(), {head}));
}

bool AngleMaker::serves(const Rope &rope) const {
    const float *factors = factors_of(rope);
    return parameters_ == rope.parameters && n_pairs() == rope.n_pairs && (factors == nullptr) == factors_.empty() &&
           std::equal(factors_.begin(), factors_.end(), factors);
}

void AngleMaker::make_rows(const std::int32_t *positions, std::int64_t n_tokens, float *rows) {
    auto where = halyard::positions(positions, {1, n_tokens});
    where.n_axes = n_axes_;
    where.stride_axis = n_tokens;
    halyard::make_rows(*plan_, *source_, &where, {1, n_tokens}, rows, n_tokens * 2 * n_pairs());
}

const halyard::angle_source *AngleMaker::source_of_shifts() const {
    // At each shift ggml multiplies keys by the magnitude again, but Halyard's re-rotation does not.
    return std::fabs(magnitude(parameters_) - 1.0) < 1e-6 ? source_.get() : nullptr;
}

TokenRows::TokenRows(std::shared_ptr<AngleMaker> made_by, std::int64_t tokens)
    : maker(std::move(made_by)), n_tokens(tokens), rows(static_cast<std::size_t>(2 * maker->n_pairs() * n_tokens)),
      source(halyard::angle_source::given_by_token(rows.data(), n_tokens, 2 * maker->n_pairs(), true)),
      runs(std::make_shared<Runs>()) {}

Angles::Angles() : unrotated_(std::make_shared<Runs>()) {}

void Angles::begin_graph() {
    ++graph_;
    if (makers_.size() > max_makers) {
        makers_.erase(makers_.begin(), makers_.end() - max_makers / 2);
    }
    if (rows_.size() > max_rows) {
        std::sort(rows_.begin(), rows_.end(), [](const auto &a, const auto &b) { return a->graph > b->graph; });
        rows_.resize(max_rows / 2);
    }
}

std::shared_ptr<TokenRows> Angles::rows(const Rope &rope) {
    const std::int64_t n_tokens = rope.x->ne[2];
    const void *positions = rope.positions->data;
    std::shared_ptr<TokenRows> free;
    for (const auto &known : rows_) {
        if (known->n_tokens != n_tokens || !known->maker->serves(rope)) {
            continue;
        }
        if (known->graph != graph_) {
            free = known;
        } else if (known->positions == positions) {
            return known;
        }
    }
    if (free == nullptr) {
        free = rows_.emplace_back(std::make_shared<TokenRows>(maker(rope), n_tokens));
    }
    make(rope, free.get());
    return free;
}

std::shared_ptr<AngleMaker> Angles::maker(const Rope &rope) {
    const auto found =
        std::find_if(makers_.begin(), makers_.end(), [&](const auto &known) { return known->serves(rope); });
    if (found != makers_.end()) {
        std::rotate(found, found + 1, makers_.end());
    } else {
        makers_.push_back(std::make_shared<AngleMaker>(rope));
    }
    return makers_.back();
}

bool Angles::make(const Rope &rope, TokenRows *rows) {
    if (!rows->maker->serves(rope)) {
        return false;
    }
    rows->maker->make_rows(static_cast<const std::int32_t *>(rope.positions->data), rows->n_tokens, rows->rows.data());
    rows->positions = rope.positions->data;
    rows->graph = graph_;
    return true;
}

}  // namespace halyard_ggml
