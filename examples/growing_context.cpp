// A conversation that outgrows the length that its model was trained with. From there on LongRoPE has other
// frequencies: the keys that are cached turn to them where they lie, and attention is that of a fresh prefill of the
// whole text.
#include <halyard/halyard.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

constexpr std::int64_t head_dim = 96, n_trained = 1024, n_tokens = 1040;

/// What a model's projections would make of a token: q, k and v of one head.
static std::vector<float> project(std::int64_t token, int which) {
    std::vector<float> head(head_dim);
    for (std::size_t i = 0; i < head.size(); ++i) {
        head[i] =
            static_cast<float>(std::sin(0.37 * static_cast<double>(token) + 1.3 * static_cast<double>(i) + which));
    }
    return head;
}

/// Heads of tokens that follow each other, as Halyard sees them.
static halyard_tensor view(float *heads, std::int64_t tokens) {
    return halyard::tensor(heads, halyard::dtype::f32, {1, tokens, 1, head_dim},
                           {tokens * head_dim, head_dim, head_dim, 1});
}

/// Softmax attention of q over the keys of all tokens, whose values are their projections.
static std::vector<double> attend(const std::vector<float> &q, const std::vector<float> &keys) {
    std::vector<double> out(head_dim);
    double sum = 0.0;
    for (std::int64_t token = 0; token < n_tokens; ++token) {
        double dot = 0.0;
        for (std::int64_t i = 0; i < head_dim; ++i) {
            dot += static_cast<double>(q[i]) * keys[token * head_dim + i];
        }
        const double weight = std::exp(dot / std::sqrt(head_dim));
        const auto value = project(token, 2);
        sum += weight;
        for (std::int64_t i = 0; i < head_dim; ++i) {
            out[i] += weight * value[i];
        }
    }
    for (double &element : out) {
        element /= sum;
    }
    return out;
}

static double greatest_difference(const std::vector<double> &a, const std::vector<double> &b) {
    double result = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        result = std::max(result, std::fabs(a[i] - b[i]));
    }
    return result;
}

/// LongRoPE's, with factors as a model's config tells them.
static halyard::frequencies make_frequencies() {
    std::vector<double> short_factor(head_dim / 2), long_factor(head_dim / 2);
    for (std::size_t k = 0; k < long_factor.size(); ++k) {
        short_factor[k] = 1.0 + 0.01 * static_cast<double>(k);
        long_factor[k] = 1.0 + static_cast<double>(k);
    }
    auto scaling = halyard::make_struct<halyard_scaling>();
    scaling.method = HALYARD_SCALING_LONGROPE;
    scaling.base = 10000.0;
    scaling.rotary_dim = head_dim;
    scaling.original_max_position = n_trained;
    scaling.max_position = 32 * n_trained;
    scaling.short_factor = short_factor.data();
    scaling.long_factor = long_factor.data();
    scaling.n_factors = head_dim / 2;
    return halyard::frequencies::from_scaling(scaling);
}

int main() {
    // growing begins
    auto frequencies = make_frequencies();
    halyard::angle_source angles(frequencies);
    halyard::plan_desc head(frequencies,
                            {halyard::describe_tensor(halyard::dtype::f32, head_dim, halyard::pairing::half)});
    const halyard::plan rotate(head);
    head.rerotates = true;
    const halyard::plan move(head);
    const std::int32_t start = 0;
    const auto from_the_start = halyard::consecutive_positions(&start, 1);

    std::vector<float> keys, q;
    for (std::int32_t token = 0; token < n_tokens; ++token) {
        if (!frequencies.are_for_length(token + 1)) {
            frequencies = frequencies.for_length(token + 1);
            halyard::angle_source longer(frequencies);
            const halyard_tensor cached[] = {view(keys.data(), token)};
            halyard::run(move, longer, cached, cached,
                         halyard::run_options().at(from_the_start).moved_from(from_the_start, angles.get()));
            angles = std::move(longer);
        }
        const auto key = project(token, 1);
        keys.insert(keys.end(), key.begin(), key.end());
        q = project(token, 0);
        const auto position = halyard::consecutive_positions(&token, 1);
        for (float *rotated : {q.data(), &keys[static_cast<std::size_t>(token * head_dim)]}) {
            const halyard_tensor one[] = {view(rotated, 1)};
            halyard::run(rotate, angles, one, one, halyard::run_options().at(position));
        }
    }
    // growing ends

    // The same text at once, and what comes of keys that stay as they were.
    std::vector<float> fresh, stale;
    for (std::int64_t token = 0; token < n_tokens; ++token) {
        const auto key = project(token, 1);
        fresh.insert(fresh.end(), key.begin(), key.end());
    }
    stale = fresh;
    const halyard_tensor all[] = {view(fresh.data(), n_tokens)}, early[] = {view(stale.data(), n_trained)};
    halyard::run(rotate, angles, all, all, halyard::run_options().at(from_the_start));
    const halyard::angle_source before(make_frequencies());
    halyard::run(rotate, before, early, early, halyard::run_options().at(from_the_start));
    std::copy(fresh.begin() + n_trained * head_dim, fresh.end(), stale.begin() + n_trained * head_dim);

    // A rotation is within 3 eps of a pair's length (times attention_factor), and keys were rotated twice here and once
    // there. Scores that are off by d change weights by a factor of at most exp(2 d), and outputs, of values up to 1,
    // by at most twice what that is above 1.
    const double factor = frequencies.info().attention_factor, length = std::sqrt(head_dim) * factor;
    const double off = 3 * 3 * 0x1p-24 * length * length / std::sqrt(head_dim), bound = 2 * (std::exp(2 * off) - 1);
    const auto expected = attend(q, fresh);
    const double moved = greatest_difference(attend(q, keys), expected);
    std::printf(
        "attention after %lld tokens differs from a fresh prefill's by %.1e (bound %.1e); with keys that stay by "
        "%.1e\n",
        static_cast<long long>(n_tokens), moved, bound, greatest_difference(attend(q, stale), expected));
    std::printf("within the bound: %s\n", moved <= bound ? "yes" : "no");
    return 0;
}
