// What an attention layer like Qwen3's does between its projection and attention, in one call: q and k are normed per
// head and rotated, q in place; k and v are stored into paged bf16 caches, each token into its slot.
//
// At the end a cached key is compared with the formula of norm and rotation.
#include <halyard/halyard_kv.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

constexpr std::int64_t n_tokens = 5, n_heads = 8, n_kv_heads = 2, head_dim = 128, n_pages = 4, page_size = 16;
constexpr std::int64_t n_packed = (n_heads + 2 * n_kv_heads) * head_dim;  // q | k | v of one token
using bf16 = std::uint16_t;

static float widen(bf16 word) {
    const std::uint32_t bits = std::uint32_t{word} << 16;
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
}

static bf16 narrow(double number) {  // neither NaN nor too large for bf16
    const auto value = static_cast<float>(number);
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return static_cast<bf16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

struct Weights {
    std::vector<float> q, k;
};

struct Cache {
    std::vector<bf16> k, v;
    std::vector<unsigned char> scratch;
};

/// The layer. An engine would make the plan once for the model, and call run for each layer and step.
static void run_layer(bf16 *packed, const Weights &weights, Cache &cache, const std::int32_t *start,
                      const std::int64_t *slot_of_token) {
    const auto frequencies = halyard::frequencies::from_base(1e6, head_dim);
    const auto angles = halyard::angle_source::table(frequencies, 0, 4096);
    const auto norm = halyard::describe_norm(halyard::dtype::f32, 1e-6);
    const auto pages = halyard::describe_nhd_cache(n_pages, page_size, n_kv_heads, head_dim);
    auto q_kv = halyard::make_struct<halyard_kv_desc>(), k_kv = q_kv, v_kv = q_kv;
    q_kv.norm = k_kv.norm = &norm;
    k_kv.cache = v_kv.cache = &pages;
    v_kv.no_rotation = 1;
    auto q = halyard::describe_tensor(halyard::dtype::bf16, head_dim, halyard::pairing::half), k = q, v = q;
    q.kv = &q_kv;
    k.kv = &k_kv;
    v.kv = &v_kv;
    const halyard::plan plan(halyard::plan_desc(frequencies, {q, k, v}));

    const auto view = [&](std::int64_t first_head, std::int64_t heads) {
        return halyard::tensor(packed + first_head * head_dim, halyard::dtype::bf16, {1, n_tokens, heads, head_dim},
                               {n_tokens * n_packed, n_packed, head_dim, 1});
    };
    const halyard_tensor qkv[] = {view(0, n_heads), view(n_heads, n_kv_heads), view(n_heads + n_kv_heads, n_kv_heads)};
    const halyard_stages stages[] = {halyard::stages(weights.q.data(), head_dim),
                                     halyard::stages(weights.k.data(), head_dim, cache.k.data()),
                                     halyard::stages_into(cache.v.data())};
    const auto positions = halyard::consecutive_positions(start, 1);
    const auto slots = halyard::slots(slot_of_token, {1, n_tokens}, cache.scratch.data(), n_pages * page_size / 8);
    const auto kv = halyard::kv_args(stages, &slots);
    halyard::run(plan, angles, qkv, qkv, halyard::run_options().at(positions).with(kv));
}

int main() {
    std::vector<bf16> packed(n_tokens * n_packed);
    const std::vector<bf16> empty(n_pages * page_size * n_kv_heads * head_dim);
    Cache cache = {empty, empty, std::vector<unsigned char>(n_pages * page_size / 8)};
    for (std::size_t i = 0; i < packed.size(); ++i) {
        packed[i] = narrow(std::sin(0.37 * static_cast<double>(i)));
    }
    const auto before = packed;
    Weights weights = {std::vector<float>(head_dim, 1.0f), std::vector<float>(head_dim)};
    for (std::size_t i = 0; i < weights.k.size(); ++i) {
        weights.k[i] = 1.0f + static_cast<float>(i) / 256.0f;
    }
    const std::int32_t start = 1000;
    const std::int64_t slot_of_token[n_tokens] = {30, 31, 48, 49, -1};  // -1: the token is not cached
    run_layer(packed.data(), weights, cache, &start, slot_of_token);

    // Head 0 of the first token's key: before the call (x), and as cached.
    const bf16 *const x = &before[n_heads * head_dim], *const key = &cache.k[slot_of_token[0] * n_kv_heads * head_dim];
    double sum = 0.0, worst = 0.0;
    for (std::int64_t i = 0; i < head_dim; ++i) {
        sum += static_cast<double>(widen(x[i])) * widen(x[i]);
    }
    const double r = 1.0 / std::sqrt(sum / head_dim + 1e-6);
    for (std::int64_t i = 0; i < head_dim / 2; ++i) {
        const double theta = start * std::pow(1e6, -2.0 * static_cast<double>(i) / head_dim);
        const double a = widen(x[i]) * r * weights.k[i], b = widen(x[i + 64]) * r * weights.k[i + 64];
        worst =
            std::max(worst, std::fabs(widen(key[i]) - (a * std::cos(theta) - b * std::sin(theta))) / std::hypot(a, b));
    }
    const auto n_cached = std::count_if(cache.k.begin(), cache.k.end(), [](bf16 word) { return word != 0; });
    std::printf("keys of %lld tokens are cached; the first is within %.4f of a pair's length of the formula\n",
                static_cast<long long>(n_cached / (n_kv_heads * head_dim)), worst);
    return 0;
}
