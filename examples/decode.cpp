// One attention layer that decodes token by token: q, k and v come packed in one buffer, with fewer heads of k and v
// than of q (grouped-query attention). One call rotates q in place, rotates k into a cache, and copies v into a cache.
//
// At the end the cached keys and values must have the same bits as if one call had made them for all tokens.
#include <halyard/halyard_kv.hpp>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <vector>

constexpr std::int64_t n_tokens = 300, n_heads = 8, n_kv_heads = 2, head_dim = 64;
constexpr std::int64_t n_packed = (n_heads + 2 * n_kv_heads) * head_dim;  // q | k | v of one token

/// Stands for a projection of the hidden state: any numbers, but the same at each call.
static void project(std::int64_t token, float *packed) {
    for (std::int64_t i = 0; i < n_packed; ++i) {
        packed[i] = static_cast<float>(std::sin(0.37 * static_cast<double>(token) + 1.3 * static_cast<double>(i)));
    }
}

/// A view of q, k or v: `heads` heads, from first_head on, of all tokens of a packed buffer.
static halyard_tensor slice(float *packed, std::int64_t tokens, std::int64_t first_head, std::int64_t heads) {
    return halyard::tensor(packed + first_head * head_dim, halyard::dtype::f32, {1, tokens, heads, head_dim},
                           {tokens * n_packed, n_packed, head_dim, 1});
}

/// Fills `keys` and `values`, two caches, by one call for all tokens, at positions 0, 1, 2, …
static void prefill(const halyard::plan &plan, const halyard::angle_source &angles, std::vector<float> *keys,
                    std::vector<float> *values) {
    std::vector<float> packed(n_tokens * n_packed);
    for (std::int64_t token = 0; token < n_tokens; ++token) {
        project(token, &packed[token * n_packed]);
    }
    const halyard_tensor qkv[] = {slice(packed.data(), n_tokens, 0, n_heads),
                                  slice(packed.data(), n_tokens, n_heads, n_kv_heads),
                                  slice(packed.data(), n_tokens, n_heads + n_kv_heads, n_kv_heads)};
    std::vector<std::int32_t> each(n_tokens);
    std::iota(each.begin(), each.end(), 0);
    const halyard_stages stages[] = {halyard::stages(), halyard::stages_into(keys->data()),
                                     halyard::stages_into(values->data())};
    const auto slots = halyard::unchecked_slots(each.data(), {1, n_tokens});
    const auto kv = halyard::kv_args(stages, &slots);
    halyard::run(plan, angles, qkv, qkv, halyard::run_options().with(kv));
}

int main() {
    // The angle source and the plan are made once for the model. The plan describes q, k and v, so one call takes all.
    const auto frequencies = halyard::frequencies::from_base(10000.0, head_dim);
    const auto table = halyard::angle_source::table(frequencies, 0, n_tokens);
    const auto cache = halyard::describe_nhd_cache(n_tokens, 1, n_kv_heads, head_dim);
    auto k_kv = halyard::make_struct<halyard_kv_desc>();
    k_kv.cache = &cache;
    auto v_kv = k_kv;
    v_kv.no_rotation = 1;
    const auto q_head = halyard::describe_tensor(halyard::dtype::f32, head_dim, halyard::pairing::half);
    auto k_head = q_head, v_head = q_head;
    k_head.kv = &k_kv;
    v_head.kv = &v_kv;
    const halyard::plan plan(halyard::plan_desc(head_dim, {q_head, k_head, v_head}));

    // A token's cos and sin are computed once, into `row`, where the runs of all layers read them.
    std::vector<float> row(head_dim);
    const auto angles = halyard::angle_source::given_by_token(row.data(), 1, head_dim);

    // Runs of different steps differ only in their pointers, so everything else is checked once, here.
    std::vector<float> packed(n_packed), keys(n_tokens * n_kv_heads * head_dim), values(keys.size());
    std::int32_t slot = 0;
    const halyard_tensor qkv[] = {slice(packed.data(), 1, 0, n_heads), slice(packed.data(), 1, n_heads, n_kv_heads),
                                  slice(packed.data(), 1, n_heads + n_kv_heads, n_kv_heads)};
    const halyard_stages stages[] = {halyard::stages(), halyard::stages_into(keys.data()),
                                     halyard::stages_into(values.data())};
    const auto slots = halyard::unchecked_slots(&slot, {1, 1});
    const auto kv = halyard::kv_args(stages, &slots);
    const halyard::bound_run rotate(plan, angles, qkv, qkv, halyard::run_options().with(kv));
    for (std::int32_t token = 0; token < n_tokens; ++token) {
        project(token, packed.data());
        const auto position = halyard::consecutive_positions(&token, 1);
        halyard::make_rows(plan, table, &position, {1, 1}, row.data(), head_dim);

        float *q = packed.data(), *k = q + n_heads * head_dim, *v = k + n_kv_heads * head_dim;
        slot = token;
        rotate({q, k, v}, {q, nullptr, nullptr}, nullptr, {}, &kv);  // nothing is allocated
        // Here an engine computes attention of q over the keys and values 0 … token.
    }

    std::vector<float> all_keys(keys.size()), all_values(keys.size());
    prefill(plan, table, &all_keys, &all_values);
    std::int64_t n_different = 0;
    for (std::int64_t token = 0; token < n_tokens; ++token) {
        const std::int64_t at = token * n_kv_heads * head_dim;
        n_different += std::memcmp(&keys[at], &all_keys[at], n_kv_heads * head_dim * sizeof(float)) != 0;
        n_different += std::memcmp(&values[at], &all_values[at], n_kv_heads * head_dim * sizeof(float)) != 0;
    }
    std::printf("%zu keys cached; tokens whose keys differ from those of one call for all: %lld\n",
                keys.size() / head_dim, static_cast<long long>(n_different));
    return n_different == 0 ? 0 : 1;
}
