// Computes small graphs with and without a backend library, in one process, and compares: a layer's q and k with norms,
// rotations and a cache, again and again as a program that decodes does, in several threads; and what goes wrong.
//
//     graphs LIBRARY.so THREADS
//
// Prints what fails, and exits with 1 then.
#include "backend.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int head_dim = 64, n_heads = 8, n_kv_heads = 2, n_slots = 96, n_steps = 20;

/// What a graph is made of.
struct Layer {
    ggml_type cache_type;
    bool has_norm, has_cache, makes_positions, reads_k;
    int n_tokens;
    bool norm_is_of_rows = false;
};

/// A backend with a graph of two layers, whose inputs are filled anew for each step.
class Model {
public:
    Model(const Layer &layer, int n_threads)
        : layer_(layer), backend_(make_backend(n_threads)), fixed_(make_context()), context_(make_context()) {
        cache_ = ggml_new_tensor_2d(fixed_.get(), layer.cache_type, head_dim * n_kv_heads, n_slots);
        weight_ = ggml_new_tensor_1d(fixed_.get(), GGML_TYPE_F32, head_dim * n_heads);
        buffer_.reset(ggml_backend_alloc_ctx_tensors(fixed_.get(), backend_.get()));
        ggml_backend_buffer_clear(buffer_.get(), 0);
        fill(weight_, 3);
        build();
        ggml_backend_t backends[] = {backend_.get()};
        sched_.reset(ggml_backend_sched_new(backends, nullptr, 1, 64, false, true));
        if (!ggml_backend_sched_alloc_graph(sched_.get(), graph_)) {
            std::exit(2);
        }
    }

    /// Computes a step. The results are those of q, and the cache after it.
    ggml_status step(unsigned seed, int first_slot) {
        fill(x_, seed);
        std::vector<std::int32_t> positions(static_cast<std::size_t>(layer_.n_tokens));
        std::vector<std::int64_t> slots(positions.size());
        for (std::size_t t = 0; t < slots.size(); ++t) {
            positions[t] = static_cast<std::int32_t>(100 * seed + t);
            slots[t] = first_slot + static_cast<int>(t);
        }
        ggml_backend_tensor_set(positions_, positions.data(), 0, ggml_nbytes(positions_));
        if (layer_.has_cache) {
            ggml_backend_tensor_set(slots_, slots.data(), 0, ggml_nbytes(slots_));
        }
        std::vector<ggml_tensor> before;
        for (int i = 0; i < ggml_graph_n_nodes(graph_); ++i) {
            before.push_back(*ggml_graph_node(graph_, i));
        }
        const ggml_status status = ggml_backend_sched_graph_compute(sched_.get(), graph_);
        for (int i = 0; i < ggml_graph_n_nodes(graph_); ++i) {
            expect(std::memcmp(&before[static_cast<std::size_t>(i)], ggml_graph_node(graph_, i), sizeof(ggml_tensor)) ==
                       0,
                   "the graph is as before");
        }
        return status;
    }

    std::vector<char> bytes(bool of_cache) const { return bytes_of(of_cache ? cache_ : out_); }

    std::vector<float> numbers(bool of_cache) const {
        const auto raw = bytes(of_cache);
        const ggml_type type = of_cache ? cache_->type : GGML_TYPE_F32;
        std::vector<float> result(raw.size() / ggml_type_size(type));
        if (type == GGML_TYPE_F32) {
            std::memcpy(result.data(), raw.data(), raw.size());
        } else {
            ggml_fp16_to_fp32_row(reinterpret_cast<const ggml_fp16_t *>(raw.data()), result.data(),
                                  static_cast<std::int64_t>(result.size()));
        }
        return result;
    }

private:
    /// Norms whole tokens, as OLMo 2 norms them, or each head by itself.
    ggml_tensor *rotated(ggml_tensor *x) {
        ggml_context *c = context_.get();
        const std::int64_t heads = x->ne[1], tokens = x->ne[2],
                           size = layer_.norm_is_of_rows ? heads * head_dim : head_dim;
        if (layer_.norm_is_of_rows) {
            x = ggml_view_2d(c, x, size, tokens, x->nb[2], 0);
        }
        if (layer_.has_norm) {
            x = ggml_mul(c, ggml_rms_norm(c, x, 1e-6f), ggml_view_1d(c, weight_, size, 0));
        }
        x = layer_.norm_is_of_rows ? ggml_reshape_3d(c, x, head_dim, heads, tokens) : x;
        ggml_tensor *where = positions_;
        if (layer_.makes_positions) {
            where = ggml_cast(c, ggml_cast(c, positions_, GGML_TYPE_F32), GGML_TYPE_I32);
        }
        return ggml_rope_ext(c, x, where, nullptr, head_dim, GGML_ROPE_TYPE_NEOX, 4096, 10000.0f, 1.0f, 0.0f, 1.0f,
                             32.0f, 1.0f);
    }

