// Times what llama.cpp does for a q8_0 cache of Llama 3 8B, with and without a backend library, in this process and in
// turns: k and v of some tokens (rotation of k, Hadamard transforms, stores), and a shift of all keys.
//
//     record_times LIBRARY.so THREADS
//
// With one thread, times are the process's own on the CPU.
#include "backend.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <vector>

namespace {

constexpr int head_dim = 128, n_kv_heads = 8, n_slots = 8192, n_rounds = 15;
constexpr double round_seconds = 0.02;

clockid_t the_clock = CLOCK_MONOTONIC;

double now() {
    timespec time = {};
    clock_gettime(the_clock, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Layers that store n_tokens each, or that move all their keys where that is 0.
class Graph {
public:
    Graph(int n_layers, int n_tokens, int n_threads)
        : backend_(make_backend(n_threads)), fixed_(make_context()), context_(make_context()) {
        std::vector<ggml_tensor *> caches;
        for (int i = 0; i < 2 * n_layers; ++i) {
            caches.push_back(ggml_new_tensor_2d(fixed_.get(), GGML_TYPE_Q8_0, head_dim * n_kv_heads, n_slots));
        }
        const int n = n_tokens == 0 ? n_slots : n_tokens;
        ggml_tensor *x = ggml_new_tensor_3d(fixed_.get(), GGML_TYPE_F32, head_dim, n_kv_heads, n);
        positions_ = ggml_new_tensor_1d(fixed_.get(), GGML_TYPE_I32, n);
        slots_ = ggml_new_tensor_1d(fixed_.get(), GGML_TYPE_I64, n);
        k_rot_ = ggml_new_tensor_2d(fixed_.get(), GGML_TYPE_F32, head_dim, head_dim);
        v_rot_ = ggml_new_tensor_2d(fixed_.get(), GGML_TYPE_F32, 64, 64);
        buffer_.reset(ggml_backend_alloc_ctx_tensors(fixed_.get(), backend_.get()));
        ggml_backend_buffer_clear(buffer_.get(), 0x11);
        fill(x, 1);
        set_numbers();
        graph_ = ggml_new_graph(context_.get());
        for (int i = 0; i < n_layers; ++i) {
            ggml_tensor *k = caches[static_cast<std::size_t>(2 * i)], *v = caches[static_cast<std::size_t>(2 * i + 1)];
            if (n_tokens == 0) {
                add_shift(k);
            } else {
                add_store(k, transformed(turned(x), k_rot_));
                add_store(v, transformed(x, v_rot_));
            }
        }
        ggml_backend_t backends[] = {backend_.get()};
        sched_.reset(ggml_backend_sched_new(backends, nullptr, 1, 512, false, true));
        if (!ggml_backend_sched_alloc_graph(sched_.get(), graph_)) {
            std::exit(2);
        }
    }

    /// Seconds of a number of computations.
    double time(int n) {
        const double start = now();
        for (int i = 0; i < n; ++i) {
            if (ggml_backend_sched_graph_compute(sched_.get(), graph_) != GGML_STATUS_SUCCESS) {
                std::exit(2);
            }
        }
        return now() - start;
    }

private:
    void set_numbers() {
        std::vector<std::int32_t> positions(static_cast<std::size_t>(positions_->ne[0]));
        std::vector<std::int64_t> slots(positions.size());
        for (std::size_t t = 0; t < slots.size(); ++t) {
            positions[t] = static_cast<std::int32_t>(1000 + t) * (slots.size() == n_slots ? -1 : 1);
            slots[t] = static_cast<std::int64_t>(t);
        }
        ggml_backend_tensor_set(positions_, positions.data(), 0, ggml_nbytes(positions_));
        ggml_backend_tensor_set(slots_, slots.data(), 0, ggml_nbytes(slots_));
    }

    ggml_tensor *transformed(ggml_tensor *x, ggml_tensor *rot) {
        ggml_context *c = context_.get();
        const std::int64_t n = rot->ne[0];
        ggml_tensor *y = ggml_mul_mat(c, rot, ggml_reshape_2d(c, x, n, ggml_nelements(x) / n));
        ggml_mul_mat_set_hint(y, GGML_HINT_SRC0_IS_HADAMARD);
        return ggml_reshape_4d(c, y, x->ne[0], x->ne[1], x->ne[2], x->ne[3]);
    }
    ggml_tensor *turned(ggml_tensor *x) {
        return ggml_rope_ext(context_.get(), x, positions_, nullptr, head_dim, GGML_ROPE_TYPE_NORMAL, 8192, 500000.0f,
                             1.0f, 0.0f, 1.0f, 32.0f, 1.0f);
    }
    void add_store(ggml_tensor *cache, ggml_tensor *x) {
        ggml_tensor *flat = ggml_view_2d(context_.get(), x, head_dim * n_kv_heads, x->ne[2], x->nb[2], 0);
        ggml_build_forward_expand(graph_, ggml_set_rows(context_.get(), cache, flat, slots_));
    }
    void add_shift(ggml_tensor *cache) {
        ggml_context *c = context_.get();
        ggml_tensor *keys = ggml_view_3d(c, cache, head_dim, n_kv_heads, n_slots, ggml_row_size(cache->type, head_dim),
                                         cache->nb[1], 0);
        ggml_tensor *floats = transformed(ggml_cast(c, keys, GGML_TYPE_F32), k_rot_);
        ggml_build_forward_expand(graph_, ggml_cpy(c, transformed(turned(floats), k_rot_), keys));
    }

    Owned<ggml_backend_t> backend_;
    Owned<ggml_context *> fixed_, context_;
    Owned<ggml_backend_buffer_t> buffer_;
    Owned<ggml_backend_sched_t> sched_;
    ggml_cgraph *graph_ = nullptr;
    ggml_tensor *positions_ = nullptr, *slots_ = nullptr, *k_rot_ = nullptr, *v_rot_ = nullptr;
};

double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
}

struct Case {
    const char *name;
    int n_layers, n_tokens;
};
constexpr Case cases[] = {
    {"k and v of 1 token", 8, 1},      {"k and v of 64 tokens", 8, 64},   {"k and v of 512 tokens", 8, 512},
    {"k and v of 512 tokens", 1, 512}, {"a shift of 8,192 tokens", 2, 0},
};

}  // namespace

int main(int argc, char **argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: record_times LIBRARY.so THREADS\n");
        return 2;
    }
    const int n_threads = std::atoi(argv[2]);
    the_clock = n_threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
    ggml_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    ggml_backend_load_all();
    std::vector<std::unique_ptr<Graph>> stock, ours;
    for (const Case &each : cases) {
        stock.push_back(std::make_unique<Graph>(each.n_layers, each.n_tokens, n_threads));
    }
    const bool is_loaded = ggml_backend_load(argv[1]) != nullptr;
    for (const Case &each : cases) {
        ours.push_back(std::make_unique<Graph>(each.n_layers, each.n_tokens, n_threads));
    }
    for (std::size_t i = 0; i < std::size(cases); ++i) {
        ours[i]->time(1);
        const int n = std::max(1, static_cast<int>(round_seconds / stock[i]->time(2) * 2));
        std::vector<double> before, after, ratios;
        for (int round = 0; round < n_rounds; ++round) {
            before.push_back(stock[i]->time(n) / n / cases[i].n_layers);
            after.push_back(ours[i]->time(n) / n / cases[i].n_layers);
            ratios.push_back(before.back() / after.back());
        }
        const auto least = [](const std::vector<double> &values) {
            return *std::min_element(values.begin(), values.end());
        };
        std::printf("%s, %d layers, %d threads: stock, %s %.1f, %.1f us a layer, %.2f times as fast (fastest %.2f)\n",
                    cases[i].name, cases[i].n_layers, n_threads, is_loaded ? "Halyard" : "stock", median(before) * 1e6,
                    median(after) * 1e6, median(ratios), least(before) / least(after));
    }
    return 0;
}