    void build() {
        ggml_context *c = context_.get();
        graph_ = ggml_new_graph(c);
        const int n = layer_.n_tokens, n_packed = (n_heads + n_kv_heads) * head_dim;
        x_ = ggml_new_tensor_2d(c, GGML_TYPE_F32, n_packed, n);
        positions_ = ggml_new_tensor_1d(c, GGML_TYPE_I32, n);
        slots_ = ggml_new_tensor_1d(c, GGML_TYPE_I64, n);
        for (ggml_tensor *input : {x_, positions_, slots_}) {
            ggml_set_input(input);
        }
        ggml_tensor *packed = x_;
        for (int i = 0; i < 2; ++i) {
            packed = ggml_scale(c, packed, 1.5f);
            const std::size_t bytes = head_dim * sizeof(float);
            ggml_tensor *q = ggml_view_3d(c, packed, head_dim, n_heads, n, bytes, packed->nb[1], 0);
            ggml_tensor *k = ggml_view_3d(c, packed, head_dim, n_kv_heads, n, bytes, packed->nb[1], n_heads * bytes);
            q = rotated(q);
            ggml_build_forward_expand(graph_, q);
            k = rotated(k);
            if (layer_.has_cache) {
                ggml_tensor *flat = ggml_view_2d(c, k, head_dim * n_kv_heads, n, k->nb[2], 0);
                ggml_build_forward_expand(graph_, ggml_set_rows(c, cache_, flat, slots_));
            } else {
                ggml_build_forward_expand(
                    graph_, ggml_cpy(c, k,
                                     ggml_view_3d(c, cache_, head_dim, n_kv_heads, n,
                                                  head_dim * ggml_type_size(cache_->type), cache_->nb[1], 0)));
            }
            out_ = layer_.reads_k ? ggml_scale(c, k, 2.0f) : q;
        }
        ggml_set_output(out_);
        ggml_build_forward_expand(graph_, out_);
    }

    Layer layer_;
    Owned<ggml_backend_t> backend_;
    Owned<ggml_context *> fixed_, context_;
    Owned<ggml_backend_buffer_t> buffer_;
    Owned<ggml_backend_sched_t> sched_;
    ggml_cgraph *graph_ = nullptr;
    ggml_tensor *cache_ = nullptr, *weight_ = nullptr, *x_ = nullptr, *positions_ = nullptr, *slots_ = nullptr;
    ggml_tensor *out_ = nullptr;
};

double difference(const std::vector<float> &a, const std::vector<float> &b) {
    double worst = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        worst = std::max(worst, static_cast<double>(std::fabs(a[i] - b[i])));
    }
    return worst;
}

/// ggml's angles at position 2,000 are off by some 1e-4; f16 adds half an ulp of numbers up to 8.
constexpr double bound = 8 * (2e-4 + 4.9e-4);

const std::vector<Layer> layers = {
    {GGML_TYPE_F16, true, true, false, false, 1},        {GGML_TYPE_F16, true, true, false, false, 7},
    {GGML_TYPE_F32, false, true, false, false, 1},       {GGML_TYPE_F32, false, true, false, false, 33},
    {GGML_TYPE_F16, true, false, false, false, 5},       {GGML_TYPE_F32, false, false, false, false, 1},
    {GGML_TYPE_F32, false, true, true, false, 2},        {GGML_TYPE_F16, true, true, false, true, 3},
    {GGML_TYPE_F16, true, true, false, false, 17, true}, {GGML_TYPE_F32, true, false, false, false, 1, true},
    {GGML_TYPE_F16, true, true, false, false, 65}};

struct Results {
    std::vector<std::vector<float>> numbers;
    std::vector<std::vector<char>> bytes;
};

Results run_all(int n_threads) {
    Results results;
    for (const Layer &layer : layers) {
        Model model(layer, n_threads);
        for (int i = 0; i < n_steps; ++i) {
            const auto status = model.step(static_cast<unsigned>(i), (7 * i) % (n_slots - layer.n_tokens));
            expect(status == GGML_STATUS_SUCCESS, "a step succeeds");
            for (const bool of_cache : {false, true}) {
                results.numbers.push_back(model.numbers(of_cache));
                results.bytes.push_back(model.bytes(of_cache));
            }
        }
    }
    return results;
}

void test_bad_slots(int n_threads) {
    Model model(layers.back(), n_threads);  // whose stores are joined: ggml's own would end the process
    expect(model.step(1, 5) == GGML_STATUS_SUCCESS, "good slots succeed");
    const auto cache = model.bytes(true);
    for (const int slot : {n_slots, 1 << 30, -2}) {
        last_log.clear();
        expect(model.step(2, slot) == GGML_STATUS_FAILED, "a bad slot fails");
        expect(last_log.find("slot") != std::string::npos, "a bad slot is told: " + last_log);
        expect(model.bytes(true) == cache, "a bad slot writes nothing to the cache");
    }
    expect(model.step(3, 6) == GGML_STATUS_SUCCESS, "good slots succeed after bad ones");
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: graphs LIBRARY.so THREADS\n");
        return 2;
    }
    const int n_threads = std::atoi(argv[2]);
    ggml_log_set(keep_log, nullptr);
    ggml_backend_load_all();
    const Results before = run_all(n_threads);
    if (ggml_backend_load(argv[1]) == nullptr) {
        std::fprintf(stderr, "graphs: could not load %s: %s\n", argv[1], last_log.c_str());
        return 2;
    }
    const Results after = run_all(n_threads), alone = run_all(1);
    expect(after.bytes == alone.bytes, "any number of threads gives the same bits");
    double worst = 0.0;
    for (std::size_t i = 0; i < before.numbers.size(); ++i) {
        worst = std::max(worst, difference(before.numbers[i], after.numbers[i]));
    }
    expect(worst < bound, "differences are within the bound");
    expect(before.bytes != after.bytes, "something was replaced");

    std::vector<Results> of_threads(3);
    std::vector<std::thread> threads;
    for (auto &results : of_threads) {
        threads.emplace_back([&results] { results = run_all(2); });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    for (const auto &results : of_threads) {
        expect(results.bytes == after.bytes, "backends in several threads don't disturb each other");
    }
    test_bad_slots(n_threads);
    std::printf("%zu results, worst difference %.1e, %d failed\n", before.numbers.size(), worst, n_failed.load());
    return n_failed == 0 ? 0 : 1;
}
